"""What the ranks contribute: where sums may be partial, numbers whose sum tells whose are in it."""

from __future__ import annotations

import numpy as np
from netsum_testbed.verify.data import Array, lay_out
from netsum_testbed.verify.data import contribution as whole_contribution

from netsum_trials.soak.cases import Plan, Step, largest_rest, modulus, weight


def contribution(plan: Plan, step: Step, rank: int) -> Array:
    """What a rank passes to a step's call (cells have data of their own): not contiguous where it is ``strided``."""
    if step.kind == "allreduce" and not plan.partial:
        return whole_contribution(step.call, rank)
    return lay_out(step.call, _tagged(plan, step, rank))


def _tagged(plan: Plan, step: Step, rank: int) -> Array:
    """Whole numbers, the rank's weight modulo the modulus, and small enough that every sum of them is exact."""
    call, workers = step.call, plan.workers
    rng = np.random.default_rng([plan.base.seed, plan.base.index, call.index, rank, 0x50])
    rest = rng.integers(0, largest_rest(call.kind.dtype, workers), call.size, endpoint=True)
    flat: Array = (weight(rank) + modulus(workers) * rest).astype(call.kind.dtype)
    return flat
