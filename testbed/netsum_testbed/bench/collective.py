"""Times a collective end to end, with the columns of nccl-tests.

``algbw`` is bytes of the array per second; ``busbw`` is algbw times 2 (n - 1) / n, as nccl-tests defines it for
allreduce, so that figures compare with a ring's; with a switch only algbw passes over each link, in each direction.
``#wrong`` counts elements that differ from the sum: inputs are small whole numbers, of which every sum is exact.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from netsum.communicator import Communicator

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str) -> int:
    """Bytes of ``4096``, ``4K`` or ``1M``; ValueError for anything else."""
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    if unit not in _UNITS or not number.isdigit():
        raise ValueError(f"{text!r} is not a size such as 4096, 64K or 1M")
    return int(number) * _UNITS[unit]


@dataclass(frozen=True)
class Line:
    """One size: seconds per call (the slowest rank's) out of place and in place."""

    size: int
    count: int
    workers: int
    seconds: tuple[float, float]
    wrong: tuple[int, int]

    def algbw(self, place: int) -> float:
        """GB/s."""
        return self.size / self.seconds[place] / 1e9

    def busbw(self, place: int) -> float:
        """GB/s."""
        return self.algbw(place) * 2 * (self.workers - 1) / self.workers

    def to_dict(self) -> dict[str, object]:
        return {
            "size": self.size,
            "time_us": [round(seconds * 1e6, 1) for seconds in self.seconds],
            "algbw_GBps": [round(self.algbw(place), 4) for place in (0, 1)],
            "busbw_GBps": [round(self.busbw(place), 4) for place in (0, 1)],
            "wrong": list(self.wrong),
        }


def time_allreduce(communicators: Sequence[Communicator], size: int, dtype: str, iterations: int) -> Line:
    """Sum arrays of ``size`` bytes, ``iterations`` times after one that is not timed."""
    count = size // np.dtype(dtype).itemsize
    workers = len(communicators)
    seconds, wrong = [], []
    for in_place in (False, True):
        with ThreadPoolExecutor(workers) as pool:
            ranks = list(pool.map(lambda comm, way=in_place: _rank(comm, count, dtype, iterations, way), communicators))
        seconds.append(max(elapsed for elapsed, _ in ranks) / iterations)
        wrong.append(sum(bad for _, bad in ranks))
    return Line(size, count, workers, (seconds[0], seconds[1]), (wrong[0], wrong[1]))


def _rank(comm: Communicator, count: int, dtype: str, iterations: int, in_place: bool) -> tuple[float, int]:
    """One rank's part: seconds for all iterations, and how many elements of the last result are wrong."""
    pattern = np.arange(count) % 97
    source = (pattern + comm.rank).astype(dtype)
    expected = (pattern * comm.size + comm.size * (comm.size - 1) // 2).astype(dtype)
    out = source.copy()
    comm.allreduce(out, out=out)
    start = time.perf_counter()
    for _ in range(iterations):
        if in_place:
            out[...] = source
        comm.allreduce(out if in_place else source, out=out)
    return time.perf_counter() - start, int(np.count_nonzero(out != expected))


_COLUMNS = (10, 10, 9, 7, 7, 6, 9, 7, 7, 6)


def collective_table(lines: Sequence[Line]) -> str:
    """As nccl-tests prints it; bandwidths in MB/s."""
    places = f"{'':{sum(_COLUMNS[:2]) + 1}} {'out-of-place':^32} {'in-place':^32}"
    place = ("time", "algbw", "busbw", "#wrong")
    units = ("(us)", "(MB/s)", "(MB/s)", "")
    rows: list[Sequence[str]] = [("size", "count", *place, *place), ("(B)", "(elements)", *units, *units)]
    for line in lines:
        cells = [str(line.size), str(line.count)]
        for which in (0, 1):
            cells += [f"{line.seconds[which] * 1e6:.0f}", f"{line.algbw(which) * 1e3:.1f}"]
            cells += [f"{line.busbw(which) * 1e3:.1f}", str(line.wrong[which])]
        rows.append(cells)
    table = [" ".join(f"{cell:>{width}}" for cell, width in zip(row, _COLUMNS, strict=True)) for row in rows]
    return "\n".join([places, *table])
