"""What a job is doing: its outcome counters, and who it is waiting for."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from netsum.wire.schema import BlockState

from netsum_controller.allocation import SERIAL
from netsum_controller.causes import Straggler, job_hints, refusal_hints, seat_hints, stragglers
from netsum_controller.client import SwitchClient
from netsum_controller.model import Job
from netsum_controller.site import Site
from netsum_controller.stages import JobEntry, MemberEntry, Record

NEIGHBOURS = 512
"""Slots that are looked at to explain one block: a host that asks why has seconds, and a job may have thousands."""


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
class Stats:
    """Outcomes by name since the job was created, and its members."""

    job: str
    job_id: int
    epoch: int
    outcomes: dict[str, int]
    members: tuple[MemberTraffic, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def stats(site: Site, name: str) -> Stats:
    """Counters of a job, read from its switch. :class:`NoSuchJob` or :class:`SwitchError`."""
    with site.store.lock:
        job = site.store.job(name)
        with site.client(job.switch) as client:
            site.require_program(client)
            packets = client.read_member_packets()
            outcomes = client.read_outcomes(job.job_id)
    return Stats(job.name, job.job_id, job.epoch.number, outcomes, _traffic(job, packets))


def _traffic(job: Job, packets: dict[MemberEntry, int]) -> tuple[MemberTraffic, ...]:
    by_source = {entry.src_id: count for entry, count in packets.items() if entry.job_id == job.job_id}
    return tuple(
        MemberTraffic(seat.rank, seat.host, seat.joined, seat.left, seat.evicted, by_source.get(seat.src_id, 0))
        for seat in job.epoch.seats
    )


@dataclass(frozen=True)
class BlockReport:
    """One block: its slot, its state and who is not in it. The states: ``open``; ``done``; ``absent``, no contribution
    has come; ``recycled``, it was finished and its slot holds a later block. ``age_ms``: time since its first packet,
    None when nobody can tell."""

    block: int
    slot: int
    state: str
    age_ms: float | None
    seen: tuple[int, ...]
    missing: tuple[dict[str, Any], ...]
    record: dict[str, Any] | None


@dataclass(frozen=True)
class Why:
    """Why a job does not go on: its open blocks, whom they wait for, and sentences, the likeliest cause first."""

    job: str
    epoch: int
    blocks: tuple[BlockReport, ...]
    waiting_for: tuple[Straggler, ...] = field(default=())
    hints: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _State:
    """What the switch has of a job. ``records``: of all its slots."""

    entry: JobEntry | None
    records: dict[int, Record]
    packets: dict[MemberEntry, int]
    outcomes: dict[str, int]


def why(site: Site, name: str, block: int | None = None) -> Why:
    """Open blocks of a job (or just ``block``), with the ranks that each is waiting for.

    Reads the block records with PacketOuts, one for each of the job's slots (0.3 to 1 ms each); of those around ``block``
    ``NEIGHBOURS`` at most. :class:`NoSuchJob`, or :class:`SwitchError` when the switch does not answer; that it has lost
    the job is an answer.
    """
    with site.store.lock:
        job = site.store.job(name)
        with site.client(job.switch) as client:
            lost = client.pipeline_cookie() != site.program.cookie
            state = _State(None, {}, {}, {}) if lost else _read(client, job, block)
    here = [record for record in state.records.values() if _is_of(job, record)]
    if block is not None:
        slot = job.slot_base + block % job.slots
        blocks = [_block_report(job, block, slot, state.records.get(slot))]
    else:
        opened = [record for record in here if record.state is BlockState.OPEN]
        opened.sort(key=lambda record: (record.block_id - job.epoch.first_block_id) % SERIAL)
        blocks = [_block_report(job, record.block_id, record.slot, record) for record in opened]
    waiting = [report for report in blocks if report.state in ("open", "absent")]
    waited = {person["rank"]: report.block for report in reversed(waiting) for person in report.missing}
    late = [] if lost else stragglers(job, waited, here, state.packets, state.outcomes)
    hints = [
        *job_hints(job, here, state.entry, lost=lost),
        *(source.sentence for source in late),
        *seat_hints(job, {source.rank for source in late}),
        *refusal_hints(state.outcomes),
    ]
    return Why(job.name, job.epoch.number, tuple(blocks), tuple(late), tuple(hints))


def _read(client: SwitchClient, job: Job, block: int | None) -> _State:
    entries = [item for item in client.read_items() if isinstance(item, JobEntry) and item.job_id == job.job_id]
    slots = [job.slot_base + offset for offset in range(job.slots)]
    if block is not None and job.slots > NEIGHBOURS:
        start = block - NEIGHBOURS // 2
        slots = [job.slot_base + (start + offset) % job.slots for offset in range(NEIGHBOURS)]
    return _State(
        entry=entries[0] if entries else None,
        records=client.query_records(slots, 10.0 + len(slots) / 200),
        packets={entry: count for entry, count in client.read_member_packets().items() if entry.job_id == job.job_id},
        outcomes=client.read_outcomes(job.job_id),
    )


def _is_of(job: Job, record: Record) -> bool:
    return record.epoch == job.epoch.number and record.state is not BlockState.EMPTY


def _block_report(job: Job, block: int, slot: int, record: Record | None) -> BlockReport:
    ours = record if record is not None and _is_of(job, record) else None
    there = ours if ours is not None and ours.block_id == block else None
    later = ours is not None and 0 < (ours.block_id - block) % SERIAL < SERIAL // 2
    seen = there.seen if there is not None else -1 if later else 0
    details = asdict(there) if there is not None else None
    if details is not None and there is not None:
        details["state"] = there.state.name.lower()
        del details["seen"], details["raw"]
    return BlockReport(
        block=block,
        slot=slot,
        state=there.state.name.lower() if there is not None else "recycled" if later else "absent",
        age_ms=there.age_ms if there is not None else None,
        seen=tuple(seat.rank for seat in job.epoch.seats if seen >> seat.src_id & 1),
        missing=tuple(
            {"rank": seat.rank, "src_id": seat.src_id, "host": seat.host}
            for seat in job.epoch.members
            if not seen >> seat.src_id & 1
        ),
        record=details,
    )
