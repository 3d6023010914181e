"""Collectives timed end to end, with the columns of nccl-tests: what each rank gives and must get, the calls, and their figures.
``algbw`` is bytes of the array per second; ``busbw`` is algbw times nccl-tests' factor of the operation, as 2 (n - 1) / n of an
allreduce, so that figures can be compared with a ring's; with a switch, each link carries only algbw in each direction.
``#wrong`` counts elements of the results that are not what they should be.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

import numpy as np
from netsum.communicator import Communicator
from netsum.descriptor import SWITCH
from netsum.numeric.fixed_point import Array
from netsum_controller.config.job_spec import JobSpec
from netsum_testbed.fabric import Fabric
from netsum_testbed.processes import Child, said_by

# The collectives that are timed: what each rank gives and must get, and how nccl-tests counts their bytes.
#
# ``size`` counts as in nccl-tests: the whole array for allreduce, broadcast, reduce and sendrecv, and the parts of all
# ranks together for the others. Inputs are small whole numbers, so that every result is known exactly.


REDUCTIONS: Final[Mapping[str, str]] = {"sum": "sum", "min": "min", "max": "max", "avg": "mean"}
"""nccl-tests' names of operations, and ours."""
_COMBINED: Final = {"sum": np.add, "min": np.minimum, "max": np.maximum, "avg": np.add}
_PERIOD: Final = 97
_NOTHING: Final = 101
"""Stands in an array before the result is written to it."""
GivenAndGot = tuple[Array, Array | None]


@dataclass(frozen=True)
class Place:
    """Roles in a call: this ``rank`` of ``ranks``, the operation's root, and the reduction (nccl-tests' name)."""

    rank: int
    ranks: int
    root: int = 0
    redop: str = "sum"


@dataclass(frozen=True)
class Operation:
    """A collective. ``arrays``: what a rank gives, and what it must get. ``parts``: the size is that of all ranks' parts.
    ``factor``: busbw / algbw, by the number of ranks."""

    arrays: Callable[[Place, int, np.dtype[Any]], GivenAndGot]
    factor: Callable[[int], float]
    reduces: bool = False
    rooted: bool = False
    parts: bool = False

    def count(self, elements: int, ranks: int) -> int:
        """The elements of a rank's part, or of the array."""
        return elements // ranks if self.parts else elements

    def elements(self, count: int, ranks: int) -> int:
        """The inverse of :meth:`count`."""
        return count * ranks if self.parts else count


def _within(both: Array, size: int, rank: int) -> Array:
    return both if size == len(both) else both[rank * size : (rank + 1) * size]


def _values(rank: int, count: int, dtype: np.dtype[Any]) -> Array:
    return ((np.arange(count) + rank) % _PERIOD).astype(dtype)


def _reduced(place: Place, count: int, dtype: np.dtype[Any]) -> Array:
    combine = _COMBINED[place.redop]
    total = _values(0, count, np.dtype(np.int64))
    for rank in range(1, place.ranks):
        combine(total, _values(rank, count, total.dtype), out=total)
    return (total / place.ranks if place.redop == "avg" else total).astype(dtype)


def _allreduce(place: Place, count: int, dtype: np.dtype[Any]) -> GivenAndGot:
    return _values(place.rank, count, dtype), _reduced(place, count, dtype)


def _reduce(place: Place, count: int, dtype: np.dtype[Any]) -> GivenAndGot:
    given, reduced = _allreduce(place, count, dtype)
    return given, reduced if place.rank == place.root else None


def _reduce_scatter(place: Place, count: int, dtype: np.dtype[Any]) -> GivenAndGot:
    whole = count * place.ranks
    return _values(place.rank, whole, dtype), _within(_reduced(place, whole, dtype), count, place.rank)


def _broadcast(place: Place, count: int, dtype: np.dtype[Any]) -> GivenAndGot:
    return _values(place.rank, count, dtype), _values(place.root, count, dtype)


def _all_gather(place: Place, count: int, dtype: np.dtype[Any]) -> GivenAndGot:
    all_values = [_values(rank, count, dtype) for rank in range(place.ranks)]
    return all_values[place.rank], np.concatenate(all_values)


def _gather(place: Place, count: int, dtype: np.dtype[Any]) -> GivenAndGot:
    given, gathered = _all_gather(place, count, dtype)
    return given, gathered if place.rank == place.root else None


def _scatter(place: Place, count: int, dtype: np.dtype[Any]) -> GivenAndGot:
    rows = _values(place.root, count * place.ranks, dtype)
    mine = _within(rows, count, place.rank)
    return rows if place.rank == place.root else np.zeros_like(mine), mine


def _alltoall(place: Place, count: int, dtype: np.dtype[Any]) -> GivenAndGot:
    all_values = [_values(rank, count * place.ranks, dtype) for rank in range(place.ranks)]
    return all_values[place.rank], np.concatenate([_within(rows, count, place.rank) for rows in all_values])


def _sendrecv(place: Place, count: int, dtype: np.dtype[Any]) -> GivenAndGot:
    before = (place.rank - 1) % place.ranks
    return _values(place.rank, count, dtype), _values(before, count, dtype)


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


def _one(_ranks: int) -> float:
    return 1.0


OPERATIONS: Final[Mapping[str, Operation]] = {
    "allreduce": Operation(_allreduce, lambda ranks: 2 * _others(ranks), reduces=True),
    "all_gather": Operation(_all_gather, _others, parts=True),
    "reduce_scatter": Operation(_reduce_scatter, _others, reduces=True, parts=True),
    "broadcast": Operation(_broadcast, _one, rooted=True),
    "reduce": Operation(_reduce, _one, reduces=True, rooted=True),
    "alltoall": Operation(_alltoall, _others, parts=True),
    "gather": Operation(_gather, _others, rooted=True, parts=True),
    "scatter": Operation(_scatter, _others, rooted=True, parts=True),
    "sendrecv": Operation(_sendrecv, _one),
}
"""By the name of the command, with the factors of nccl-tests (doc/PERFORMANCE.md and src/*.cu there)."""


class Arrays:
    """Arrays of a call: what a rank gives (``source``) and where it gets the result (``out``, None if it gets none), in place or
    not."""

    def __init__(self, name: str, place: Place, count: int, dtype: str, *, in_place: bool) -> None:
        """``count`` as :meth:`Operation.count` has it."""
        self._given, self._expected = OPERATIONS[name].arrays(place, count, np.dtype(dtype))
        given, expected = self._given, self._expected
        self.source = given.copy()
        self.out = None if expected is None else np.empty_like(expected)
        self._in_place = in_place and self.out is not None
        if self._in_place and expected is not None:
            # As nccl-tests does: the smaller one lies in the larger one, where this rank's part is.
            both = np.empty(max(len(given), len(expected)), given.dtype)
            self.source, self.out = (_within(both, len(each), place.rank) for each in (given, expected))

    def prepare(self) -> None:
        """Reset the arrays before each call, so that no earlier result passes for a new one."""
        if self.out is not None:
            self.out[...] = _NOTHING
        if self._in_place:
            self.source[...] = self._given

    def wrong(self) -> int:
        """Elements of the result that are not what they should be."""
        return 0 if self.out is None else int(np.count_nonzero(self.out != self._expected))


def make_call(name: str, place: Place, arrays: Arrays, options: Mapping[str, Any]) -> Callable[[Communicator], object]:
    """One call of an operation; ``options`` are further arguments of an allreduce."""
    x, out, root, op = arrays.source, arrays.out, place.root, REDUCTIONS[place.redop]
    # Each rank sends to the next: the communicator has no send of its own, and this is what goes over the wires for one.
    to_next = np.roll(np.eye(place.ranks, dtype=np.int64), 1, axis=1) * len(x)
    calls: Mapping[str, Callable[[Communicator], object]] = {
        "allreduce": lambda comm: comm.allreduce(x, op, out, **options),
        "all_gather": lambda comm: comm.all_gather(x, out),
        "reduce_scatter": lambda comm: comm.reduce_scatter(x, op, out),
        "broadcast": lambda comm: comm.broadcast(x, root, out),
        "reduce": lambda comm: comm.reduce(x, root, op, out),
        "alltoall": lambda comm: comm.all_to_all(x, out),
        "gather": lambda comm: comm.gather(x, root, out),
        "scatter": lambda comm: comm.scatter(x, root, out),
        "sendrecv": lambda comm: comm.all_to_all(x, out, counts=to_next),
    }
    return calls[name]


# What a bench of collectives asks of each rank, and what a rank measures.


SEED: Final = 1

Bytes = tuple[int, int, int, int]
"""Of payload sent, of frames sent and received, and stored in memory."""


@dataclass(frozen=True)
class Calls:
    """Options of a timing: arrays of ``sizes`` bytes, ``iterations`` calls each after ``warmup`` untimed ones, out of place and,
    if ``places`` is 2, in place.

    Attributes:
        check: how many of the calls are checked, the last ones; None: all of them.
        scale: of an allreduce, or ``exact``.
        redop: nccl-tests' name of the reduction.
        loss: the share of packets that each host loses in each direction, on purpose; None: hosts have no part that loses any.
        aligned: whether all ranks wait for each other before each call. If not, who ends a call early begins the next one early.
    """

    sizes: tuple[int, ...]
    dtype: str
    workers: int
    iterations: int
    places: int = 2
    scale: str = "agreed"
    operation: str = "allreduce"
    redop: str = "sum"
    root: int = 0
    warmup: int = 1
    check: int | None = None
    loss: float | None = None
    seed: int = SEED
    aligned: bool = False

    @property
    def checked(self) -> int:
        return self.warmup + self.iterations if self.check is None else self.check

    def count(self, size: int) -> int:
        """Elements of a rank's part, or of the array."""
        return OPERATIONS[self.operation].count(size // np.dtype(self.dtype).itemsize, self.workers)

    def true_size(self, size: int) -> int:
        """Bytes of whole elements and equal parts, at most ``size``."""
        elements = OPERATIONS[self.operation].elements(self.count(size), self.workers)
        return elements * np.dtype(self.dtype).itemsize

    @property
    def options(self) -> dict[str, Any]:
        """Further arguments of an allreduce."""
        return {"exact": True} if self.scale == "exact" else {"scale": self.scale}

    def command(self, module: str = "netsum_bench.rank") -> list[str]:
        """The command line of one rank."""
        return [sys.executable, "-m", module, json.dumps(asdict(self))]

    @classmethod
    def from_json(cls, text: str) -> Self:
        given: dict[str, Any] = json.loads(text)
        return cls(**{**given, "sizes": tuple(given["sizes"])})


@dataclass
class Timing:
    """One rank's calls of one size in one place: when each began (seconds of the machine's monotonic clock, which all processes
    share), how long it took, wrong elements, and all bytes: of payload ``sent``, of frames each way, and ``stored``."""

    begins: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    wrong: int = 0
    sent: int = 0
    frames_out: int = 0
    frames_in: int = 0
    stored: int = 0

    def add(self, began: float, ended: float, before: Bytes, after: Bytes) -> None:
        """Count a call; ``before`` and ``after`` are the bytes so far."""
        self.begins.append(began)
        self.seconds.append(ended - began)
        sent, out, into, stored = (now - then for then, now in zip(before, after, strict=True))
        self.sent += sent
        self.frames_out += out
        self.frames_in += into
        self.stored += stored


# Times a collective end to end, with the columns of nccl-tests.
#
# ``algbw`` is bytes of the array per second; ``busbw`` is algbw times nccl-tests' factor of the operation, as 2 (n - 1)
# / n of an allreduce, so that figures can be compared with a ring's; with a switch, each link carries only algbw in
# each direction. ``#wrong`` counts elements of the results that are not what they should be
# (:mod:`netsum_bench.collectives`).


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
        """Seconds within which ``percent`` of the calls ended (by nearest rank, as nccl-tests has it)."""
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
    job = fabric.create_job(JobSpec(name="bench", members=tuple(fabric.topology.hosts)[: calls.workers], algorithm=SWITCH))
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
        tuple(round(max(max(each.frames_out, each.frames_in) for each in ranks) / calls.iterations) for ranks in places),
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
    return f"rank {rank} began last at {ranks.count(rank)} of {len(ranks)} sizes and places, by up to {late * 1e6:.0f} us"
