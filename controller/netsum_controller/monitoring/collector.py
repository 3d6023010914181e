# SPDX-License-Identifier: MIT
"""Observes what switches and jobs are doing, for metrics and `netsum job top`, from counters and a sample of block records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from netsum.wire.schema import BlockState

from netsum_controller.context import ControllerContext
from netsum_controller.entries import AnyMemberEntry, BlockRecord
from netsum_controller.entries.aggregation import PortCounts
from netsum_controller.entries.memory import RegionCounts
from netsum_controller.errors import ControllerError, LockedError
from netsum_controller.p4runtime.client import SwitchClient
from netsum_controller.planning.items import reached_by
from netsum_controller.state.model import SERIAL, Job, Late, Seat

# Chooses which block records to read: finds those that can be open with few queries.


PROBES = 16
"""Records that show where in its slots a job is."""

MOST = 128
"""Most records read for a job besides the probes: a query takes about 0.4 ms. In a larger window only every second, third, ...
record is read."""

NEIGHBORS = 512
"""Most slots that are read to explain one block: a host that asks has only seconds, and a job may have thousands of slots."""

Query = Callable[[Iterable[int]], dict[int, BlockRecord]]
"""Slots -> their records, as :meth:`netsum_controller.p4runtime.client.SwitchClient.query_records`."""


@dataclass(frozen=True)
class RecordSample:
    """Records of a job's epoch, by how many blocks they are after its first. Each stands for ``stride`` blocks."""

    records: dict[int, BlockRecord]
    stride: int = 1

    @property
    def newest(self) -> int | None:
        """The newest of these blocks; None before the first."""
        return max(self.records, default=None)

    @property
    def begun(self) -> int:
        """The number of blocks of the epoch that have begun."""
        return 0 if self.newest is None else self.newest + 1


@dataclass(frozen=True)
class JobSample:
    """What a switch knows of a job: ``outcomes`` since it was created, packets and bytes by source id, and records."""

    outcomes: Mapping[str, int]
    traffic: Mapping[int, tuple[int, int]]
    found: RecordSample


def read_job(
    client: SwitchClient, job: Job, traffic: Mapping[AnyMemberEntry, tuple[int, int]], read: Callable[[Job, int], RecordSample]
) -> JobSample:
    """Read a job on one of its switches, of whose members ``traffic`` is known; ``read`` gets the job and where its slots
    begin."""
    outcomes, part = client.read_outcomes(job.job_id), job.part(client.name)
    assert part is not None, "a job has a part on every switch of its trees"
    by_source = {entry.src_id: counts for entry, counts in traffic.items() if entry.job_id == job.job_id}
    return JobSample(outcomes, by_source, read(job, part.slot_base))


def sample(job: Job, slot_base: int, query: Query, root: str = "") -> RecordSample:
    """The records of a job that can be open, on a switch where its slots begin at ``slot_base``. (A root above other switches
    that makes every n-th block's result has only those; a switch with members has all.) Of one of several roots that members
    reach themselves, ``root``, only the slots of its own blocks are read.

    A member sends block b only when it holds b - window, so all open blocks are in the window up to the newest. Small jobs are
    read whole; in others, some evenly spread records tell roughly where the newest is.
    """
    own = _own(job, root, range(job.slots), 0)
    if job.slots <= max(2 * job.window, 4 * PROBES) <= MOST:
        return RecordSample(_of_epoch(job, query(slot_base + slot for slot in own)))
    step = max(1, job.slots // PROBES)
    probes = _of_epoch(job, query(slot_base + slot for slot in own[:: max(1, len(own) // PROBES)]))
    known = max(probes, default=-1)
    some = _own(job, root, range(max(0, known - job.window), known + step + 1), job.epoch.first_block_id)
    stride = max(1, -(-len(some) // MOST))
    slots = (slot_base + (job.epoch.first_block_id + ahead) % job.slots for ahead in some[::stride])
    return RecordSample(probes | _of_epoch(job, query(slots)), stride)


def every_record(job: Job, slot_base: int, query: Query, around: int | None = None, root: str = "") -> RecordSample:
    """All records of a job, one query a slot; with many slots those of at most :data:`NEIGHBORS` blocks ``around`` this one.
    ``root`` is as for :func:`sample`."""
    first, count = (0, job.slots) if around is None or job.slots <= NEIGHBORS else (around - NEIGHBORS // 2, NEIGHBORS)
    own = _own(job, root, range(count), first)
    return RecordSample(_of_epoch(job, query(slot_base + (first + offset) % job.slots for offset in own)))


def _own(job: Job, root: str, offsets: range, first: int) -> Sequence[int]:
    """Those of the blocks at ``offsets`` from ``first`` that members send to this root; all, unless they reach several."""
    shape = job.epoch.shape
    return [each for each in offsets if shape.root_of(first + each) == root] if root and shape.striped else offsets


def _number_of_own(job: Job, root: str, ahead: int, number: int) -> int:
    """Of ``number`` blocks, the first of which is ``ahead`` of the epoch's first, those that members send to this root."""
    shape = job.epoch.shape
    if not shape.striped:
        return number
    rounds, rest = divmod(number, len(shape.roots))
    return rounds * shape.roots.count(root) + len(_own(job, root, range(ahead, ahead + rest), job.epoch.first_block_id))


def _of_epoch(job: Job, records: dict[int, BlockRecord]) -> dict[int, BlockRecord]:
    found = {}
    for record in records.values():
        ahead = (record.block_id - job.epoch.first_block_id) % SERIAL
        if record.epoch == job.epoch.number and record.state is not BlockState.EMPTY and ahead < SERIAL // 2:
            found[ahead] = record
    return found


PATIENCE = 2.0
"""Seconds to wait for a switch that does not answer, or for a running command; watchers ask again anyway."""

SILENT_AFTER = 1.0
"""A member is silent after this many seconds without a packet while a block waits for it or the others go on without it."""


class Presence(StrEnum):
    ABSENT = "absent"  # has not joined
    JOINED = "joined"
    SILENT = "silent"  # joined, but sends nothing while others wait for it or go on without it
    LEFT = "left"
    EVICTED = "evicted"


@dataclass(frozen=True)
class MemberView:
    """One member. ``packets`` and ``octets`` (whole frames) are what the switch has let in, in this epoch and in those before
    that used the same entry; at least ``repeats`` of this epoch's packets were not a block's first (None in a job that degrades,
    where this is unknown). ``last_block`` is its newest block in the sample, if any. ``missing`` is the number of open blocks
    that lack it, ``oldest`` the age of the oldest in seconds, if any; ``waits`` counts the blocks, in all samples since the
    first look, that waited for this member alone."""

    rank: int
    host: str
    presence: Presence
    packets: int = 0
    octets: int = 0
    repeats: int | None = None
    last_block: int | None = None
    missing: int = 0
    oldest: float | None = None
    waits: int = 0


@dataclass(frozen=True)
class JobView:
    """One job ``at`` a time (:func:`time.monotonic`), on one of its switches or on all (:func:`whole`). ``blocks`` of the epoch
    have begun, ``open_blocks`` of them wait, the oldest for ``oldest`` seconds (the switch tells at most 67); ``outcomes`` are
    packets since the job was created; ``members`` are those on the switch. If it is not ``complete``, some switches do not
    answer."""

    job: Job
    at: float
    outcomes: Mapping[str, int]
    blocks: int
    open_blocks: int
    oldest: float
    members: tuple[MemberView, ...]
    complete: bool = True


@dataclass(frozen=True)
class SwitchView:
    """One switch: whether it is ``up`` and runs our program, and if not, the ``trouble``. ``seconds`` is how long the look took,
    which ended ``at`` a time (:func:`time.monotonic`); ``ports`` is what has come in at each port, ``regions`` what has come for
    each region of memory, by its id. If it was not ``looked`` at, because others had the state lock (that is the ``trouble``
    then), ``up`` is what the look before has found."""

    name: str
    up: bool
    seconds: float
    trouble: str = ""
    at: float = 0.0
    jobs: tuple[JobView, ...] = ()
    ports: Mapping[int, PortCounts] = field(default_factory=dict)
    regions: Mapping[int, RegionCounts] = field(default_factory=dict)
    looked: bool = True


def whole(views: Iterable[JobView]) -> list[JobView]:
    """One view for each job, by name, merged from those of its switches. In a tree a packet counts on each switch that it passes;
    members whose switch was not seen have no packets."""
    parts: dict[str, list[JobView]] = {}
    for view in views:
        parts.setdefault(view.job.name, []).append(view)
    return [_joined(parts[name]) for name in sorted(parts)]


def _joined(parts: list[JobView]) -> JobView:
    newest = max(parts, key=lambda part: part.job.epoch.number).job
    parts = [part for part in parts if part.job.epoch.number == newest.epoch.number]  # it may begin between two looks
    shape = newest.epoch.shape
    if len(parts) == 1 and len(shape.switches) == 1:
        return parts[0]
    outcomes: dict[str, int] = {}
    for part in parts:
        for name, count in part.outcomes.items():
            outcomes[name] = outcomes.get(name, 0) + count
    seen: dict[int, MemberView] = {}
    for member in (member for part in parts for member in part.members):
        seen[member.rank] = _added(seen[member.rank], member) if member.rank in seen else member
    opened = [part.open_blocks for part in parts]  # above each other in a tree; other blocks at each root that members reach
    return JobView(
        job=newest,
        at=max(part.at for part in parts),
        outcomes=outcomes,
        blocks=max(part.blocks for part in parts),
        open_blocks=sum(opened) if shape.striped else max(opened),
        oldest=max(part.oldest for part in parts),
        members=tuple(seen.get(seat.rank) or MemberView(seat.rank, seat.host, presence(seat)) for seat in newest.epoch.seats),
        complete=len(parts) == len(shape.switches),
    )


def _added(one: MemberView, other: MemberView) -> MemberView:
    """A member as two switches see it, each of which gets some of its blocks."""
    known = [each.repeats for each in (one, other) if each.repeats is not None]
    return MemberView(
        rank=one.rank,
        host=one.host,
        presence=Presence.SILENT if Presence.SILENT in (one.presence, other.presence) else one.presence,
        packets=one.packets + other.packets,
        octets=one.octets + other.octets,
        repeats=sum(known) if known else None,
        last_block=max((each.last_block for each in (one, other) if each.last_block is not None), default=None),
        missing=one.missing + other.missing,
        oldest=max((each.oldest for each in (one, other) if each.oldest is not None), default=None),
        waits=one.waits + other.waits,
    )


class _LastSeen(NamedTuple):
    """The time when a member's packets first reached this count, and how many blocks had begun then."""

    packets: int
    at: float
    blocks: int


@dataclass
class _Memory:
    """State of a job's epoch that is kept between looks."""

    epoch: int
    later: bool = False
    """True if an earlier epoch may have used the members' entries, whose counters then go on."""
    began: dict[int, tuple[int, int]] = field(default_factory=dict)
    """A rank's packets and newest block at the first look at a later epoch."""
    last_seen: dict[int, _LastSeen] = field(default_factory=dict)
    repeats: dict[int, int] = field(default_factory=dict)
    waits: dict[int, int] = field(default_factory=dict)
    counted: int = -1  # newest block whose end is in `waits`


class JobCollector:
    """Looks at switches, and remembers what it takes several looks to tell. Not thread-safe for looks at one switch.

    A look takes the state lock and is primary on the switch while it reads, about 50 ms a job. Scans of degrade jobs pause
    meanwhile, so look no more often than needed.
    """

    def __init__(self, context: ControllerContext, patience: float = PATIENCE) -> None:
        self._context = replace(context, connect_timeout=min(context.connect_timeout, patience))
        self._of = context
        self._lock = context.store.lock.waiting(patience)
        self._patience = patience
        self._memory: dict[tuple[str, str], _Memory] = {}
        """By switch and job."""
        self._up: dict[str, bool] = {}
        """The result of the last look at each switch."""

    def look(self, switch: str, only: str | None = None) -> SwitchView:
        """The current view of a switch and its jobs (or ``only`` one of them). Errors are reported in the view, not raised."""
        view = self._look(switch, only)
        if view.looked:
            self._up[switch] = view.up
        return view

    def _look(self, switch: str, only: str | None) -> SwitchView:
        began = time.monotonic()
        self._context.topology = self._of.topology  # a testbed may have filled it in since
        try:
            with self._lock, self._context.client(switch) as client:
                self._context.require_program(client)
                jobs = [
                    job
                    for job in self._context.store.jobs(switch)
                    if job.exists and only in (None, job.name) and switch in job.epoch.shape.switches
                ]
                traffic = client.read_member_traffic() if jobs else {}
                at = time.monotonic()
                views = tuple(self._job(client, job, traffic, at) for job in jobs)
                ports = client.read_ports(self._context.topology.on_ports(switch)) if only is None else {}
                has_memory = only is None and self._context.memory.state().regions
                regions = client.read_region_traffic() if has_memory else {}
        except LockedError as error:
            now = time.monotonic()
            up = self._up.get(switch, True)
            return SwitchView(switch, up, now - began, f"not looked at: {error}", at=now, looked=False)
        except ControllerError as error:
            now = time.monotonic()
            return SwitchView(switch, up=False, seconds=now - began, trouble=str(error), at=now)
        if only is None:
            names = {job.name for job in jobs}
            for place in [place for place in self._memory if place[0] == switch and place[1] not in names]:
                del self._memory[place]
        now = time.monotonic()
        return SwitchView(switch, True, now - began, at=now, jobs=views, ports=ports, regions=regions)

    def _job(self, client: SwitchClient, job: Job, traffic: Mapping[AnyMemberEntry, tuple[int, int]], at: float) -> JobView:
        query = partial(client.query_records, timeout=self._patience)
        read = read_job(client, job, traffic, partial(sample, query=query, root=client.name))
        found = read.found
        place = (client.name, job.name)
        memory = self._memory.get(place)
        if memory is None or memory.epoch != job.epoch.number:
            later = memory is not None or job.epoch.resumes is not None
            memory = self._memory[place] = _Memory(job.epoch.number, later)
        here = [seat for seat in job.epoch.seats if client.name in reached_by(job, seat.rank)]
        _count_waits(here, found, memory)
        opened = [record for record in found.records.values() if record.state is BlockState.OPEN]
        members = []
        for seat in here:
            member = _member(job, client.name, seat, found, opened, read.traffic, memory)
            if member.presence is Presence.JOINED and _is_silent(member, found, memory, at):
                member = replace(member, presence=Presence.SILENT)
            members.append(member)
        return JobView(
            job=job,
            at=at,
            outcomes=read.outcomes,
            blocks=found.begun,
            open_blocks=len(opened) * found.stride,
            oldest=max((record.age_ms for record in opened), default=0.0) / 1000,
            members=tuple(members),
        )


def _lacks(record: BlockRecord, seat: Seat) -> bool:
    return not record.seen >> seat.src_id & 1


def _count_waits(here: Iterable[Seat], found: RecordSample, memory: _Memory) -> None:
    """Count the blocks that wait for, or were closed without, exactly one of a switch's members. An open block counts in every
    look."""
    for ahead, record in found.records.items():
        is_open = record.state is BlockState.OPEN
        if not is_open and (not record.degraded or ahead <= memory.counted):
            continue
        missing = [seat.rank for seat in here if not seat.evicted and _lacks(record, seat)]
        if len(missing) == 1:
            memory.waits[missing[0]] = memory.waits.get(missing[0], 0) + found.stride
    ended = (ahead for ahead, record in found.records.items() if record.state is not BlockState.OPEN)
    memory.counted = max(memory.counted, *ended, -1)


def _member(
    job: Job,
    switch: str,
    seat: Seat,
    found: RecordSample,
    opened: Iterable[BlockRecord],
    by_source: Mapping[int, tuple[int, int]],
    memory: _Memory,
) -> MemberView:
    packets, octets = by_source.get(seat.src_id, (0, 0))
    own = max((ahead for ahead, record in found.records.items() if not _lacks(record, seat)), default=None)
    repeats = None
    if job.late is Late.WAIT:
        # A member sends its blocks in order, so it has sent every block up to its newest. Packets were read before records. (If
        # blocks are closed without it, its newest is not known.)
        before = memory.repeats.get(seat.rank, 0)
        first = (packets, own or 0) if memory.later else (0, 0)
        had, newest = memory.began.setdefault(seat.rank, first)
        blocks = 0 if own is None else _number_of_own(job, switch, newest, own + 1 - newest) + found.stride - 1
        repeats = memory.repeats[seat.rank] = max(before, packets - had - blocks)
    missing = [record.age_ms / 1000 for record in opened if not seat.evicted and _lacks(record, seat)]
    oldest = max(missing, default=None)
    return MemberView(
        rank=seat.rank,
        host=seat.host,
        presence=presence(seat),
        packets=packets,
        octets=octets,
        repeats=repeats,
        last_block=own,
        missing=len(missing) * found.stride,
        oldest=oldest,
        waits=memory.waits.get(seat.rank, 0),
    )


def _is_silent(member: MemberView, found: RecordSample, memory: _Memory, at: float) -> bool:
    """True if nothing has come from a member although a block waits for it or the others have gone on without it."""
    known = memory.last_seen.get(member.rank)
    if known is None or known.packets != member.packets:
        memory.last_seen[member.rank] = _LastSeen(member.packets, at, found.begun)
    if known is not None and known.packets != member.packets:
        return False
    if member.oldest is not None and member.oldest >= SILENT_AFTER:
        return True
    return known is not None and at - known.at >= SILENT_AFTER and found.begun > known.blocks


def presence(seat: Seat) -> Presence:
    """As far as the state file tells, which does not know who is silent."""
    if seat.evicted:
        return Presence.EVICTED
    if seat.left:
        return Presence.LEFT
    return Presence.JOINED if seat.joined else Presence.ABSENT
