# SPDX-License-Identifier: MIT
"""Rejoining: when a switch has lost an epoch, its members continue in an epoch that resumes it. So do the members of a job that
moves from a switch to its members, or back.

The switch no longer knows which blocks were finished, but the members do. A member that asks is told of the epoch that is about
to resume its own; it stops, and reports the first block whose result it lacks. A report counts for that epoch alone: one that
comes late, when the member has gone on, changes nothing. When all have reported, the epoch begins at the lowest: every member
sends again from there, using the contributions of the last window, including blocks whose result it holds (a member that lacks
one needs every member's part). Until then the switch has no job entry, so that nothing is added to a block too early.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from netsum.text import counted

from netsum_controller.context import ControllerContext
from netsum_controller.errors import BusyError, CannotResumeError
from netsum_controller.jobs.epoch_numbers import NumberTakenError, claim_again
from netsum_controller.jobs.epochs import is_resumable, record_epoch
from netsum_controller.jobs.transaction import install, open_clients, switches_of
from netsum_controller.observability import about
from netsum_controller.state.model import SERIAL, Job, JobState, Rejoin, Seat

log = logging.getLogger(__name__)

RETRY_MS = 100


class Progress(NamedTuple):
    """The position of a member: the epoch that it last ran in and, once it has stopped because it was told of the
    ``next_epoch``, the first block whose result it lacks. Before that it may say what it waits for: a ``block``, which it has
    sent ``sent`` times, in packets of ``octets`` bytes; and that it has ``received`` this number of packets in the epoch."""

    epoch: int
    needs: int | None = None
    next_epoch: int | None = None
    block: int | None = None
    sent: int = 0
    octets: int = 0
    received: int = 0


def lowest(needs: Sequence[int], window: int) -> int | None:
    """The first block that any member lacks (serial numbers modulo 2^32); None if someone is more than a window ahead of it, and
    so no longer has its contribution."""
    for first in needs:
        if all((need - first) % SERIAL <= window for need in needs):
            return first
    return None


def rejoin(context: ControllerContext, job: Job, rank: int, instance: str, progress: Progress, peer: str | None = None) -> Job:
    """The job with the epoch in which ``instance`` continues: its own, or one that resumes it. The other members reach it at
    ``peer``. Call it under the state lock. Raises :class:`BusyError` (not every member has rejoined),
    :class:`CannotResumeError` or :class:`SwitchError` (the epoch could not be installed yet: ask again)."""
    seat = job.epoch.seats[rank]
    _check(context, job, seat, instance, progress)
    if progress.epoch == job.epoch.number:
        return job
    if job.state is JobState.CHANGING:  # a command was killed, or failed, while it installed this epoch
        job = _finish(context, job)
        seat = job.epoch.seats[rank]
    waits = job.epoch.rejoin is Rejoin.WAITING
    if waits and (progress.needs is None or progress.next_epoch != job.epoch.number):
        raise _waiting(job)
    moved = peer is not None and seat.peer != peer
    # Only if something is new: a member asks many times, and every write is a sync.
    if not seat.joined or moved or (waits and seat.needs != progress.needs):
        with context.store.transaction():
            context.store.set_joined(job.epoch.number, [rank], instance)
            if peer is not None:
                context.store.set_peer(job.epoch.number, rank, peer)
            if waits:
                context.store.set_needs(job.epoch.number, rank, progress.needs)
        job = context.store.job(job.name)
    return _agree(context, job) if waits else job


def _check(context: ControllerContext, job: Job, seat: Seat, instance: str, progress: Progress) -> None:
    epoch = job.epoch
    same = progress.epoch == epoch.number

    def cannot(why: str) -> CannotResumeError:
        return CannotResumeError(job.name, progress.epoch, why)

    if not same and progress.epoch not in context.store.resumed(epoch.number):
        raise cannot(f"epoch {epoch.number} has begun since")
    if seat.instance != instance:
        raise cannot(f"rank {seat.rank} is another process's")
    if same and (epoch.rejoin is Rejoin.WAITING or not seat.joined):
        raise cannot(f"rank {seat.rank} has not joined it")
    for other in (seat,) if same else epoch.members:
        if other.left:
            raise cannot(f"rank {other.rank} has left")
    first, needs = epoch.first_block_id, progress.needs
    if not same and epoch.rejoin is Rejoin.DONE and needs is not None and (needs - first) % SERIAL > job.window:
        raise cannot(f"it goes on at block {first}, and block {needs} is not within a window of it")


def _agree(context: ControllerContext, job: Job) -> Job:
    """Begin the epoch at the lowest block that any member lacks, once all have reported."""
    epoch = job.epoch
    if any(seat.needs is None for seat in epoch.members):
        raise _waiting(job)
    assert epoch.resumes is not None
    first = lowest([seat.needs for seat in epoch.members if seat.needs is not None], job.window)
    if first is None:
        raise CannotResumeError(job.name, epoch.resumes, f"its ranks are further apart than {counted(job.window, 'block')}")
    used = (first - epoch.first_block_id) % SERIAL + 2 * job.window
    with context.store.transaction():
        context.store.set_used_ids(epoch.resumes, used)
        context.store.set_rejoin(epoch.number, Rejoin.DONE, first)
        context.store.set_state(job.name, JobState.CHANGING)
    log.info(
        "job %s: epoch %d resumes epoch %d at block %d",
        *(job.name, epoch.number, epoch.resumes, first),
        extra=about(job, block=first),
    )
    return _finish(context, context.store.job(job.name), before=job)


def _waiting(job: Job) -> BusyError:
    missing = [seat.rank for seat in job.epoch.members if seat.needs is None]
    text = f"job {job.name!r}: {happened(job)}, and {some_ranks(missing)} must still rejoin"
    return BusyError(text, RETRY_MS, job.epoch.number)


def some_ranks(ranks: Sequence[int]) -> str:
    """``rank 3``, or ``ranks 1, 3``; at most eight are named."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:8]))}{', ...' * (len(ranks) > 8)}"


def happened(job: Job) -> str:
    """The reason why its members rejoin."""
    return "its switch has restarted" if job.by_switch else "its members combine themselves from now on"


def _finish(context: ControllerContext, job: Job, before: Job | None = None) -> Job:
    """Install the job's epoch (``before`` is as for :func:`install`); or one that resumes it, if another job has taken its number
    on a switch that could not be asked before."""
    with open_clients(context, switches_of(job), brief=True) as clients:  # members ask again, and others wait for the lock
        try:
            for client in clients.values():
                claim_again(context, client, job)
        except NumberTakenError as error:
            if not is_resumable(job):
                raise CannotResumeError(job.name, job.epoch.resumes or job.epoch.number, str(error)) from None
            log.warning("%s", error, extra=about(job))
            job = record_epoch(context, job, clients, resumes=True)
        install(context, job, clients, before=before)
    with context.store.transaction():
        context.store.set_state(job.name, JobState.READY)
    return context.store.job(job.name)
