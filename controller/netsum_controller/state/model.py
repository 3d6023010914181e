# SPDX-License-Identifier: MIT
"""A job: what it was given, its current epoch, and who holds which rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from types import MappingProxyType
from typing import NamedTuple

from netsum.descriptor import AUTO, SWITCH
from netsum.transports.udp import group_of
from netsum.wire.schema import CHUNK_BYTES

from netsum_controller.errors import UnknownRankError

SERIAL = 1 << 32
"""Block ids are serial numbers modulo this."""

ROOM = 1 << 28
"""Block ids reserved from an epoch's first on: 1 TiB in 4 KiB blocks. An epoch of unknown length counts as this long."""

DEFAULT_TENANT = "default"
"""The tenant of a job that names none."""


@dataclass(frozen=True)
class IdRange:
    """Block ids ``first .. first + size - 1``, modulo 2^32."""

    first: int
    size: int

    def overlaps(self, other: IdRange) -> bool:
        return (other.first - self.first) % SERIAL < self.size or (self.first - other.first) % SERIAL < other.size


class JobState(StrEnum):
    """The stage of a job's life. Commands leave jobs ``READY``; the other states were left by a command that was killed. The
    next one on that switch removes what is half made or half deleted, and the next member to join a job whose epoch was
    ``CHANGING`` gets a new one."""

    INSTALLING = "installing"
    READY = "ready"
    CHANGING = "changing"
    DELETING = "deleting"


class Late(StrEnum):
    """The treatment of late members: the others ``WAIT``, or continue with a partial result (``DEGRADE``)."""

    WAIT = "wait"
    DEGRADE = "degrade"


class Rejoin(StrEnum):
    """The progress of an epoch that resumes another. ``WAITING``: its members are rejoining, and its first block is not known
    yet; ``DONE``: all have rejoined; ``NONE``: it resumes nothing."""

    NONE = "none"
    WAITING = "waiting"
    DONE = "done"


@dataclass(frozen=True)
class Shape:
    """The stored part of an epoch's trees: the root of each stripe, each root's tree (child switch -> parent), and each rank's
    switch. Where ranks of a host are one source, ``leaders`` has the lowest of them for each rank; (): each is its own."""

    roots: tuple[str, ...] = ()
    parents: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    homes: tuple[str, ...] = ()
    leaders: tuple[int, ...] = ()

    def leader(self, rank: int) -> int:
        """The lowest rank of the rank's source, whether or not it was evicted."""
        return self.leaders[rank] if self.leaders else rank

    @property
    def switches(self) -> frozenset[str]:
        return frozenset({*self.roots, *(name for tree in self.parents.values() for name in tree)})

    @property
    def striped(self) -> bool:
        """True if there are several roots and no tree: each rank sends a block to its root itself."""
        return len(set(self.roots)) > 1 and not any(self.parents.values())

    def reached(self, home: str) -> tuple[str, ...]:
        """The switches to which ranks whose switch is ``home`` send their contributions."""
        return tuple(dict.fromkeys(self.roots)) if self.striped and home in self.roots else (home,)

    def root_of(self, block: int) -> str:
        """The switch that makes the result of a block."""
        return self.roots[block % len(self.roots)]

    @property
    def ways(self) -> tuple[int, ...]:
        """The root of each stripe, as a number from 0; () if there is only one root."""
        roots = list(dict.fromkeys(self.roots))
        return tuple(map(roots.index, self.roots)) if len(roots) > 1 else ()

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """(child switch, parent switch) of every edge, each once."""
        return tuple(dict.fromkeys(edge for tree in self.parents.values() for edge in tree.items()))


class Waiting(NamedTuple):
    """The report of a member of an ``epoch``: it waits for the result of a ``block``, which it has sent ``sent`` times,
    in packets of ``octets`` bytes (of UDP's payload). ``since`` and ``at`` are when it first and last said so. In this epoch it
    has ``received`` this number of packets from its switches."""

    epoch: int
    block: int
    sent: int
    octets: int
    since: float
    at: float
    received: int = 0


@dataclass(frozen=True)
class Seat:
    """One rank's place in one epoch. ``instance`` is the random name of the process that took it, ``needs`` the first block
    whose result it lacked when it rejoined, and ``peer`` the HOST:PORT at which the other members reach it. Ranks of a host with
    the same ``host_id`` can share memory; with "" it can with none, with None it has not said. A rank with ``multicast``
    has joined the job's IP multicast group. ``waiting`` is its last report."""

    rank: int
    src_id: int
    host: str
    udp_port: int
    instance: str | None = None
    joined: bool = False
    left: bool = False
    evicted: bool = False
    needs: int | None = None
    peer: str | None = None
    host_id: str | None = None
    multicast: bool = False
    waiting: Waiting | None = None

    @property
    def active(self) -> bool:
        """Joined, has not left and was not evicted."""
        return self.joined and not self.left and not self.evicted


@dataclass(frozen=True)
class Edge:
    """An edge of a job's trees in one epoch: ``child`` sends to ``parent`` from ``udp_port``, and gets its results there."""

    child: str
    parent: str
    udp_port: int


@dataclass(frozen=True)
class Epoch:
    """One epoch of a job: its ``number`` is never reused, and its ``first_block_id`` lies outside every earlier range of ids
    unless it ``resumes`` the epoch of that number. Its trees have a ``shape``, and ``edges`` if they span several switches.
    ``peer_key`` (32 hex digits) authenticates what members send each other. From ``key_seed`` (32 hex digits), which only the
    controller has, follow the keys by which switches know members at shared ports, and the address and key of the IP multicast
    group of those members."""

    number: int
    first_block_id: int
    seats: tuple[Seat, ...]
    resumes: int | None = None
    rejoin: Rejoin = Rejoin.NONE
    edges: tuple[Edge, ...] = ()
    shape: Shape = field(default_factory=Shape)
    peer_key: str = field(default="", repr=False)
    key_seed: str = field(default="", repr=False)

    def key_of(self, rank: int) -> int:
        """The 64 bits by which a switch knows a rank at a shared port; never 0."""
        digest = blake2b(rank.to_bytes(2), key=bytes.fromhex(self.key_seed), digest_size=8).digest()
        return int.from_bytes(digest) or 1

    @property
    def group(self) -> tuple[str, int]:
        """IPv4 address and UDP port of the IP multicast group of those that were not evicted."""
        return group_of(self._group_digest("address"))

    @property
    def group_key(self) -> int:
        """The 64 bits that prove to its members that a packet to the group is a switch's; never 0."""
        return int.from_bytes(self._group_digest("key")) or 1

    def _group_digest(self, purpose: str) -> bytes:
        # Other bits after each eviction, since the evicted know those of before.
        text = " ".join(map(str, ("group", purpose, *self.evicted)))
        return blake2b(text.encode(), key=bytes.fromhex(self.key_seed), digest_size=8).digest()

    @property
    def members(self) -> tuple[Seat, ...]:
        """The seats of those that were not evicted."""
        return tuple(seat for seat in self.seats if not seat.evicted)

    @property
    def evicted(self) -> tuple[int, ...]:
        return tuple(seat.rank for seat in self.seats if seat.evicted)

    def port_between(self, child: str, parent: str) -> int | None:
        """UDP port of the edge between two switches, or None if there is no such edge."""
        return next((edge.udp_port for edge in self.edges if (edge.child, edge.parent) == (child, parent)), None)


class Claim(NamedTuple):
    """The numbers that an epoch has claimed on ``switches``: its own, and another for each of its ``udp_ports`` but the first,
    so that the ports follow from the numbers. Of each switch it says up to which number all epochs there are this state
    file's (0: not known). ``others`` says that numbers are taken there that the state file does not know."""

    number: int
    next_number: int
    udp_ports: tuple[int, ...]
    switches: Mapping[str, int] = MappingProxyType({})
    others: bool = False


@dataclass(frozen=True)
class Part:
    """The part of a job on one switch: its slots begin at ``slot_base``."""

    switch: str
    slot_base: int


@dataclass(frozen=True)
class Job:
    """A job. It has the same id and number of ``slots`` on each of the switches in ``parts``: those of its trees, beginning
    with the first stripe's root, and former ones, which are kept for when they are back. A job without parts has no id (0): its
    members combine themselves. ``token`` is known only to the call that created it; the state file keeps its SHA-256."""

    name: str
    job_id: int
    parts: tuple[Part, ...]
    slots: int
    window: int
    chunks: int
    members: tuple[str, ...]
    epoch: Epoch
    state: JobState
    token_sha256: str = field(repr=False)
    late: Late = Late.WAIT
    block_exp_us: int = 0
    """Age at which a block may be closed, microseconds; 0 in a job that waits."""
    quorum: int = 0
    """Workers that must be in such a block, as the job was created; see :attr:`quorum_now`."""
    tenant: str = DEFAULT_TENANT
    roots: Mapping[str, int] = field(default_factory=dict)
    """Weights of the roots that were asked for; empty if the controller chooses."""
    priority: int = 0
    """Its class, 0 to 7: while a job of a higher class is busy on a switch, those of lower classes give way."""
    algorithm: str = AUTO
    """The combiner that the job shall have: "switch", the members by the algorithm of this name, or "auto" (a switch if
    possible)."""
    share_memory: bool = False
    """True if ranks of one host sum in its memory first, and are one source at the switch."""
    multicast: bool = False
    """True if results leave once, by IP multicast, for members that share a switch's port and have joined :attr:`group`."""
    advice: tuple[tuple[int, float], ...] = ()
    """The calls that may be faster without the switch: see :class:`netsum.descriptor.Descriptor`."""
    rates: str = ""
    """The rates of cables that the advice follows from, and who says so, in words; "" if they played no part."""
    network: str = field(default="", repr=False)
    """JSON of the network for which the weights of its roots were planned; "" if they were not."""
    token: str | None = field(default=None, repr=False)
    created: bool = False
    """True if this call created it; False if it already existed."""
    why_hosts: str = ""
    """The reason why no switch could serve a job that this call created."""

    @property
    def exists(self) -> bool:
        """True if it is visible: not half created or half deleted."""
        return self.state in (JobState.READY, JobState.CHANGING)

    @property
    def group(self) -> str:
        """HOST:PORT of the IP multicast group of results; "" if there is none."""
        return "{}:{}".format(*self.epoch.group) if self.multicast else ""

    @property
    def by_switch(self) -> bool:
        return bool(self.parts)

    @property
    def combines(self) -> str:
        """The combiner now: "switch", or by which algorithm the members do."""
        return SWITCH if self.parts else self.algorithm

    @property
    def switch(self) -> str:
        """The switch that makes its first block's result; for a job on one switch, that one."""
        return self.parts[0].switch if self.parts else ""

    @property
    def slot_base(self) -> int:
        """The number of the first of its slots on :attr:`switch`."""
        return self.parts[0].slot_base if self.parts else 0

    @property
    def switches(self) -> tuple[str, ...]:
        """The switches on which it has parts."""
        return tuple(part.switch for part in self.parts)

    def part(self, switch: str) -> Part | None:
        return next((part for part in self.parts if part.switch == switch), None)

    def seat(self, rank: int) -> Seat:
        """A rank's seat in the current epoch. Raises :class:`UnknownRankError`."""
        if not 0 <= rank < self.workers:
            raise UnknownRankError(self.name, rank, self.workers)
        return self.epoch.seats[rank]

    @property
    def workers(self) -> int:
        """Number of members, evicted ones too: ranks are 0 .. workers - 1."""
        return len(self.members)

    @property
    def reports(self) -> dict[int, Waiting]:
        """What members have told in this epoch that they wait for, by rank."""
        return {seat.rank: seat.waiting for seat in self.epoch.members if seat.waiting is not None}

    @property
    def leaders(self) -> tuple[int, ...]:
        """For each rank, the lowest with which it can share memory, as far as that is known; () if none shall."""
        if not self.share_memory:
            return ()
        keys = [(seat.host, seat.host_id if seat.host_id != "" else seat.rank) for seat in self.epoch.seats]
        return tuple(map(keys.index, keys))

    def local_ranks(self, rank: int) -> tuple[int, ...]:
        """The ranks that are one source with this one, ascending, itself among them; without those that were evicted."""
        leader = self.epoch.shape.leader
        return tuple(seat.rank for seat in self.epoch.members if leader(seat.rank) == leader(rank))

    @property
    def block_exp_ms(self) -> float:
        """Age at which a block may be closed, milliseconds."""
        return self.block_exp_us / 1000

    @property
    def quorum_now(self) -> int:
        """The quorum, at most the number of remaining members."""
        return min(self.quorum, len(self.epoch.members))

    @property
    def aging(self) -> bool:
        """True if blocks age out: in a degrade job, once every member has joined the epoch."""
        return self.late is Late.DEGRADE and all(seat.joined for seat in self.epoch.members)

    @property
    def block_bytes(self) -> int:
        """Largest payload of a block."""
        return self.chunks * CHUNK_BYTES
