# SPDX-License-Identifier: MIT
"""Rules of a leaf of a tree beyond those of every switch, as in ``p4src/control/parent.p4`` and ``uplink.p4``: its complete
blocks are SENT, and what its parent says of them is stored and passed on. Rules: PROTOCOL.md, S52 to S67."""

from __future__ import annotations

from typing import NamedTuple

from netsum.wire.schema import GIVING_UP, MEMBER_STATUSES, AgeOp, BlockState, Outcome, Status

from tests.model import aging
from tests.model.copying import completes, early, is_early, with_early
from tests.model.flags import Rules
from tests.model.replies import answers, partial, results
from tests.model.state import Job, Packet, Progress, Record, Reply


def finished(job: Job, record: Record, rules: Rules) -> Record:
    """The record of a block that waits no longer: a root has the result, a leaf has a partial to send."""
    sent = job.uplinks and rules.only_roots_make_results
    return record._replace(state=BlockState.SENT if sent else BlockState.DONE)


def leaves(job: Job, packet: Packet, record: Record, rules: Rules) -> tuple[Reply, ...]:
    """Packets that leave because a block is finished here."""
    if record.state != BlockState.SENT:
        return results(job, packet, record, rules)
    reply = partial(job, packet, record, rules)
    if reply.header.status == Status.AGAIN and not rules.again_to_asker:
        return ()
    return (reply,)


def scanned(job: Job, packet: Packet, record: Record, rules: Rules) -> tuple[Reply, ...]:
    """The same of a block that a scan has closed: it has no room, so a leaf's children are asked to bring the partial up. What a
    scan sends goes to each member by itself."""
    if record.state != BlockState.SENT:
        return results(job._replace(group=None), packet, record, rules)
    return answers(job, packet, record, Status.AGAIN) if rules.scan_asks_again else ()


def raised(record: Record, packet: Packet, rules: Rules) -> Record:
    """The record of a block that is SENT, when a rank contributes again or late: only the highest status is new."""
    if not rules.status_goes_up:
        return record
    return record._replace(status=max(record.status, packet.header.status))


class Came(NamedTuple):
    """Effects of a packet from the parent."""

    outcome: Outcome
    record: Record | None = None  # stored
    progress: Progress | None = None
    replies: tuple[Reply, ...] = ()


IGNORED = Came(Outcome.IGNORED)


def from_parent(job: Job, met: Record, opened: Record, packet: Packet, progress: Progress, rules: Rules) -> Came:
    """A packet from the parent meets the record of its slot. ``opened``: the same slot, opened for the packet's block."""
    h = packet.header
    if is_early(h):
        record = with_early(met, opened, packet, job.slots, rules)
        if record is None:
            return IGNORED
        wanted = record.status == Status.OK
        return Came(Outcome.EARLY_PAYLOAD, record, None, early(job, packet, record) if wanted else ())
    if h.block_id != met.block_id and rules.only_what_is_in_the_slot:
        return IGNORED
    if met.state not in (BlockState.OPEN, BlockState.SENT):
        return IGNORED
    notice = h.status == Status.OK and h.data_cnt > 0 and h.lane_cnt == 0
    here = notice and completes(met, h)
    if h.status not in MEMBER_STATUSES or (notice and not here):
        told = met.state == BlockState.SENT or (rules.told_of_open and h.status != Status.REFUSED)
        return _told(job, met, packet, rules) if told else IGNORED
    disagrees = met.fingerprinted and h.status not in GIVING_UP and h.fingerprint != met.fingerprint
    if disagrees and not rules.any_fingerprint_comes_down:
        return IGNORED
    late = h.age_op == AgeOp.LATE
    if met.state == BlockState.OPEN and job.block_exp and rules.stragglers_of_open:
        missing = job.all_sources & ~met.seen
        current = aging.current(job, progress, rules)
        progress = current._replace(stragglers=current.stragglers | missing)
    record = met.fingerprinted_by(h)._replace(
        block_id=h.block_id,
        state=BlockState.DONE,
        seen=0 if late and rules.late_is_none else met.seen,
        worker_cnt=h.worker_cnt,
        data_cnt=h.data_cnt,
        status=h.status,
        lane_cnt=met.lane_cnt if here else h.lane_cnt,
        degraded=h.degraded,
        no_aging=h.no_aging,
        congested=packet.congested if rules.congestion_comes_down else 0,
        buffer=met.buffer if here else packet.payload if h.lane_cnt else (),
    )
    brought = packet._replace(payload=()) if here else packet
    return Came(Outcome.PARENT_RESULT, record, progress, results(job, brought, record, rules))


def _told(job: Job, met: Record, packet: Packet, rules: Rules) -> Came:
    """An answer to the partial, or a notice, of a block that is SENT: passed on to the children."""
    status = Status(packet.header.status)
    if status == Status.STALE:
        if not rules.stale_is_told:
            return IGNORED
        return Came(Outcome.PARENT_STATUS, met._replace(state=BlockState.DEAD), None, answers(job, packet, met, status))
    if status == Status.REFUSED and not rules.refused_is_told:
        return IGNORED
    if status != Status.REFUSED:
        status = Status.AGAIN
        if not rules.again_goes_down:
            return IGNORED
    return Came(Outcome.PARENT_STATUS, None, None, answers(job, packet, met, status))
