# SPDX-License-Identifier: MIT
"""The part that rounding keeps out of a sum: the residual of each element, which the caller adds to its next contribution
(error feedback; Seide et al., Interspeech 2014)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netsum.collectives.partition import BlockPartition
from netsum.numeric.fixed_point import Array, Counts, FloatLanes, Numbers
from netsum.wire.schema import Lane


@dataclass(frozen=True)
class Keeping:
    """Lanes that note in the flat array ``residual`` what they do not carry of the values that they are given."""

    inner: FloatLanes
    partition: BlockPartition
    residual: Array

    @property
    def lane(self) -> Lane:
        return self.inner.lane

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.inner.dtype

    def encode(self, rows: Array, numbers: Numbers, out: Array | None = None) -> Array:
        lanes = self.inner.encode(rows, numbers, out)
        one = np.ones(len(numbers), np.int64)  # as if this rank were alone
        carried = replace(self.inner, dtype=rows.dtype).decode(lanes.copy(), numbers, one, one)
        self.partition.place(self.residual, rows - carried, numbers)
        return lanes

    def values(self, integers: Array, numbers: Numbers, worker_cnt: Counts, out: Array | None = None) -> Array:
        return self.inner.values(integers, numbers, worker_cnt, out)

    def decode(self, lanes: Array, numbers: Numbers, data_cnt: Counts, worker_cnt: Counts, out: Array | None = None) -> Array:
        return self.inner.decode(lanes, numbers, data_cnt, worker_cnt, out)


def keeping(lanes: FloatLanes, partition: BlockPartition, residual: Array) -> Keeping:
    """The lanes, which leave the residual in this array."""
    residual[...] = 0  # blocks that are not sent leave none
    return Keeping(lanes, partition, residual.reshape(-1))
