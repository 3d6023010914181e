"""Times a collective end to end, with the columns of nccl-tests.

``algbw`` is bytes of the array per second; ``busbw`` is algbw times 2 (n - 1) / n, as nccl-tests defines it for
allreduce, so that figures can be compared with a ring's; with a switch, each link carries only algbw in each direction.
``#wrong`` counts elements that differ from the sum: inputs are small whole numbers, whose sums are exact.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from netsum.descriptor import SWITCH
from netsum_controller.config.job_spec import JobSpec

from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.processes import Child


@dataclass(frozen=True)
class Calls:
    """What is timed: arrays of ``sizes`` bytes, ``iterations`` calls each after an untimed one, out of place and, if ``places``
    is 2, in place. ``scale`` is that of the calls, or ``exact``."""

    sizes: tuple[int, ...]
    dtype: str
    workers: int
    iterations: int
    places: int = 2
    scale: str = "agreed"

    def command(self) -> list[str]:
        """The command line of one rank."""
        words = [",".join(map(str, self.sizes)), self.dtype, str(self.iterations), str(self.places), self.scale]
        return [sys.executable, "-m", "netsum_testbed.bench.rank", *words]


@dataclass(frozen=True)
class Line:
    """One size, out of place and in place: seconds per call (median of the slowest rank's calls), wrong elements, and bytes per
    call of the rank that sends most."""

    size: int
    count: int
    workers: int
    seconds: tuple[float, ...]
    wrong: tuple[int, ...]
    sent: tuple[int, ...]

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
            "algbw_GBps": [round(self.algbw(place), 4) for place in range(len(self.seconds))],
            "busbw_GBps": [round(self.busbw(place), 4) for place in range(len(self.seconds))],
            "wrong": list(self.wrong),
            "sent_bytes": list(self.sent),
        }


def time_allreduce(fabric: Fabric, calls: Calls) -> Iterator[Line]:
    """Time the calls, every rank a process on its own host; yield a line for each size as it comes."""
    job = fabric.create_job(
        JobSpec(name="bench", members=tuple(fabric.topology.hosts)[: calls.workers], algorithm=SWITCH)
    )
    ranks = [
        fabric.spawn(host, calls.command(), name=f"rank{rank}", environment=fabric.environment(job, rank), piped=True)
        for rank, host in enumerate(job.members)
    ]
    yield from time_ranks(ranks, calls)


def time_ranks(ranks: Sequence[Child], calls: Calls) -> Iterator[Line]:
    """Yield a line for each size as it comes from processes that run :meth:`Calls.command` (or print such lines), until they
    have ended."""
    for size in calls.sizes:
        said = [rank.stdout.readline() for rank in ranks]
        for number, line in enumerate(said):
            if not line:
                raise TestbedError(f"rank {number} failed: {ranks[number].last_words(1)}")
        timed = np.array([json.loads(line) for line in said])  # rank, place, (seconds, wrong, sent)
        seconds, wrong, sent = timed[:, :, 0].max(axis=0), timed[:, :, 1].sum(axis=0), timed[:, :, 2].max(axis=0)
        count = size // np.dtype(calls.dtype).itemsize
        yield Line(
            size, count, calls.workers, tuple(map(float, seconds)), tuple(map(int, wrong)), tuple(map(int, sent))
        )
    for rank in ranks:
        rank.wait()


_COLUMNS = (10, 10, 9, 7, 7, 6, 9, 7, 7, 6)


def collective_table(lines: Sequence[Line]) -> str:
    """The lines as nccl-tests prints them."""
    places = f"{'':{sum(_COLUMNS[:2]) + 1}} {'out-of-place':^32} {'in-place':^32}"
    place = ("time", "algbw", "busbw", "#wrong")
    units = ("(us)", "(GB/s)", "(GB/s)", "")
    rows: list[Sequence[str]] = [("size", "count", *place, *place), ("(B)", "(elements)", *units, *units)]
    for line in lines:
        cells = [str(line.size), str(line.count)]
        for which in (0, 1):
            cells += [f"{line.seconds[which] * 1e6:.0f}", f"{line.algbw(which):.4f}"]
            cells += [f"{line.busbw(which):.4f}", str(line.wrong[which])]
        rows.append(cells)
    table = [" ".join(f"{cell:>{width}}" for cell, width in zip(row, _COLUMNS, strict=True)) for row in rows]
    return "\n".join([places, *table])
