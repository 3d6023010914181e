# SPDX-License-Identifier: MIT
"""COPY blocks: their one payload goes on as soon as it comes, ahead of the result, as in
``p4src/control/deliver.p4``. Rules: PROTOCOL.md, S38 to S44."""

from __future__ import annotations

from netsum.wire.codec import Header
from netsum.wire.schema import SWITCH_SOURCE, AgeOp, BlockState, Hop, Op, Status

from tests.model.flags import Rules
from tests.model.replies import header_of, is_query, receivers
from tests.model.state import ID_MASK, Job, Packet, Record, Reply


def brings(header: Header) -> bool:
    """True if a child switch brings a payload without the contribution that counts it."""
    return is_query(header) and header.op == Op.COPY and header.lane_cnt > 0


def carries(header: Header, before: Record, record: Record) -> bool:
    """True if a contribution brought the block's payload. ``before``, ``record``: its slot."""
    here = (before.epoch, before.block_id) == (record.epoch, record.block_id) and before.lane_cnt
    return header.op == Op.COPY and header.lane_cnt > 0 and not here and record.status == Status.OK


def carried_on(job: Job, packet: Packet, record: Record) -> tuple[Reply, ...]:
    """The payload goes up, or from a root to those who want it."""
    if not job.uplinks:
        return early(job, packet, record)
    up = job.uplink_of(record.block_id)
    header = _ahead(packet, record)._replace(query=1, src_id=up.src_id, hop=Hop.UP)
    return (Reply(up.port, None, up.udp_port, header, packet.payload, record.congested),)


def early(job: Job, packet: Packet, record: Record) -> tuple[Reply, ...]:
    """The payload, ahead of the result: to hosts that get it, and to every child switch."""
    header = _ahead(packet, record)._replace(early=1, src_id=SWITCH_SOURCE, backoff=packet.header.backoff)
    return tuple(
        Reply(
            to.port,
            to.src_id,
            to.udp_port,
            header._replace(receiver_id=to.src_id, hop=Hop.DOWN if to.switch else Hop.HOST),
            packet.payload,
            record.congested,
        )
        for to in receivers(job, record)
        if to.switch or to.is_dest(record.dest)
    )


def _ahead(packet: Packet, record: Record) -> Header:
    header = header_of(packet.header.job_id, record)
    return header._replace(final=packet.header.final, degraded=0, worker_cnt=1, status=int(Status.OK), data_cnt=1)


def is_early(header: Header) -> bool:
    """True if the parent sends a payload ahead of its result."""
    return header.early == 1 and header.op == Op.COPY and header.lane_cnt > 0


def with_early(met: Record, opened: Record, packet: Packet, slots: int, rules: Rules) -> Record | None:
    """The record with a payload that the parent has sent ahead: none of the hosts below may have come to the block yet, so that
    it opens the slot (``opened``). None: it is another block's, or this one is over."""
    h = packet.header
    delta = (h.block_id - met.block_id) & ID_MASK
    if delta == 0 and met.state in (BlockState.OPEN, BlockState.SENT):
        record = met
    elif delta == slots and met.state in (BlockState.EMPTY, BlockState.DONE, BlockState.DEAD) and rules.early_opens:
        record = opened
    else:
        return None
    if not record.fingerprinted:
        record = record.fingerprinted_by(h)._replace(no_aging=h.no_aging)
    if h.fingerprint != record.fingerprint or record.lane_cnt not in (0, h.lane_cnt):
        return None
    return record if record.lane_cnt else record._replace(lane_cnt=h.lane_cnt, buffer=packet.payload)


def completes(met: Record, header: Header) -> bool:
    """True if a notice is all that was missing: the payload is here. That of a child whose contribution is not in the result may
    be another than the result's."""
    same = met.fingerprinted and header.fingerprint == met.fingerprint
    anothers = header.age_op == AgeOp.LATE and met.data_cnt > 0
    return bool(same and header.op == Op.COPY and met.lane_cnt and not anothers)
