# SPDX-License-Identifier: MIT
"""Packets that leave the switch: results, answers, and a leaf's partial on its way up."""

from __future__ import annotations

from netsum.wire.codec import Header
from netsum.wire.schema import CPU_PORT, EVERYONE, SWITCH_SOURCE, UDP_PORT, AgeOp, Hop, Op, Outcome, Status

from tests.model.flags import ALL_RULES, Rules
from tests.model.state import Job, Member, Packet, Record, Reply


def scanning(job_id: int) -> Packet:
    """The packet of a scan in the place of a member's: no room for payload."""
    return Packet(CPU_PORT, UDP_PORT, Header(job_id, 0))


def header_of(job_id: int, record: Record) -> Header:
    """The status that a record gives its block."""
    return Header(
        job_id, record.block_id, degraded=record.degraded, gen_id=record.gen_id, op=record.op, lane=record.lane,
        status=record.status, no_aging=record.no_aging, dest=record.dest, worker_cnt=record.worker_cnt,
        data_cnt=record.data_cnt, lane_cnt=record.lane_cnt, call_fingerprint=record.call_fingerprint,
    )  # fmt: skip


def _age_op(member: Member, record: Record, rules: Rules) -> AgeOp:
    """The end of a result's block, for this member."""
    if not record.degraded:
        return AgeOp.NORMAL
    return AgeOp.AGED if record.seen & member.source or not rules.tells_late else AgeOp.LATE


def result_for(member: Member, packet: Packet, record: Record, rules: Rules = ALL_RULES) -> Reply:
    """The result as one member gets it: with payload only if it is for everyone or for the member's rank, its status is
    OK and the packet that brings it about came with room for it. A child switch gets it whole, whomever it is for."""
    fits = record.status == Status.OK and 0 < record.chunks <= len(packet.payload)
    fits &= record.data_cnt > 0 or not rules.uncounted_is_no_result
    for_it = member.is_dest(record.dest) or (member.switch and rules.whole_between_switches)
    header = header_of(packet.header.job_id, record)._replace(
        age_op=_age_op(member, record, rules),
        final=packet.header.final,
        backoff=packet.header.backoff,
        src_id=SWITCH_SOURCE,
        receiver_id=member.src_id,
        hop=Hop.DOWN if member.switch else Hop.HOST,
        lane_cnt=record.lane_cnt if fits and for_it else 0,
    )
    payload = record.buffer if fits and for_it else ()
    return Reply(member.port, member.src_id, member.udp_port, header, payload, record.congested)


def receivers(job: Job, record: Record, rules: Rules = ALL_RULES) -> tuple[Member, ...]:
    """The receivers of what goes to every source that the job has. What says the same to all goes once to those at a port that
    have joined the IP multicast group, as if they were a member with the group's key and no source id."""
    group = job.group
    if group is None or (record.dest != EVERYONE and rules.dest_by_unicast) or (record.degraded and rules.partial_by_unicast):
        return job.members
    ports = dict.fromkeys(member.port for member in job.members if member.joined)
    together = tuple(Member(SWITCH_SOURCE, port, group.udp_port, 0, EVERYONE, key=group.key) for port in ports)
    return (*(to for to in job.members if not to.joined and rules.others_by_unicast), *together)


def results(job: Job, packet: Packet, record: Record, rules: Rules = ALL_RULES) -> tuple[Reply, ...]:
    """The result, to every source that the job has."""
    return tuple(result_for(to, packet, record, rules) for to in receivers(job, record, rules))


def answer(packet: Packet, status: Status, reason: int = 0) -> Reply:
    """STALE, REFUSED or AGAIN, header only, to the sender of the packet."""
    hop = Hop.DOWN if packet.header.hop == Hop.UP else Hop.HOST
    header = packet.header._replace(
        src_id=SWITCH_SOURCE, receiver_id=packet.header.src_id, hop=hop, status=int(status), reason=reason,
        worker_cnt=0, data_cnt=0, lane_cnt=0,
    )  # fmt: skip
    return Reply(packet.port, None, packet.udp_port, header)


def answers(job: Job, packet: Packet, record: Record, status: Status) -> tuple[Reply, ...]:
    """The same to every source that the job has, about the record's block. AGAIN says how much room is needed."""
    again = status == Status.AGAIN
    header = packet.header._replace(
        block_id=record.block_id,
        reason=packet.header.reason if status == Status.REFUSED else 0,
        query=0,
        src_id=SWITCH_SOURCE,
        worker_cnt=0,
        gen_id=record.gen_id,
        call_fingerprint=record.call_fingerprint,
        lane_cnt=record.lane_cnt if again else 0,
        lane=record.lane if again else packet.header.lane,
        data_cnt=0,
        status=int(status),
        key=0,
    )
    return tuple(
        Reply(
            to.port,
            to.src_id,
            to.udp_port,
            header._replace(receiver_id=to.src_id, hop=Hop.DOWN if to.switch else Hop.HOST),
        )
        for to in job.members
    )


def partial(job: Job, packet: Packet, record: Record, rules: Rules = ALL_RULES) -> Reply:
    """A leaf's record as its contribution to its parent, in the packet that brought that about: where there is no
    payload, that packet's room stays (here as zeros: padding means nothing). Without room for the payload: AGAIN to
    of whichever sender, unless it is a copy, whose payload has gone ahead."""
    ok = record.status == Status.OK
    whole = ok and record.chunks > 0 and record.data_cnt > 0
    claims = whole and record.chunks > len(packet.payload)
    if claims and record.op != Op.COPY:
        reply = answer(packet, Status.AGAIN)
        return reply._replace(header=reply.header._replace(lane_cnt=record.lane_cnt, lane=record.lane))
    up = job.uplink_of(record.block_id)
    whole &= not claims
    room = len(packet.payload) if rules.keeps_room else 0
    header = header_of(packet.header.job_id, record)._replace(
        final=packet.header.final,
        degraded=record.degraded if rules.degraded_goes_up else 0,
        src_id=up.src_id,
        worker_cnt=record.worker_cnt if rules.counts_go_up else min(record.worker_cnt, 1),
        hop=Hop.UP,
        lane_cnt=record.lane_cnt if whole else 0,
        data_cnt=record.data_cnt if ok and (rules.claims or not claims) else 0,
    )
    congested = record.congested if rules.congestion_goes_up else 0
    return Reply(up.port, None, up.udp_port, header, record.buffer if whole else (0,) * room, congested)


def query(job: Job, packet: Packet, record: Record) -> Reply:
    """To the parent of a leaf that may not close the block: is there a result without us? In the packet of the member that asks,
    with its room; of a block that nothing is known of here it has no fingerprint."""
    if not (record.seen or record.fingerprinted):
        record = Record(record.epoch, record.block_id)
    reply = partial(job, packet, record._replace(lane_cnt=0, buffer=()))
    return reply._replace(header=reply.header._replace(query=1, data_cnt=0))


def is_query(header: Header) -> bool:
    """True if a child switch only asks."""
    return header.hop == Hop.UP and header.query == 1


def is_told(outcome: Outcome) -> bool:
    """True if the sender of such a packet gets an answer: STALE or the reason of a refusal."""
    return outcome == Outcome.STALE or Outcome.UNKNOWN_JOB <= outcome <= Outcome.BAD_KEY
