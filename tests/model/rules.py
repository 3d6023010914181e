"""The switch's rules as a pure model: what a block record does when a contribution comes.

It decides in the same order as ``p4src/stages/`` (check, job, member, block, aggregate, deliver), on Python ints, with
no frame and no clock, so that it can be explored exhaustively (``explore.py``) and compared byte for byte with the P4
program (``tests/protocol``). The rules and their reasons are in ``docs/protocol.md``.

:class:`Rules` switches single rules off: a checker that finds nothing then would prove nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from netsum.wire.codec import Header
from netsum.wire.schema import CHUNK_BYTES, EVERYONE, MAX_CHUNKS, VERSION, BlockState, Lane, Op, Outcome, Status

from tests.model.lanes import add_chunks, max_chunks

Payload = tuple[int, ...]
"""The chunks of a payload, each a 2048-bit int; () of a header-only packet. An empty contribution (grad_cnt 0) may be
padded with chunks that mean nothing, to make room for the result."""

ID_MASK = 0xFFFFFFFF
SUPPORTED_OPS = frozenset({Op.SUM, Op.MAX, Op.COPY})


class Packet(NamedTuple):
    """A contribution as it comes in. ``port`` is the switch port, ``udp_port`` the sender's UDP port."""

    port: int
    udp_port: int
    header: Header
    payload: Payload = ()


class Reply(NamedTuple):
    """A packet that leaves. ``replica`` is the receiver's source id; None: unicast back to whoever asked."""

    port: int
    replica: int | None
    udp_port: int
    header: Header
    payload: Payload = ()


class Member(NamedTuple):
    """One member of a job: where it is, its bit, the workers behind it and its UDP port in this epoch."""

    src_id: int
    port: int
    udp_port: int
    rank: int
    workers: int = 1

    @property
    def source(self) -> int:
        return 1 << self.src_id


class Job(NamedTuple):
    """What the controller installs for a job: entries of ``job``, ``member`` and ``rewrite`` and a multicast group."""

    epoch: int
    first_block_id: int
    slots: int
    slot_base: int
    members: tuple[Member, ...]

    @property
    def all_sources(self) -> int:
        return sum(member.source for member in self.members)

    def slot_of(self, block_id: int) -> int:
        return self.slot_base + (block_id & (self.slots - 1))

    def member_at(self, src_id: int, port: int) -> Member | None:
        found = (member for member in self.members if (member.src_id, member.port) == (src_id, port))
        return next(found, None)


class Record(NamedTuple):
    """A block record, fields as in ``wire.schema.RECORD_FIELDS``, and ``buffer``: the payload in the registers."""

    epoch: int = 0
    block_id: int = 0
    state: BlockState = BlockState.EMPTY
    seen: int = 0
    src_cnt: int = 0
    data_cnt: int = 0
    status: int = 0
    signed: int = 0
    gen_id: int = 0
    dest: int = 0
    op: int = 0
    lane: int = 0
    grad_cnt: int = 0
    buffer: Payload = ()

    @property
    def chunks(self) -> int:
        return len(self.buffer) if self.data_cnt else 0

    @property
    def signature(self) -> tuple[int, int, int, int]:
        return self.gen_id, self.dest, self.op, self.lane


@dataclass(frozen=True)
class Rules:
    """The switch's rules that can be switched off, each with what protects it (docs/protocol.md)."""

    exact_lap: bool = True  # only a block exactly one lap ahead opens a slot; off: any block ahead
    stale_behind: bool = True  # a block behind the slot's never opens it; off: any other block opens a closed slot
    closed_before_first: bool = True  # an empty slot, or one of another epoch, reads as the lap before the first
    first_payload_overwrites: bool = True
    ignore_duplicates: bool = True
    replay: bool = True  # a finished block is answered with its result
    replay_to_asker: bool = True  # off: the replay goes to the job's first member
    sticky_status: bool = True  # the highest status stays; off: the last one does
    abort_exempt: bool = True  # ABORT and MISMATCH pass whatever the signature
    abort_does_not_sign: bool = True

    def lap_opens(self, delta: int) -> bool:
        """Whether a block ``delta`` ahead opens a closed slot although it is not one lap ahead (never by the rules)."""
        return not self.stale_behind or (not self.exact_lap and not delta >> 31)


ALL_RULES = Rules()


class Step(NamedTuple):
    """What one packet did: its outcome and what leaves."""

    outcome: Outcome
    replies: tuple[Reply, ...] = ()


def malformed(packet: Packet) -> bool:
    """Whether lengths, version, counts or status make no sense. ``payload`` stands for the length fields."""
    h, payload_bytes = packet.header, len(packet.payload) * CHUNK_BYTES
    return (
        h.version != VERSION
        or h.lane > Lane.L64
        or (h.grad_cnt != 0 and payload_bytes != h.payload_bytes)
        or len(packet.payload) > MAX_CHUNKS
        or h.age_op != 0
        or h.degraded != 0
        or h.status > Status.MISMATCH
        or (h.status != Status.OK and h.grad_cnt != 0)
        or h.src_cnt == 0
        or h.data_cnt > h.src_cnt
        or (h.data_cnt == 0) != (h.grad_cnt == 0)
    )


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
    """The record of a block that opens its slot. The buffer and the signature's fields keep what the block before left:
    ``data_cnt`` 0 and ``signed`` 0 say that they mean nothing."""
    return record._replace(
        epoch=job.epoch,
        block_id=block_id,
        state=BlockState.OPEN,
        seen=0,
        src_cnt=0,
        data_cnt=0,
        status=int(Status.OK),
        signed=0,
        grad_cnt=0,
    )


def _place(job: Job, member: Member, record: Record, block_id: int, rules: Rules) -> tuple[Outcome | None, Record]:
    """The slot's part of the decision: an outcome, or None and the open record that the packet may join."""
    delta = (block_id - record.block_id) & ID_MASK
    outcome: Outcome | None = None
    if delta == 0:
        if record.state == BlockState.EMPTY:
            outcome = Outcome.STALE
        elif record.state == BlockState.DONE:
            outcome = Outcome.REPLAYED
        elif record.seen & member.source and rules.ignore_duplicates:
            outcome = Outcome.DUPLICATE
        return outcome, record
    closed = record.state != BlockState.OPEN
    if closed and (delta == job.slots or rules.lap_opens(delta)):
        return None, opened(job, record, block_id)
    return (Outcome.STALE if delta >> 31 else Outcome.WINDOW), record


def _disagreement(record: Record, h: Header, rules: Rules) -> Outcome | None:
    """Why the contribution does not go with the block's signature, or None."""
    if h.status >= Status.ABORT and rules.abort_exempt:
        return None
    if h.op not in SUPPORTED_OPS:
        return Outcome.UNSUPPORTED
    if record.signed and (h.gen_id, h.dest, h.op, h.lane) != record.signature:
        return Outcome.SIGNATURE
    if h.grad_cnt and record.data_cnt and (h.grad_cnt != record.grad_cnt or h.op == Op.COPY):
        return Outcome.SIGNATURE
    return None


def _joined(job: Job, member: Member, record: Record, packet: Packet, rules: Rules) -> Record:
    """The record after an accepted contribution."""
    h = packet.header
    signs = h.status < Status.ABORT or not rules.abort_does_not_sign
    if not record.signed:
        record = record._replace(gen_id=h.gen_id, dest=h.dest, op=h.op, lane=h.lane, signed=int(signs))
    if h.grad_cnt:
        if record.data_cnt == 0 and rules.first_payload_overwrites:
            buffer = packet.payload
        elif record.op == Op.SUM:
            buffer = add_chunks(record.buffer, packet.payload)
        else:
            buffer = max_chunks(record.buffer, packet.payload, Lane(record.lane))
        record = record._replace(grad_cnt=h.grad_cnt, buffer=buffer)
    seen = record.seen | member.source
    return record._replace(
        seen=seen,
        src_cnt=(record.src_cnt + h.src_cnt) & 0xFF,
        data_cnt=(record.data_cnt + h.data_cnt) & 0xFF,
        status=max(record.status, h.status) if rules.sticky_status else h.status,
        state=BlockState.DONE if seen == job.all_sources else BlockState.OPEN,
    )


def decide(
    job: Job, member: Member, record: Record, packet: Packet, rules: Rules = ALL_RULES
) -> tuple[Outcome, Record]:
    """What a member's well-formed contribution does to the record of its slot: the outcome and the record after it.

    Only ACCEPTED and COMPLETED change the record.
    """
    met = read_as(job, record, packet.header.block_id, rules)
    outcome, base = _place(job, member, met, packet.header.block_id, rules)
    if outcome is None:
        outcome = _disagreement(base, packet.header, rules)
    if outcome is None:
        joined = _joined(job, member, base, packet, rules)
        return (Outcome.COMPLETED if joined.state == BlockState.DONE else Outcome.ACCEPTED), joined
    return outcome, met if outcome is Outcome.REPLAYED else record


def result_for(member: Member, packet: Packet, record: Record) -> Reply:
    """The result as one member gets it: with payload only if it is for everyone or for the member's rank, its status is
    OK and the packet that brings it about came with room for it."""
    fits = record.status == Status.OK and 0 < record.chunks <= len(packet.payload)
    whole = fits and record.dest in (EVERYONE, member.rank)
    header = Header(
        job_id=packet.header.job_id,
        block_id=record.block_id,
        src_id=member.src_id,
        src_cnt=record.src_cnt,
        gen_id=record.gen_id,
        grad_cnt=record.grad_cnt if whole else 0,
        op=record.op,
        lane=record.lane,
        status=record.status,
        dest=record.dest,
        data_cnt=record.data_cnt,
    )
    return Reply(member.port, member.src_id, member.udp_port, header, record.buffer if whole else ())


def answer(packet: Packet, outcome: Outcome) -> Reply:
    """STALE or REFUSED, header only, to whoever sent the packet."""
    stale = outcome == Outcome.STALE
    header = packet.header._replace(
        age_op=0 if stale else int(outcome),
        src_cnt=0,
        grad_cnt=0,
        data_cnt=0,
        status=int(Status.STALE if stale else Status.REFUSED),
    )
    return Reply(packet.port, None, packet.udp_port, header)


def _told(packet: Packet, outcome: Outcome) -> Step:
    """The step of a packet that changed nothing: STALE and refusals are told, the others are silent."""
    if outcome == Outcome.STALE or Outcome.UNKNOWN_JOB <= outcome <= Outcome.UNSUPPORTED:
        return Step(outcome, (answer(packet, outcome),))
    return Step(outcome)


def _admission(packet: Packet, job: Job | None, member: Member | None) -> Outcome | None:
    """Why a packet does not come as far as a slot, or None."""
    if malformed(packet):
        return Outcome.MALFORMED
    if job is None:
        return Outcome.UNKNOWN_JOB
    if member is None:
        return Outcome.NOT_MEMBER
    if packet.udp_port != member.udp_port:
        return Outcome.WRONG_PORT
    return Outcome.MALFORMED if packet.header.src_cnt > member.workers else None


@dataclass
class SwitchModel:
    """A switch with its jobs and slots. ``records`` holds the slots that were ever written."""

    jobs: dict[int, Job] = field(default_factory=dict)
    records: dict[int, Record] = field(default_factory=dict)
    outcomes: dict[tuple[int, Outcome], int] = field(default_factory=dict)
    rules: Rules = ALL_RULES

    def step(self, packet: Packet) -> Step:
        """Take one packet; changes the state in place."""
        step = self._step(packet)
        key = (packet.header.job_id, step.outcome)
        self.outcomes[key] = self.outcomes.get(key, 0) + 1
        return step

    def _step(self, packet: Packet) -> Step:
        h = packet.header
        job = self.jobs.get(h.job_id)
        member = job.member_at(h.src_id, packet.port) if job else None
        refused = _admission(packet, job, member)
        if refused is not None:
            return _told(packet, refused)
        assert job is not None
        assert member is not None
        slot = job.slot_of(h.block_id)
        outcome, record = decide(job, member, self.records.get(slot, Record()), packet, self.rules)
        if outcome in (Outcome.ACCEPTED, Outcome.COMPLETED):
            self.records[slot] = record
        if outcome == Outcome.COMPLETED:
            return Step(outcome, tuple(result_for(to, packet, record) for to in job.members))
        if outcome == Outcome.REPLAYED:
            return Step(outcome, self._replay(job, member, packet, record))
        return _told(packet, outcome)

    def _replay(self, job: Job, member: Member, packet: Packet, record: Record) -> tuple[Reply, ...]:
        if not self.rules.replay:
            return ()
        return (result_for(member if self.rules.replay_to_asker else job.members[0], packet, record),)

    def restart(self) -> None:
        """A switch that lost power: no jobs, no records."""
        self.jobs.clear()
        self.records.clear()
        self.outcomes.clear()
