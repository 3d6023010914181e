# SPDX-License-Identifier: MIT
"""The activity of a job: its outcome counters, and which members it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from netsum.descriptor import SWITCH
from netsum.wire.schema import IN_PROGRESS, BlockState

from netsum_controller.context import ControllerContext
from netsum_controller.entries import AnyMemberEntry, BlockRecord, JobEntry
from netsum_controller.errors import SwitchError
from netsum_controller.jobs.transaction import open_clients, switches_of
from netsum_controller.monitoring.collector import every_record, read_job
from netsum_controller.monitoring.diagnosis import (
    Straggler,
    SwitchState,
    job_hints,
    members_hints,
    path_hints,
    refusal_hints,
    seat_hints,
    stragglers,
)
from netsum_controller.p4runtime.client import SwitchClient
from netsum_controller.planning.items import job_trees, present, reached_by, switch_for
from netsum_controller.planning.trees import Trees
from netsum_controller.state.model import SERIAL, Job, Seat


@dataclass(frozen=True)
class MemberTraffic:
    """One member, and how many of its packets the switch has let in."""

    rank: int
    host: str
    joined: bool
    left: bool
    evicted: bool
    packets: int


@dataclass(frozen=True)
class JobStats:
    """Outcomes by name since the job was created, in total and ``by_switch``, and the job's members. (In a tree, a block
    completes on every switch that it passes.)"""

    job: str
    job_id: int
    epoch: int
    outcomes: dict[str, int]
    members: tuple[MemberTraffic, ...]
    by_switch: dict[str, dict[str, int]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def stats(context: ControllerContext, name: str) -> JobStats:
    """Counters of a job, read from its switches. :class:`UnknownJobError` or :class:`SwitchError`."""
    packets: dict[str, dict[AnyMemberEntry, int]] = {}
    by_switch: dict[str, dict[str, int]] = {}
    with context.store.lock:
        job = context.store.job(name)
        with open_clients(context, switches_of(job)) as clients:
            for switch, client in clients.items():
                packets[switch] = client.read_member_packets()
                by_switch[switch] = client.read_outcomes(job.job_id)
    members = _traffic(job, packets)
    return JobStats(job.name, job.job_id, job.epoch.number, total(by_switch), members, by_switch)


def total(counts: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Sums by name over several switches' counts."""
    names = dict.fromkeys(name for one in counts.values() for name in one)
    return {name: sum(one.get(name, 0) for one in counts.values()) for name in names}


def _traffic(job: Job, packets: Mapping[str, Mapping[AnyMemberEntry, int]]) -> tuple[MemberTraffic, ...]:
    by_source = {
        (switch, entry.src_id): count
        for switch, entries in packets.items()
        for entry, count in entries.items()
        if entry.job_id == job.job_id
    }
    return tuple(
        MemberTraffic(
            *(seat.rank, seat.host, seat.joined, seat.left, seat.evicted),
            packets=sum(by_source.get((switch, seat.src_id), 0) for switch in reached_by(job, seat.rank)),
        )
        for seat in job.epoch.seats
    )


@dataclass(frozen=True)
class BlockReport:
    """One block: its slot where its result is made, its state and who is not in it. The states: ``open``; ``done``;
    ``absent``, no contribution has come; ``recycled``, it was finished and its slot holds a later block; ``unknown``, no
    switch has the job. ``age_ms``: time since its first packet, None if unknown. ``switches``: its state on each switch that
    knows it; ``in_flight``: (child, parent) switches between which its partial sum is."""

    block: int
    slot: int
    state: str
    age_ms: float | None
    seen: tuple[int, ...]
    missing: tuple[dict[str, Any], ...]
    record: dict[str, Any] | None
    switches: dict[str, str] = field(default_factory=dict)
    in_flight: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class JobDiagnosis:
    """The reasons why a job is stuck: its open blocks, whom they wait for, and hints, the likeliest cause first; ``trouble``
    are those about the whole job. ``combines``: "switch", or the members' algorithm."""

    job: str
    epoch: int
    blocks: tuple[BlockReport, ...]
    waiting_for: tuple[Straggler, ...] = field(default=())
    hints: tuple[str, ...] = field(default=())
    combines: str = SWITCH
    trouble: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def diagnose(context: ControllerContext, name: str, block: int | None = None) -> JobDiagnosis:
    """Open blocks of a job (or just ``block``), with the ranks that each is waiting for.

    Reads the block records with a PacketOut for each of the job's slots (0.3 to 1 ms each) on each of its switches, or for at
    most ``NEIGHBORS`` around ``block``. Raises :class:`UnknownJobError`, or :class:`SwitchError` if no switch answers.
    """
    with context.store.lock:
        job = context.store.job(name)
        if not job.by_switch:
            return _without_switch(job, block)
        trees = present(job_trees(context.topology, job), job)
        states = {switch: _look(context, job, switch, block) for switch in switches_of(job) if switch in trees.nodes}
    if not states:
        nothing = () if block is None else (_unknown_block(block),)
        return JobDiagnosis(job.name, job.epoch.number, nothing, hints=tuple(seat_hints(job, set())))
    silent = [state.trouble for state in states.values() if state.trouble]
    if len(silent) == len(states):
        raise SwitchError("; ".join(silent))
    search = _Search(job, trees, states)
    blocks = search.open_blocks() if block is None else [search.report(block)]
    waiting = [report for report in blocks if report.state in ("open", "absent")]
    waited = {person["rank"]: report.block for report in reversed(waiting) for person in report.missing}
    late = [] if any(state.lost for state in states.values()) else stragglers(context.topology, job, waited, states, job.reports)
    trouble = tuple(job_hints(job, trees, states))
    hints = [
        *trouble,
        *(source.sentence for source in late),
        *path_hints(blocks[0].in_flight if waiting else ()),
        *seat_hints(job, {source.rank for source in late}),
        *refusal_hints(total({switch: state.outcomes for switch, state in states.items()})),
    ]
    return JobDiagnosis(job.name, job.epoch.number, tuple(blocks), tuple(late), tuple(hints), trouble=trouble)


def _unknown_block(block: int) -> BlockReport:
    return BlockReport(block, 0, "unknown", None, (), (), None)


def _without_switch(job: Job, block: int | None) -> JobDiagnosis:
    """The members combine themselves, so no switch knows how far they are, and only missing members can be named."""
    blocks = [] if block is None else [_unknown_block(block)]
    hints = (*members_hints(job), *seat_hints(job, set()))
    return JobDiagnosis(job.name, job.epoch.number, tuple(blocks), hints=hints, combines=job.combines)


def _look(context: ControllerContext, job: Job, switch: str, block: int | None) -> SwitchState:
    try:
        with context.client(switch) as client:
            if client.pipeline_cookie() != context.program.cookie:
                return SwitchState(lost=True)
            return _read(context, client, job, switch, block)
    except SwitchError as error:
        return SwitchState(trouble=str(error))


def _read(context: ControllerContext, client: SwitchClient, job: Job, switch: str, block: int | None) -> SwitchState:
    entries = [item for item in client.read_items() if isinstance(item, JobEntry) and item.job_id == job.job_id]
    query = partial(client.query_records, timeout=10.0 + job.slots / 200)
    sample = read_job(client, job, client.read_member_traffic(), partial(every_record, query=query, around=block, root=switch))
    hosts = [context.topology.hosts.get(seat.host) for seat in job.epoch.members]
    ports = [host.port for host in hosts if host is not None and switch in context.topology.reached_by(host)]
    return SwitchState(
        entry=entries[0] if entries else None,
        records=sample.found.records,
        traffic=sample.traffic,
        outcomes=sample.outcomes,
        dropped={port: counts.dropped for port, counts in client.read_ports(ports).items()} if ports else {},
    )


@dataclass(frozen=True)
class _Search:
    """A search for who is missing in a block, from its root downwards."""

    job: Job
    trees: Trees
    states: Mapping[str, SwitchState]

    def open_blocks(self) -> list[BlockReport]:
        """Every block that is in flight on some switch, the oldest first."""
        first = self.job.epoch.first_block_id
        found = {
            ahead for state in self.states.values() for ahead, record in state.records.items() if record.state in IN_PROGRESS
        }
        return [self.report((first + ahead) % SERIAL) for ahead in sorted(found)]

    def report(self, block: int) -> BlockReport:
        job, root = self.job, self.trees.roots[block % self.trees.stripes]
        part = job.part(root)
        assert part is not None
        later = self._is_recycled(root, block)
        records = {name: there for name in self.states if (there := self._record(name, block)) is not None}
        missing, in_flight = ([], []) if later else self._missing(root, block)
        shown = records.get(root) or next(iter(records.values()), None)
        waits = any(record.state in IN_PROGRESS for record in records.values())
        state = shown.state.name.lower() if shown is not None else "recycled" if later else "absent"
        return BlockReport(
            block=block,
            slot=part.slot_base + block % job.slots,
            state="open" if waits else state,
            age_ms=max((record.age_ms for record in records.values()), default=None),
            seen=tuple(seat.rank for seat in job.epoch.seats if later or self._is_in(seat, block, missing)),
            missing=tuple(
                {"rank": seat.rank, "src_id": seat.src_id, "host": seat.host}
                for seat in job.epoch.members
                if seat.rank in missing
            ),
            record=None if shown is None else _details(shown),
            switches={name: record.state.name.lower() for name, record in records.items()},
            in_flight=tuple(in_flight),
        )

    def _ahead(self, block: int) -> int:
        return (block - self.job.epoch.first_block_id) % SERIAL

    def _is_recycled(self, switch: str, block: int) -> bool:
        """Whether the block's slot holds a later block."""
        ahead, state = self._ahead(block), self.states.get(switch)
        distances = () if state is None else ((each - ahead) % SERIAL for each in state.records)
        return any(0 < distance < SERIAL // 2 and not distance % self.job.slots for distance in distances)

    def _record(self, switch: str, block: int) -> BlockRecord | None:
        state = self.states.get(switch)
        return None if state is None else state.records.get(self._ahead(block))

    def _missing(self, switch: str, block: int) -> tuple[list[int], list[tuple[str, str]]]:
        """Ranks below a switch that have not contributed, and the edges on which partial sums are on their way. Below a switch
        that does not answer, or has lost everything, no rank is known to be missing."""
        state = self.states.get(switch)
        if state is None or state.trouble or state.lost:
            return [], []
        record = self._record(switch, block)
        missing: list[int] = []
        in_flight: list[tuple[str, str]] = []
        for child in self.trees.nodes[switch].children:
            if record is not None and record.seen >> child.src_id & 1:
                continue
            below = None if child.switch is None else self._record(child.switch, block)
            if child.switch is None:
                missing += child.ranks
            elif below is not None and below.state is not BlockState.OPEN:
                in_flight.append((child.switch, switch))
            else:
                more, ways = self._missing(child.switch, block)
                missing += more
                in_flight += ways
        return missing, in_flight

    def _is_in(self, seat: Seat, block: int, missing: Sequence[int]) -> bool:
        record = self._record(switch_for(self.job, seat.rank, block), block)
        if record is not None:
            return bool(record.seen >> seat.src_id & 1)
        return not seat.evicted and seat.rank not in missing


def _details(record: BlockRecord) -> dict[str, Any]:
    details = asdict(record)
    details["state"] = record.state.name.lower()
    del details["seen"], details["raw"]
    return details
