"""Times a collective end to end, with the columns of nccl-tests.

``algbw`` is bytes of the array per second; ``busbw`` is algbw times nccl-tests' factor of the operation, as 2 (n - 1) / n of an
allreduce, so that figures can be compared with a ring's; with a switch, each link carries only algbw in each direction.
``#wrong`` counts elements of the results that are not what they should be (:mod:`netsum_testbed.bench.operations`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from netsum.descriptor import SWITCH
from netsum_controller.config.job_spec import JobSpec

from netsum_testbed.bench.calls import Calls, Timing
from netsum_testbed.bench.operations import OPERATIONS
from netsum_testbed.fabric import Fabric
from netsum_testbed.processes import Child, said_by

_LEAVES: Final = 120.0
"""Seconds that a rank may take to leave its jobs, on a machine that is busy."""


@dataclass(frozen=True)
class Line:
    """One size, out of place and in place.

    Attributes:
        count: elements of a rank's part, or of the array.
        seconds: of a call, which ends with the slowest rank: the median.
        wrong: elements.
        sent: bytes of payload per call of the rank that sends most.
        times: seconds by rank and call.
        late: seconds by which each rank began after the first: the median.
        link: bytes of frames per call on the host's link and in the direction that carries most.
        rate_mbps: what a host may send, if it is limited.
        stored: bytes per call that the rank which stores most writes to memory.
    """

    size: int
    count: int
    workers: int
    seconds: tuple[float, ...]
    wrong: tuple[int, ...]
    sent: tuple[int, ...]
    operation: str = "allreduce"
    times: tuple[tuple[tuple[float, ...], ...], ...] = ()
    late: tuple[tuple[float, ...], ...] = ()
    link: tuple[int, ...] = ()
    rate_mbps: int | None = None
    stored: tuple[int, ...] = ()

    def algbw(self, place: int) -> float:
        """GB/s."""
        return self.size / self.seconds[place] / 1e9

    def busbw(self, place: int) -> float:
        """GB/s."""
        return self.algbw(place) * OPERATIONS[self.operation].factor(self.workers)

    def slowest(self, place: int) -> list[float]:
        """Seconds of each call."""
        return [max(each) for each in zip(*self.times[place], strict=True)]

    def percentile(self, place: int, percent: float) -> float:
        """Seconds within which so many of the calls ended (by nearest rank, as nccl-tests has it)."""
        return percentile(self.slowest(place), percent)

    def straggler(self, place: int) -> tuple[int, float]:
        """The rank that is the latest to begin, and by how many seconds after the first."""
        late = self.late[place]
        rank = max(range(len(late)), key=late.__getitem__)
        return rank, late[rank]

    def link_share(self, place: int) -> float | None:
        """Bytes on the busiest link, as a share of what it can carry in that time."""
        if self.rate_mbps is None:
            return None
        return self.link[place] / (self.seconds[place] * self.rate_mbps * 1e6 / 8)

    def to_dict(self) -> dict[str, object]:
        places = range(len(self.seconds))
        found: dict[str, object] = {
            "size": self.size,
            "time_us": [round(seconds * 1e6, 1) for seconds in self.seconds],
            "algbw_GBps": [round(self.algbw(place), 6) for place in places],
            "busbw_GBps": [round(self.busbw(place), 6) for place in places],
            "wrong": list(self.wrong),
            "sent_bytes": list(self.sent),
        }
        if self.times:
            found["p50_us"] = [round(self.percentile(place, 50) * 1e6, 1) for place in places]
            found["p99_us"] = [round(self.percentile(place, 99) * 1e6, 1) for place in places]
            found["late_us"] = [[round(seconds * 1e6, 1) for seconds in late] for late in self.late]
            found["link_bytes"] = list(self.link)
        if self.rate_mbps is not None:
            found["link_share"] = [round(self.link_share(place) or 0.0, 4) for place in places]
        return found


def percentile(values: Sequence[float], percent: float) -> float:
    """The value at this percentile, by nearest rank."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def time_collective(fabric: Fabric, calls: Calls) -> Iterator[Line]:
    """Time the calls, every rank a process on its own host; yield a line for each size as it comes."""
    job = fabric.create_job(
        JobSpec(name="bench", members=tuple(fabric.topology.hosts)[: calls.workers], algorithm=SWITCH)
    )
    ranks = fabric.spawn_ranks(job, calls.command())
    rate = fabric.topology.hosts[job.members[0]].rate_mbps
    for jobs in time_ranks(ranks, calls, rate):
        yield jobs[0]


def time_ranks(ranks: Sequence[Child], calls: Calls, rate_mbps: int | None = None) -> Iterator[list[Line]]:
    """Yield a line of each job for each size, as it comes from processes that run :meth:`Calls.command` (or print such lines),
    until they have ended."""
    for size in calls.sizes:
        timed = [[Timing(**each) for each in said] for said in said_by(ranks)]  # by rank, then by place and job
        jobs = len(timed[0]) // calls.places
        yield [_line(calls, size, [each[job::jobs] for each in timed], rate_mbps) for job in range(jobs)]
    for rank in ranks:
        rank.wait(_LEAVES)


def _line(calls: Calls, size: int, timed: Sequence[Sequence[Timing]], rate_mbps: int | None) -> Line:
    """``timed``: by rank and place."""
    places = list(zip(*timed, strict=True))
    seconds, late = [], []
    for ranks in places:
        seconds.append(statistics.median(np.array([each.seconds for each in ranks]).max(axis=0)))
        begins = np.array([each.begins for each in ranks])
        late.append(tuple(float(each) for each in np.median(begins - begins.min(axis=0), axis=1)))
    return Line(
        calls.true_size(size),
        calls.count(size),
        calls.workers,
        tuple(map(float, seconds)),
        tuple(sum(each.wrong for each in ranks) for ranks in places),
        tuple(round(max(each.sent for each in ranks) / calls.iterations) for ranks in places),
        calls.operation,
        tuple(tuple(tuple(each.seconds) for each in ranks) for ranks in places),
        tuple(late),
        tuple(
            round(max(max(each.frames_out, each.frames_in) for each in ranks) / calls.iterations) for ranks in places
        ),
        rate_mbps,
        tuple(round(max(each.stored for each in ranks) / calls.iterations) for ranks in places),
    )


_COLUMNS = (10, 10, 9, 9, 7, 7, 6, 9, 9, 7, 7, 6)


def collective_table(lines: Sequence[Line]) -> str:
    """The lines as nccl-tests prints them, with the 99th percentile beside the median."""
    places = f"{'':{sum(_COLUMNS[:2]) + 1}} {'out-of-place':^42} {'in-place':^42}"
    place = ("time", "p99", "algbw", "busbw", "#wrong")
    units = ("(us)", "(us)", "(GB/s)", "(GB/s)", "")
    rows: list[Sequence[str]] = [("size", "count", *place, *place), ("(B)", "(elements)", *units, *units)]
    for line in lines:
        cells = [str(line.size), str(line.count)]
        for which in (0, 1):
            cells += [f"{line.seconds[which] * 1e6:.0f}", f"{line.percentile(which, 99) * 1e6:.0f}"]
            cells += [f"{line.algbw(which):.5f}", f"{line.busbw(which):.5f}", str(line.wrong[which])]
        rows.append(cells)
    table = [" ".join(f"{cell:>{width}}" for cell, width in zip(row, _COLUMNS, strict=True)) for row in rows]
    return "\n".join([places, *table])


def straggler_note(lines: Sequence[Line]) -> str:
    """Which rank begins last most often, and how late."""
    found = [line.straggler(place) for line in lines for place in range(len(line.seconds))]
    ranks = [rank for rank, _ in found]
    rank = statistics.mode(ranks)
    late = max(seconds for each, seconds in found if each == rank)
    return (
        f"rank {rank} began last at {ranks.count(rank)} of {len(ranks)} sizes and places, by up to {late * 1e6:.0f} us"
    )
