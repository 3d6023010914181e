# SPDX-License-Identifier: MIT
"""Which packets come as far as a slot: what makes sense at all, and who may speak for whom (``p4src/control/check.p4`` and
``member.p4``)."""

from __future__ import annotations

from netsum.wire.codec import Header
from netsum.wire.schema import CHUNK_BYTES, MAX_CHUNKS, MEMBER_STATUSES, VERSION, Hop, Lane, Op, Outcome, Status

from tests.model.flags import ALL_RULES, Rules
from tests.model.state import Job, Member, Packet

_STATUSES = frozenset(Status)


def malformed(packet: Packet) -> bool:
    """True if lengths, version, counts or status make no sense. ``payload`` stands for the length fields."""
    h, payload_bytes = packet.header, len(packet.payload) * CHUNK_BYTES
    if (
        h.version != VERSION
        or h.reserved_flags != 0
        or h.reserved_cnt != 0
        or h.reserved != 0
        or h.lane > Lane.L64
        or (h.lane_cnt != 0 and payload_bytes != h.payload_bytes)
        or len(packet.payload) > MAX_CHUNKS
        or (h.status != Status.OK and h.lane_cnt != 0)
    ):
        return True
    if h.hop == Hop.DOWN:
        return False  # no contribution
    return (
        h.hop > Hop.DOWN
        or h.age_op != 0
        or h.early != 0
        or h.backoff != 0
        or h.status not in MEMBER_STATUSES
        or h.data_cnt > h.worker_cnt
        or ((h.data_cnt == 0) != (h.lane_cnt == 0) and not _claims(h))
    )


def _claims(h: Header) -> bool:
    """True if a child switch's contribution counts a COPY's payload that has gone ahead."""
    return h.hop == Hop.UP and h.op == Op.COPY and h.status == Status.OK and h.data_cnt > 0


def admission(packet: Packet, job: Job | None, rules: Rules = ALL_RULES) -> Outcome | None:
    """The reason why a packet does not come as far as a slot, or None."""
    h = packet.header
    if malformed(packet):
        return Outcome.MALFORMED
    if job is None:
        return Outcome.UNKNOWN_JOB
    member, parent = job.member_at(h.src_id, packet.port), job.parent_at(h.src_id, packet.port)
    at = member or parent
    if at is None:
        return Outcome.NOT_MEMBER
    if member and member.key:
        if h.key != member.key and rules.checks_key:
            return Outcome.BAD_KEY
    elif packet.udp_port != at.udp_port:
        return Outcome.WRONG_PORT
    elif h.key:
        return Outcome.MALFORMED
    return Outcome.MALFORMED if (_is_no_partial(member, h) if member else _is_no_result(h)) else None


def _is_no_partial(member: Member, h: Header) -> bool:
    """Only a worker itself must say that it passes: a switch below may have lost members."""
    passes_in_silence = member.workers == 1 and (h.worker_cnt == 0) != h.degraded
    return h.hop == Hop.DOWN or h.worker_cnt > member.workers or passes_in_silence


def _is_no_result(h: Header) -> bool:
    """Neither a result nor an answer: not what a parent says."""
    return h.hop != Hop.DOWN or h.status not in _STATUSES
