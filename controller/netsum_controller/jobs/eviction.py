# SPDX-License-Identifier: MIT
"""Evicting a member, so that the others go on without it, and admitting it again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from netsum_controller.context import ControllerContext
from netsum_controller.entries.packet_out import scan_frame
from netsum_controller.errors import ControllerError, RejectedError, SwitchError
from netsum_controller.jobs.epochs import begin_epoch
from netsum_controller.jobs.transaction import Clients, install, open_clients, switches_of
from netsum_controller.observability import about
from netsum_controller.p4runtime.client import SwitchClient
from netsum_controller.p4runtime.converge import RollbackError
from netsum_controller.planning.items import job_trees, present, reached_by
from netsum_controller.state.model import SERIAL, Job, JobState, Rejoin, Seat

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Eviction:
    """The result of an eviction or an admission. ``closed`` is the number of blocks that waited only for the evicted member and
    are now finished, None if the switch did not tell; ``new_epoch`` is its number if all must join again."""

    job: Job
    seat: Seat
    changed: bool
    closed: int | None = 0
    new_epoch: int | None = None


def evict(context: ControllerContext, name: str, rank: int) -> Eviction:
    """Take a rank out of a job, dead or alive: from now on its packets are refused, and no block waits for it.

    This happens in place: the epoch goes on, and blocks that waited only for this rank are finished. Repeating it changes
    nothing. In trees, a switch without remaining members is no longer a source either. Results that left by IP multicast come by
    unicast until members have joined another group, whose address and key the evicted rank does not know. (An epoch that has just
    resumed another, after a restart of the switch, cannot lose a member: some would hold results that the others can no longer
    get. Nor can one whose members combine themselves, or a host whose ranks share memory one of them. In those cases all members
    get a new epoch.)

    Raises :class:`UnknownJobError`, :class:`UnknownRankError`, :class:`RejectedError` (the last member) or
    :class:`SwitchError`; then nothing has changed.
    """
    with context.store.lock:
        job = context.store.job(name)
        seat = job.seat(rank)
        if not seat.evicted and len(job.epoch.members) == 1:
            raise RejectedError(f"job {name!r}: rank {rank} is its last member; `netsum job delete {name}` ends the job")
        if not job.by_switch or len(job.local_ranks(rank)) > 1:
            return _anew(context, job, seat, evicted=True)
        path = _way_up(context, job, rank)
        if _with_seat(job, replace(seat, evicted=True)).aging != job.aging or any(each.multicast for each in job.epoch.seats):
            # All the others had joined, so blocks now age on every switch; or none sends to the group any more.
            path = [*path, *(name for name in switches_of(job) if name not in path)]
        with open_clients(context, [*path, job.switch]) as clients:
            in_place = seat.evicted or _goes_on_without(job, clients[job.switch])
            if in_place:
                new = _take_out(context, clients, job, rank, path)
                closed = _scan(context, clients, new, rank, path)
                return Eviction(new, new.epoch.seats[rank], not seat.evicted, closed)
        return _anew(context, job, seat, evicted=True)


def admit(context: ControllerContext, name: str, rank: int) -> Eviction:
    """Let an evicted rank in again, under a new epoch whose blocks do not age until all members have joined it. Changes nothing
    if the rank is not evicted. Raises what :func:`evict` raises."""
    with context.store.lock:
        job = context.store.job(name)
        return _anew(context, job, job.seat(rank), evicted=False)


def _anew(context: ControllerContext, job: Job, seat: Seat, *, evicted: bool) -> Eviction:
    """Evict or admit a rank under a new epoch."""
    if seat.evicted == evicted:
        return Eviction(job, seat, changed=False)
    rank = seat.rank
    job = begin_epoch(context, _with_seat(job, replace(seat, evicted=evicted)))
    what = "evicted, under a new epoch" if evicted else "admitted again"
    log.info("job %s: rank %d is %s", job.name, rank, what, extra=about(job, rank=rank))
    return Eviction(job, job.epoch.seats[rank], changed=True, new_epoch=job.epoch.number)


def _with_seat(job: Job, seat: Seat) -> Job:
    """The job with this seat instead of its own; a new epoch inherits who is evicted."""
    seats = tuple(seat if other.rank == seat.rank else other for other in job.epoch.seats)
    return replace(job, epoch=replace(job.epoch, seats=seats))


def _way_up(context: ControllerContext, job: Job, rank: int) -> list[str]:
    """The switches that know a rank: its own and those above it, children before parents."""
    trees = job_trees(context.topology, job)
    # Empty if the member was evicted before the epoch began.
    path = [name for name in reached_by(job, rank) if name in trees.nodes]
    for name in path:
        path += [up.switch for up in trees.nodes[name].uplinks if up.switch not in path]
    return sorted(path, key=lambda name: trees.nodes[name].height)


def _goes_on_without(job: Job, client: SwitchClient) -> bool:
    """True if the epoch can lose a member: it is installed, and every result that any member holds was made in it.

    In an epoch that resumes another, results of the first window may be older. They are settled once some member is two windows
    ahead, because it holds all results up to one window before, which were therefore made again.
    """
    if job.state is not JobState.READY or job.epoch.rejoin is Rejoin.WAITING:
        return False
    if job.epoch.resumes is None:
        return True
    try:
        record = client.query_records([job.slot_base])[job.slot_base]
    except SwitchError as error:
        epoch = job.epoch.number
        log.warning("job %s: the progress of epoch %d is not known: %s", job.name, epoch, error, extra=about(job))
        return False
    ahead = (record.block_id - job.epoch.first_block_id) % SERIAL
    return record.epoch == job.epoch.number and 2 * job.window <= ahead < SERIAL // 2


def _take_out(context: ControllerContext, clients: Clients, job: Job, rank: int, path: Sequence[str]) -> Job:
    """Remove the member entry before blocks stop waiting for the rank, so that none of its packets come in afterwards."""
    before = job.epoch.seats[rank].evicted
    in_group = [seat.rank for seat in job.epoch.seats if seat.multicast and not before]

    def note(*, evicted: bool) -> None:  # an eviction changes the group, which no member has joined then
        with context.store.transaction():
            context.store.set_evicted(job.epoch.number, rank, evicted)
            for each in in_group:
                context.store.set_multicast(job.epoch.number, each, not evicted)

    note(evicted=True)
    new = context.store.job(job.name)
    try:
        install(context, new, clients, path, before=job)
    except ControllerError as error:
        if not isinstance(error, RollbackError):
            note(evicted=before)
        raise
    if not before:
        log.info("job %s: rank %d is evicted", job.name, rank, extra=about(job, rank=rank))
    return new


def _scan(context: ControllerContext, clients: Clients, job: Job, rank: int, path: Sequence[str]) -> int | None:
    """Finish the blocks that waited for the rank, on its switch or, if that has no member left, on those above it. A leaf's
    blocks finish when its members retransmit, as the scan asks them to. If a switch does not answer, ordinary retransmissions
    finish them."""
    trees = job_trees(context.topology, job)
    left = present(trees, job).nodes
    gone = {name: set(trees.nodes[name].children) - set(left[name].children) for name in path if name in left}
    closed = 0
    for name in (name for name, children in gone.items() if any(rank in child.ranks for child in children)):
        try:
            closed += clients[name].scan(scan_frame(context.topology.switches[name], job.job_id))
        except SwitchError as error:
            log.warning("job %s: %s", job.name, error, extra=about(job))
            return None
    return closed
