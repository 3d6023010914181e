# SPDX-License-Identifier: MIT
"""Times collectives end to end: what a bench has each rank do, what a rank measures, and the figures of all ranks together.

``algbw`` is bytes of the array per second; ``busbw`` is algbw times nccl-tests' factor of the operation, as 2 (n - 1) / n of an
allreduce, so that figures can be compared with a ring's; with a switch, each link carries only algbw in each direction.
``#wrong`` counts elements of the results that are not what they should be.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple, Self

import numpy as np
from netsum.cli.tables import FittingTable, make_table
from netsum.descriptor import SWITCH
from netsum.wire.schema import CHUNK_BYTES, MAX_CHUNKS
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.state.model import Job
from netsum_testbed.fabric import Fabric
from netsum_testbed.links import FRAME_BYTES
from netsum_testbed.processes import said_by

from netsum_bench.collectives import OPERATIONS

GLOO: Final = "gloo"
GLOO_BRIDGE: Final = "gloo-bridge"
"""Gloo on the hosts' second links, which a Linux bridge joins."""
GLOOS: Final = (GLOO, GLOO_BRIDGE)
BRIDGE: Final = "NETSUM_BENCH_BRIDGE"
"""The environment variable with the second link of a rank's host."""
PARTIES: Final = "NETSUM_BENCH_PARTIES"
"""The environment variable by which a rank is told who takes turns with whom (:mod:`netsum_bench.rank`)."""
_PAYLOAD_SHARE: Final = CHUNK_BYTES * MAX_CHUNKS / FRAME_BYTES
"""The payload's share of the bytes on a link, in full packets."""
PATIENCE: Final = 600.0
"""Seconds that a call of one of several parties may take: links are slow on purpose."""
_LEAVES: Final = 120.0
"""Seconds that a rank may take to leave its jobs, on a machine that is busy."""


@dataclass(frozen=True)
class Calls:
    """Options of a timing: arrays of ``sizes`` bytes, ``iterations`` calls each after ``warmup`` untimed ones, out of place or in
    place, or both, one after the other.

    Attributes:
        check: how many of the calls are checked, the last ones; None: all of them.
        scale: of an allreduce, or ``exact``.
        redop: nccl-tests' name of the reduction.
        loss: the share of packets that each host loses in each direction, on purpose; None: hosts have no part that loses any.
        aligned: whether all ranks wait for each other before each call. If not, who ends a call early begins the next one early.
        at_interfaces: whether bytes are those that the host's interfaces have counted, whichever program sent them.
    """

    sizes: tuple[int, ...]
    dtype: str
    workers: int
    iterations: int
    in_place: tuple[bool, ...] = (False, True)
    scale: str = "agreed"
    operation: str = "allreduce"
    redop: str = "sum"
    root: int = 0
    warmup: int = 1
    check: int | None = None
    loss: float | None = None
    aligned: bool = False
    at_interfaces: bool = False

    @property
    def checked(self) -> int:
        return self.warmup + self.iterations if self.check is None else self.check

    def count(self, size: int) -> int:
        """Elements of a rank's part, or of the array."""
        return size // np.dtype(self.dtype).itemsize // self._parts

    def true_size(self, size: int) -> int:
        """Bytes of whole elements and equal parts, at most ``size``."""
        return self.count(size) * self._parts * np.dtype(self.dtype).itemsize

    @property
    def _parts(self) -> int:
        return self.workers if OPERATIONS[self.operation].parts else 1

    def command(self) -> list[str]:
        """The command line of one rank."""
        return [sys.executable, "-m", "netsum_bench.rank", json.dumps(asdict(self))]

    @classmethod
    def from_json(cls, text: str) -> Self:
        given: dict[str, Any] = json.loads(text)
        return cls(**{**given, "sizes": tuple(given["sizes"]), "in_place": tuple(given["in_place"])})


class Counts(NamedTuple):
    """A rank's counts so far: bytes of payload ``sent``, of frames each way, and ``stored`` in memory; blocks."""

    sent: int = 0
    frames_out: int = 0
    frames_in: int = 0
    stored: int = 0
    blocks: int = 0

    def plus(self, after: Counts, before: Counts) -> Counts:
        """These, and what was counted between two moments."""
        return Counts(*(one + end - begin for one, end, begin in zip(self, after, before, strict=True)))


@dataclass
class Timing:
    """One rank's calls of one size in one place: when each began (seconds of the machine's monotonic clock, which all processes
    share), how long it took, and the processor time of the rank's process; wrong elements, and counts of all calls."""

    begins: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    wrong: int = 0
    counts: Counts = field(default_factory=Counts)

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Self:
        return cls(**{**given, "counts": Counts(*given["counts"])})


@dataclass(frozen=True)
class Measured:
    """The figures of one size, in one place: of all ranks' ``timings``. A call ends with the slowest rank.

    Attributes:
        size: bytes, of whole elements.
        rate_mbps: what a host may send, if it is limited.
    """

    calls: Calls
    size: int
    timings: Sequence[Timing]
    rate_mbps: int | None = None

    @property
    def slowest(self) -> list[float]:
        """Seconds of each call."""
        return [max(each) for each in zip(*(timing.seconds for timing in self.timings), strict=True)]

    @property
    def seconds(self) -> float:
        """Of a call: the median."""
        return statistics.median(self.slowest)

    def percentile(self, percent: float) -> float:
        """Seconds within which ``percent`` of the calls ended (by nearest rank, as nccl-tests has it)."""
        return percentile(self.slowest, percent)

    @property
    def algbw(self) -> float:
        """GB/s."""
        return self.size / self.seconds / 1e9

    @property
    def busbw(self) -> float:
        """GB/s."""
        return self.algbw * OPERATIONS[self.calls.operation].factor(self.calls.workers)

    @property
    def wrong(self) -> int:
        """Elements."""
        return sum(timing.wrong for timing in self.timings)

    @property
    def late(self) -> list[float]:
        """Seconds by which each rank began after the first: the median."""
        begins = np.array([timing.begins for timing in self.timings])
        return [float(each) for each in np.median(begins - begins.min(axis=0), axis=1)]

    @property
    def straggler(self) -> tuple[int, float]:
        """The rank that is the latest to begin, and by how many seconds after the first."""
        late = self.late
        rank = max(range(len(late)), key=late.__getitem__)
        return rank, late[rank]

    def most(self, *names: str) -> int:
        """A call's count of the rank, and of that of ``names``, which has most."""
        most: int = max(getattr(timing.counts, name) for timing in self.timings for name in names)
        return round(most / len(self.timings[0].seconds))

    @property
    def link_bytes(self) -> int:
        """Bytes of frames per call on the host's link, and in the direction, that carries most."""
        return self.most("frames_out", "frames_in")

    @property
    def link_share(self) -> float | None:
        """Bytes on the busiest link, as a share of what it can carry in that time."""
        if self.rate_mbps is None:
            return None
        return self.link_bytes / (self.seconds * self.rate_mbps * 1e6 / 8)

    @property
    def payload_share(self) -> float | None:
        """algbw, as a share of the payload that full packets carry on such a link."""
        if self.rate_mbps is None:
            return None
        return self.algbw * 8000 / (self.rate_mbps * _PAYLOAD_SHARE)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value at this percentile, by nearest rank."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


_COLUMNS: Final = (
    *(">time\n(us)", ">p99\n(us)", ">algbw\n(GB/s)", ">busbw\n(GB/s)", ">link\n(arrays)", ">sent\n(arrays)"),
    *(">stored\n(arrays)", ">of the\nlink", ">of its\npayload", ">#wrong"),
)


def results_table(title: str, what: str, rows: Iterable[tuple[str, Measured]]) -> FittingTable:
    """The table of every bench of collectives: nccl-tests' columns, p99, and what a call moves. A row for each measurement with
    its label, whose column is named ``what``."""

    def cells(label: str, each: Measured) -> tuple[str, ...]:
        moved = each.link_bytes, each.most("sent"), each.most("stored")
        shares = each.link_share, each.payload_share
        return (
            *map(str, (each.calls.workers, each.size, each.calls.count(each.size))),
            label,
            *(f"{seconds * 1e6:.0f}" for seconds in (each.seconds, each.percentile(99))),
            *(f"{bandwidth:.5f}" for bandwidth in (each.algbw, each.busbw)),
            *(f"{nbytes / max(each.size, 1):.2f}" for nbytes in moved),
            *("" if share is None else f"{share:.1%}" for share in shares),
            str(each.wrong),
        )

    columns = (">workers", ">size\n(B)", ">count\n(elements)", what, *_COLUMNS)
    return make_table(title, columns, (cells(label, each) for label, each in rows))


Places = tuple[Measured, ...]
"""One size in the places of :attr:`Calls.in_place`."""


def time_collective(fabric: Fabric, calls: Calls, hosts: Sequence[str] | None = None) -> Iterator[Places]:
    """Time the calls by the switch; yield the figures of each size as they come."""
    for by_name in time_parties(fabric, calls, (SWITCH,), hosts=hosts):
        yield by_name[SWITCH]


def time_parties(
    fabric: Fabric,
    calls: Calls,
    algorithms: Sequence[str],
    beside: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    hosts: Sequence[str] | None = None,
) -> Iterator[dict[str, Places]]:
    """Time the calls by all ``algorithms`` in turn, call by call, each in a job of its own, every rank a process on its own host;
    yield the figures of each size by name.

    Args:
        beside: what each rank needs for its part in an algorithm that is not a job's.
        hosts: of the ranks; the first ones, if none are given. Where several algorithms take turns, they need an IP stack.
    """
    beside, members = beside or {}, tuple(hosts or fabric.topology.hosts)[: calls.workers]
    # A job's name has letters, digits and dashes.
    jobs = {
        name: fabric.create_job(JobSpec(name=re.sub("[^a-z0-9]", "-", name), members=members, algorithm=name))
        for name in algorithms
        if name not in beside
    }
    ranks = []
    for rank, host in enumerate(members):
        parties = {name: beside[name][rank] if name in beside else _membership(fabric, jobs[name], rank) for name in algorithms}
        environment = {PARTIES: json.dumps(parties)}
        ranks.append(fabric.spawn(host, calls.command(), name=f"rank{rank}", environment=environment, piped=True))
    rate = fabric.topology.hosts[members[0]].rate_mbps
    for size in calls.sizes:
        said = said_by(ranks)  # by rank, place and party
        yield {
            name: tuple(
                Measured(calls, calls.true_size(size), [Timing.from_json(rank[place][party]) for rank in said], rate)
                for place in range(len(calls.in_place))
            )
            for party, name in enumerate(algorithms)
        }
    for each in ranks:
        each.wait(_LEAVES)
    for job in jobs.values():
        fabric.delete_job(job.name)


def _membership(fabric: Fabric, job: Job, rank: int) -> dict[str, Any]:
    """Arguments of :func:`netsum.join`."""
    environment = fabric.environment(job, rank)
    if file := environment.get("NETSUM_DESCRIPTOR"):
        return {"descriptor": file, "timeout": PATIENCE, "call_timeout": PATIENCE}
    given = {name: environment.get(f"NETSUM_{name.upper()}") for name in ("job", "token", "controller", "peer")}
    return {**given, "rank": rank, "timeout": PATIENCE, "call_timeout": PATIENCE}
