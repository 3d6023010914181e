"""What a job is doing: its outcome counters, and who it is waiting for."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from netsum.wire.schema import BlockState

from netsum_controller.model import Job
from netsum_controller.site import Site
from netsum_controller.stages import MemberEntry, Record


@dataclass(frozen=True)
class MemberTraffic:
    """One member, and how many of its packets the switch has let in."""

    rank: int
    host: str
    joined: bool
    left: bool
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
        MemberTraffic(seat.rank, seat.host, seat.joined, seat.left, by_source.get(seat.src_id, 0))
        for seat in job.epoch.seats
    )


@dataclass(frozen=True)
class BlockReport:
    """One block: its slot, its state and who is missing. The states: ``open``; ``done``; ``absent``, no contribution
    has come; ``recycled``, it was finished and its slot holds a later block."""

    block: int
    slot: int
    state: str
    seen: tuple[int, ...]
    missing: tuple[dict[str, Any], ...]
    record: dict[str, Any] | None


@dataclass(frozen=True)
class Why:
    """Why a job does not go on. ``hints`` are sentences, the likeliest cause first; empty when nothing is open."""

    job: str
    epoch: int
    blocks: tuple[BlockReport, ...]
    hints: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def why(site: Site, name: str, block: int | None = None) -> Why:
    """Open blocks of a job (or just ``block``), with the ranks that each is waiting for.

    Reads block records with PacketOuts: one for ``block``, one for each of the job's slots otherwise.
    """
    with site.store.lock:
        job = site.store.job(name)
        with site.client(job.switch) as client:
            site.require_program(client)
            slots = range(job.slot_base, job.slot_base + job.slots)
            if block is not None:
                slots = range(job.slot_base + block % job.slots, job.slot_base + block % job.slots + 1)
            records = client.query_records(slots)
            packets = client.read_member_packets()
            outcomes = client.read_outcomes(job.job_id)
    if block is not None:
        blocks = [_block_report(job, block, records[slots[0]])]
    else:
        opened = [
            record
            for record in records.values()
            if record.epoch == job.epoch.number and record.state is BlockState.OPEN
        ]
        opened.sort(key=lambda record: (record.block_id - job.epoch.first_block_id) % (1 << 32))
        blocks = [_block_report(job, record.block_id, record) for record in opened]
    missing = {person["rank"] for report in blocks for person in report.missing}
    return Why(job.name, job.epoch.number, tuple(blocks), _hints(missing, _traffic(job, packets), outcomes))


def _block_report(job: Job, block: int, record: Record) -> BlockReport:
    ours = record.epoch == job.epoch.number and record.state is not BlockState.EMPTY
    there = ours and record.block_id == block
    later = ours and 0 < (record.block_id - block) % (1 << 32) < 1 << 31
    seen = record.seen if there else -1 if later else 0
    details = asdict(record) if there else None
    if details is not None:
        details["state"] = record.state.name.lower()
        del details["seen"], details["raw"]
    return BlockReport(
        block=block,
        slot=record.slot,
        state=record.state.name.lower() if there else "recycled" if later else "absent",
        seen=tuple(seat.rank for seat in job.epoch.seats if seen >> seat.src_id & 1),
        missing=tuple(
            {"rank": seat.rank, "src_id": seat.src_id, "host": seat.host}
            for seat in job.epoch.seats
            if not seen >> seat.src_id & 1
        ),
        record=details,
    )


# What a refusal means, in the order of how much it explains.
_REASONS = {
    "signature": "ranks made different calls: {} packets were refused because operation, lane, destination or size "
    "disagree with the block's first",
    "wrong_port": "{} packets came from a UDP port of an earlier epoch: an old process is still sending, or the "
    "descriptor file of an earlier run is used",
    "not_member": "{} packets came from a source on a switch port where it is no member: look at the topology's ports",
    "window": "{} packets were for a block too far ahead: a rank goes on although others lack results",
    "unsupported": "{} packets asked for an operation that the switch does not run",
    "checksum": "{} packets had a wrong checksum",
    "malformed": "{} packets were malformed",
    "stale": "{} packets were for blocks long finished: a few are normal after losses, many come from a descriptor "
    "file that is used for a second run",
}


def _hints(missing: set[int], members: tuple[MemberTraffic, ...], outcomes: dict[str, int]) -> tuple[str, ...]:
    hints = []
    for member in members:
        who = f"rank {member.rank} ({member.host})"
        if member.left:
            hints.append(f"{who} has left")
        elif not member.joined:
            hints.append(f"{who} has not joined")
        elif member.rank in missing and member.packets == 0:
            hints.append(f"{who} has joined, and none of its packets has come")
    hints += [text.format(outcomes[name]) for name, text in _REASONS.items() if outcomes[name]]
    return tuple(hints)
