"""What the ranks contribute; where sums may be partial, numbers whose sum tells whose are in it."""

from __future__ import annotations

import numpy as np
from netsum_testbed.verify import data
from netsum_testbed.verify.data import Array

from netsum_trials.soak.cases import Step


def contribution(step: Step, rank: int) -> Array:
    """What a rank passes to a step's call.

    In a tagged step, a rank's elements are ``1 << rank`` modulo ``1 << workers``, so that a sum tells whose are in it. They
    are whole numbers, so small that every sum of them is exact.
    """
    cell = step.cell
    if not step.tagged:
        return data.contribution(cell, rank)
    modulus = 1 << cell.workers
    bits = {"int8": 7, "int16": 15, "float16": 11}.get(cell.kind.dtype, 20)
    most = max(0, ((1 << bits) - modulus) // (modulus * cell.workers))
    rest = np.random.default_rng([*cell.seed, rank, 0x50]).integers(0, most, cell.size, endpoint=True)
    return data.lay_out(cell, ((1 << rank) + modulus * rest).astype(cell.kind.dtype))
