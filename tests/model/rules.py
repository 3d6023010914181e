# SPDX-License-Identifier: MIT
"""The switch's rules as a pure model: what a block record does when a contribution comes.

It decides in the same order as ``p4src/control/`` (check, job, member, block, aggregate, deliver, reply), on Python ints, with
no frame and no clock, so that it can be explored exhaustively (``explore.py``) and compared byte for byte with the P4
program (``tests/protocol``). The rules and their reasons are in ``PROTOCOL.md``.
What ages and what is scanned is in ``aging.py``, what only switches of a tree do in ``trees.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from netsum.wire.codec import Header
from netsum.wire.schema import GIVING_UP, SCAN_SLOTS, SWITCH_SOURCE, BlockState, Hop, Lane, Op, Outcome, Status

from tests.model import aging, trees
from tests.model.admission import admission, malformed
from tests.model.copying import brings, carried_on, carries
from tests.model.flags import ALL_RULES, Rules
from tests.model.lanes import combine_chunks
from tests.model.replies import answer, is_query, is_told, query, result_for, scanning
from tests.model.state import ID_MASK, Group, Job, Member, Packet, Payload, Progress, Record, Reply, Uplink

_OPS = frozenset(Op)


class Step(NamedTuple):
    """Effects of one packet: its outcome and what leaves."""

    outcome: Outcome
    replies: tuple[Reply, ...] = ()


def read_as(job: Job, record: Record, block_id: int, rules: Rules = ALL_RULES) -> Record:
    """The record that a packet meets: an empty slot and one of another epoch read as a virtual closed block (EMPTY),
    one lap before the block of the epoch's first lap that has this slot."""
    if record.epoch == job.epoch and record.state != BlockState.EMPTY:
        return record
    if not rules.closed_before_first:
        return record._replace(block_id=block_id - job.slots & ID_MASK, state=BlockState.EMPTY)
    offset = (block_id - job.first_block_id) & (job.slots - 1)
    return record._replace(block_id=(job.first_block_id - job.slots + offset) & ID_MASK, state=BlockState.EMPTY)


def opened(job: Job, record: Record, block_id: int) -> Record:
    """The record of a block that opens its slot. The buffer and the fingerprint's fields keep what the block before left:
    ``data_cnt`` 0 and ``fingerprinted`` 0 say that they mean nothing."""
    return record._replace(
        epoch=job.epoch,
        block_id=block_id,
        state=BlockState.OPEN,
        seen=0,
        worker_cnt=0,
        data_cnt=0,
        status=int(Status.OK),
        fingerprinted=0,
        lane_cnt=0,
        degraded=0,
        no_aging=0,
        congested=0,
    )


def _place(job: Job, member: Member, record: Record, block_id: int, rules: Rules) -> tuple[Outcome | None, Record]:
    """The slot's part of the decision: an outcome, or None and the open record that the packet may join."""
    delta = (block_id - record.block_id) & ID_MASK
    outcome: Outcome | None = None
    if delta == 0:
        if record.state in (BlockState.EMPTY, BlockState.DEAD):
            outcome = Outcome.STALE
        elif record.state == BlockState.SENT and (rules.freezes or record.seen & member.source):
            outcome = Outcome.RESENT if rules.resends else Outcome.DUPLICATE
        elif record.state == BlockState.DONE and (rules.closed_is_immutable or record.seen & member.source):
            outcome = Outcome.REPLAYED
        elif record.seen & member.source and rules.ignore_duplicates:
            outcome = Outcome.DUPLICATE
        return outcome, record
    closed = record.state in (BlockState.EMPTY, BlockState.DONE) or (record.state == BlockState.DEAD and rules.dead_opens)
    if closed and (delta == job.slots or rules.lap_opens(delta)):
        return None, opened(job, record, block_id)
    return (Outcome.STALE if delta >> 31 else Outcome.OUT_OF_WINDOW), record


def _disagreement(record: Record, h: Header, rules: Rules) -> Outcome | None:
    """The reason why the contribution does not go with the block's fingerprint, or None."""
    if h.status in GIVING_UP and rules.abort_exempt:
        return None
    if h.op not in _OPS:
        return Outcome.UNSUPPORTED
    if (
        record.fingerprinted
        and (h if rules.calls_have_fingerprints else h._replace(call_fingerprint=record.call_fingerprint)).fingerprint
        != record.fingerprint
    ):
        return Outcome.FINGERPRINT_MISMATCH
    if h.op == Op.COPY:
        return _second_copy(record, h, rules)
    return Outcome.FINGERPRINT_MISMATCH if h.lane_cnt and record.data_cnt and h.lane_cnt != record.lane_cnt else None


def _second_copy(record: Record, h: Header, rules: Rules) -> Outcome | None:
    """A COPY has one payload. A child switch's may be here before the contribution that counts it."""
    if not h.data_cnt:
        return None
    if not record.lane_cnt:
        return Outcome.PAYLOAD_MISSING if not h.lane_cnt and rules.claims_need_payload else None
    if record.data_cnt or h.lane_cnt not in (0, record.lane_cnt) or h.hop != Hop.UP:
        return Outcome.FINGERPRINT_MISMATCH
    return Outcome.DUPLICATE if is_query(h) else None


def _signed(record: Record, h: Header, rules: Rules) -> Record:
    """The record with the fingerprint of its first contribution."""
    if record.fingerprinted:
        return record
    signs = h.status not in GIVING_UP or not rules.abort_does_not_sign
    no_aging = h.no_aging if signs else record.no_aging
    return record.fingerprinted_by(h, fingerprinted=int(signs))._replace(no_aging=no_aging)


def _joined(member: Member, record: Record, packet: Packet, rules: Rules) -> Record:
    """The record after an accepted contribution."""
    h = packet.header
    record = _signed(record, h, rules)
    if h.lane_cnt and not (h.op == Op.COPY and record.lane_cnt):
        if record.data_cnt == 0 and rules.first_payload_overwrites:
            buffer = packet.payload
        else:
            buffer = combine_chunks(Op(record.op), Lane(record.lane), record.buffer, packet.payload)
        record = record._replace(lane_cnt=h.lane_cnt, buffer=buffer)
    return record._replace(
        seen=record.seen | member.source,
        worker_cnt=(record.worker_cnt + h.worker_cnt) & 0xFFFF,
        data_cnt=(record.data_cnt + h.data_cnt) & 0xFFFF,
        degraded=record.degraded | h.degraded,
        status=max(record.status, h.status) if rules.sticky_status else h.status,
        congested=packet.congested | (record.congested if rules.congestion_stays else 0),
    )


class Decision(NamedTuple):
    """The outcome of a packet, and what the switch knows after it."""

    outcome: Outcome
    record: Record
    progress: Progress


CHANGES = frozenset({Outcome.ACCEPTED, Outcome.COMPLETED, Outcome.AGED, Outcome.RESENT, Outcome.EARLY_PAYLOAD})
"""Outcomes of packets that change a record."""


def decide(
    job: Job, member: Member, record: Record, packet: Packet, rules: Rules = ALL_RULES, *, progress: Progress, old: bool
) -> Decision:
    """Effects of a member's well-formed contribution on the record of its slot and to the job's progress. ``old``: the block
    began long enough ago to be closed."""
    h = packet.header
    progress = aging.current(job, progress, rules)
    if not is_query(h):
        progress = aging.heard(job, member, progress, h.block_id, rules)
    met = read_as(job, record, h.block_id, rules)
    outcome, base = _place(job, member, met, h.block_id, rules)
    if outcome == Outcome.DUPLICATE and rules.closes_on_duplicate and base.state == BlockState.OPEN:
        after = aging.close_waiting(job, base, progress, rules, old=old)
        if after is None:
            asks = job.uplinks and job.block_exp and rules.asks
            return Decision(Outcome.QUERIED_PARENT, base, progress) if asks else Decision(outcome, record, progress)
        return Decision(Outcome.AGED, trees.finished(job, after[0], rules), after[1])
    if outcome == Outcome.RESENT:
        return Decision(outcome, trees.raised(base, packet, rules), progress)
    if outcome is None and is_query(h) and not brings(h):
        return Decision(Outcome.QUERIED_PARENT, base, progress)
    if outcome is None:
        outcome = _disagreement(base, h, rules)
    if outcome is None and is_query(h):
        brought = _signed(base, h, rules)._replace(lane_cnt=h.lane_cnt, buffer=packet.payload)
        return Decision(Outcome.EARLY_PAYLOAD, brought, progress)
    if outcome is None:
        return _accept(job, _joined(member, base, packet, rules), progress, rules)
    return Decision(outcome, met if outcome is Outcome.REPLAYED else record, progress)


def _accept(job: Job, joined: Record, progress: Progress, rules: Rules) -> Decision:
    """A contribution was added: is any rank still waited for?"""
    if aging.all_in(job, joined.seen, rules):
        return Decision(Outcome.COMPLETED, trees.finished(job, joined, rules), progress)
    progress = aging.moved(job, progress, joined.block_id, rules)
    if aging.all_but_stragglers(job, joined, progress, rules):
        return Decision(Outcome.AGED, trees.finished(job, aging.closed(joined, rules, late=True), rules), progress)
    return Decision(Outcome.ACCEPTED, joined, progress)


def _told(packet: Packet, outcome: Outcome) -> Step:
    """The step of a packet that changed nothing: STALE and refusals are told, the others are silent. The parent is never
    answered."""
    if not is_told(outcome) or packet.header.hop == Hop.DOWN:
        return Step(outcome)
    if outcome == Outcome.STALE:
        return Step(outcome, (answer(packet, Status.STALE),))
    return Step(outcome, (answer(packet, Status.REFUSED, int(outcome)),))


class Scan(NamedTuple):
    """Effects of a scan: what its PacketIn says, and the notices that left."""

    closed: int
    end: int  # where among the job's slots it ended
    replies: tuple[Reply, ...] = ()


@dataclass
class SwitchModel:
    """A switch with its jobs and slots. ``records`` holds the slots that were ever written, ``job_progress`` what is known of
    jobs whose blocks age out."""

    jobs: dict[int, Job] = field(default_factory=dict)
    records: dict[int, Record] = field(default_factory=dict)
    outcomes: dict[tuple[int, Outcome], int] = field(default_factory=dict)
    rules: Rules = ALL_RULES
    job_progress: dict[int, Progress] = field(default_factory=dict)
    addresses: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """By job and source id: the epoch in which a member's key came, and the UDP port from which it came last."""

    def step(self, packet: Packet, *, old: bool = False) -> Step:
        """Take one packet; changes the state in place. ``old``: its block began long enough ago to be closed."""
        step = self._step(packet, old)
        step = step._replace(replies=self._addressed(packet.header.job_id, step.replies))
        self._count(packet.header.job_id, step.outcome)
        return step

    def _count(self, job_id: int, outcome: Outcome) -> None:
        self.outcomes[job_id, outcome] = self.outcomes.get((job_id, outcome), 0) + 1

    def _step(self, packet: Packet, old: bool) -> Step:
        h = packet.header
        job = self.jobs.get(h.job_id)
        refused = admission(packet, job, self.rules)
        if refused is not None:
            return _told(packet, refused)
        assert job is not None
        slot = job.slot_of(h.block_id)
        before, progress = self.records.get(slot, Record()), self.job_progress.get(h.job_id, Progress())
        if h.hop == Hop.DOWN:
            return self._down(job, slot, packet)
        member = job.member_at(h.src_id, packet.port)
        assert member is not None
        if member.key and (self.rules.latest_address or (h.job_id, member.src_id) not in self.addresses):
            self.addresses[h.job_id, member.src_id] = job.epoch, packet.udp_port
        outcome, record, progress = decide(job, member, before, packet, self.rules, progress=progress, old=old)
        if job.block_exp:
            self.job_progress[h.job_id] = progress
        if outcome in CHANGES:
            self.records[slot] = record
        if outcome in (Outcome.COMPLETED, Outcome.AGED, Outcome.RESENT):
            return Step(outcome, trees.leaves(job, packet, record, self.rules))
        if outcome == Outcome.QUERIED_PARENT:
            return Step(outcome, (query(job, packet, record),) if job.uplinks else ())
        if outcome in (Outcome.ACCEPTED, Outcome.EARLY_PAYLOAD):
            return Step(outcome, carried_on(job, packet, record) if carries(h, before, record) else ())
        if outcome == Outcome.PAYLOAD_MISSING:
            return Step(outcome, (answer(packet, Status.AGAIN),))
        if outcome == Outcome.REPLAYED:
            return Step(outcome, self._replay(job, member, packet, record))
        return _told(packet, outcome)

    def _down(self, job: Job, slot: int, packet: Packet) -> Step:
        """A packet from the parent."""
        job_id = packet.header.job_id
        met = read_as(job, self.records.get(slot, Record()), packet.header.block_id, self.rules)
        anew = opened(job, met, packet.header.block_id)
        came = trees.from_parent(job, met, anew, packet, self.job_progress.get(job_id, Progress()), self.rules)
        if came.record is not None:
            self.records[slot] = came.record
        if came.progress is not None and job.block_exp:
            self.job_progress[job_id] = came.progress
        return Step(came.outcome, came.replies)

    def _addressed(self, job_id: int, replies: tuple[Reply, ...]) -> tuple[Reply, ...]:
        """The replies with the addresses and keys of members that are known by their keys; those that have no address in this
        epoch get nothing."""
        job = self.jobs.get(job_id)
        keyed = {member.src_id: member for member in job.members if member.key} if job else {}
        group = job.group if job else None
        if job is None or not keyed:
            return replies
        found = []
        for reply in replies:
            if reply.replica == SWITCH_SOURCE and group is not None:
                found.append(reply._replace(header=reply.header._replace(key=group.key)))
                continue
            if reply.replica is None or reply.replica not in keyed:
                found.append(reply)
                continue
            epoch, udp_port = self.addresses.get((job_id, reply.replica), (0, 0))
            if epoch == job.epoch or (epoch and not self.rules.address_of_this_epoch):
                header = reply.header._replace(key=keyed[reply.replica].key)
                found.append(reply._replace(udp_port=udp_port, header=header))
        return tuple(found)

    def _replay(self, job: Job, member: Member, packet: Packet, record: Record) -> tuple[Reply, ...]:
        if not self.rules.replay:
            return ()
        to = member if self.rules.replay_to_asker else job.members[0]
        return (result_for(to, packet, record, self.rules),)

    def look(self, job_id: int, slot: int, *, old: bool) -> tuple[Reply, ...]:
        """A scan looks at a slot: what leaves because of the block that it closes, if it does."""
        job, record = self.jobs[job_id], self.records.get(slot, Record())
        if not self.rules.scans or record.epoch != job.epoch or record.state != BlockState.OPEN:
            return ()
        progress = aging.current(job, self.job_progress.get(job_id, Progress()), self.rules)
        after = aging.close_waiting(job, record, progress, self.rules, old=old)
        if after is None:
            return ()
        closed, progress = after
        self.records[slot] = trees.finished(job, closed, self.rules)
        if job.block_exp:
            self.job_progress[job_id] = progress
        return self._addressed(job_id, trees.scanned(job, scanning(job_id), self.records[slot], self.rules))

    def scanned_slots(self, job_id: int) -> list[int]:
        """The slots that a scan looks at."""
        job = self.jobs[job_id]
        return aging.scanned_slots(job, aging.current(job, self.job_progress.get(job_id, Progress()), self.rules))

    def scan(self, job_id: int, *, old: bool) -> Scan:
        """A whole scan, pass by pass: a pass looks at a few slots and closes one block at most. ``old``: every open block
        began long enough ago to be closed."""
        slots = self.scanned_slots(job_id) if job_id in self.jobs else []
        replies: tuple[Reply, ...] = ()
        closed = position = 0
        while True:
            passed = SCAN_SLOTS if slots else 0
            notices: tuple[Reply, ...] = ()
            for count, slot in enumerate(slots[position : position + SCAN_SLOTS], 1):
                notices = self.look(job_id, slot, old=old)
                if notices:
                    passed, closed = count, closed + 1
                    break
            self._count(job_id, Outcome.AGED if notices else Outcome.SCANNED)
            position, replies = position + passed, replies + notices
            if position >= len(slots):
                return Scan(closed, position, replies)

    def restart(self) -> None:
        """A switch that lost power: no jobs, no records."""
        self.jobs.clear()
        self.records.clear()
        self.outcomes.clear()
        self.job_progress.clear()
        self.addresses.clear()


__all__ = [
    "ALL_RULES",
    "ID_MASK",
    "Group",
    "Job",
    "Member",
    "Packet",
    "Payload",
    "Progress",
    "Record",
    "Reply",
    "Rules",
    "Scan",
    "Step",
    "SwitchModel",
    "Uplink",
    "decide",
    "malformed",
]  # fmt: skip
