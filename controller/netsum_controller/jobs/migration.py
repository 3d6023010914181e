# SPDX-License-Identifier: MIT
"""Moving a job: from switches to its members, who then combine themselves, and back.

A move is an epoch that resumes the one before, as after a restart of a switch (:mod:`netsum_controller.jobs.rejoin`): the
members report which blocks they lack, and go on there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from netsum.descriptor import AUTO, KNOWN, is_algorithm, without_switch

from netsum_controller.config.job_spec import spec_of
from netsum_controller.context import ControllerContext, answers, find_down
from netsum_controller.errors import ControllerError, InputError, NoSwitchError, RejectedError, UnreachableError
from netsum_controller.jobs.epoch_numbers import require_ours
from netsum_controller.jobs.epochs import (
    FILE_INSTANCE,
    goes_around,
    is_resumable,
    record_epoch,
    replace_epoch,
    table_size,
)
from netsum_controller.jobs.priorities import settle
from netsum_controller.jobs.transaction import open_clients, remove, switches_of
from netsum_controller.observability import about
from netsum_controller.planning.admission import check_plan, place
from netsum_controller.state.model import Job, JobState, Late, Rejoin

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Migration:
    """The result of a move. ``changed`` says whether it did anything; ``new_epoch`` is the number under which members must
    rejoin, which they do by themselves if it ``resumes`` the one before; ``why`` says why no switch combines although "auto"
    was asked for."""

    job: Job
    changed: bool
    new_epoch: int | None = None
    resumes: bool = False
    why: str = ""


def move(context: ControllerContext, name: str, algorithm: str) -> Migration:
    """Change who combines in a job: switches ("switch"), its members by the algorithm of this name, or switches if they can
    ("auto"). Repeating it changes nothing. Raises :class:`UnknownJobError`, :class:`InputError`, :class:`RejectedError` (or its
    subclass :class:`NoSwitchError`: no room), or :class:`SwitchError`; then nothing has changed."""
    if not is_algorithm(algorithm):
        raise InputError(f"there is no algorithm {algorithm!r} (there are: {KNOWN})")
    with context.store.lock:
        job = context.store.job(name)
        if without_switch(algorithm):
            check_plan(name, algorithm, job.members)
            if job.late is Late.DEGRADE:
                raise RejectedError(f"job {name!r} continues without late members, which only a switch can do")
            stays = not job.by_switch and job.algorithm == algorithm
            return _keep(job) if stays else _to_members(context, job, algorithm)
        try:
            return _stay(context, job, algorithm) if job.by_switch else _to_switches(context, job, algorithm)
        except (NoSwitchError, UnreachableError) as error:
            if algorithm != AUTO or job.late is Late.DEGRADE:
                raise
            there = not job.by_switch and job.algorithm == AUTO
            return replace(_keep(job) if there else _to_members(context, job, AUTO), why=str(error))


def leave_dead_switch(context: ControllerContext, switch: str) -> list[Migration]:
    """Move "auto" jobs that wait for a switch which does not answer to their members. Jobs whose trees can go around it stay,
    and so do jobs whose members got descriptor files, since they do not talk to the controller."""
    with context.store.lock:
        jobs = [job for job in context.store.jobs(switch) if _waits_in_vain(context, job, switch)]
        if not jobs or answers(context, switch):  # since the watcher looked, the switch may have come back
            return []
        moves = [replace(_to_members(context, job, AUTO), why=f"switch {switch} does not answer") for job in jobs]
    for done in moves:
        _log(done)
    return moves


def leave_blocked_path(context: ControllerContext, name: str, epoch: int, why: str) -> Migration | None:
    """Move a job to its members for the reason ``why``: in its epoch of this number, a path between a rank and its switch was
    found blocked. None if it is in another epoch by now, or stays (:func:`may_leave_path`)."""
    with context.store.lock:
        job = context.store.find_job(name)
        if job is None or job.epoch.number != epoch or not may_leave_path(job):
            return None
        done = replace(_to_members(context, job, AUTO), why=why)
    _log(done)
    return done


def may_leave_path(job: Job) -> bool:
    """True if a blocked path moves the job to its members: all of them can go on where they are, and have said where the others
    reach them."""
    return (
        _leaves_by_itself(job)
        and job.state is JobState.READY
        and job.epoch.rejoin is not Rejoin.WAITING
        and is_resumable(job)
        and all(seat.joined and seat.peer for seat in job.epoch.members)
    )


def _waits_in_vain(context: ControllerContext, job: Job, switch: str) -> bool:
    return _leaves_by_itself(job) and switch in job.epoch.shape.switches and not goes_around(context, job)


def _leaves_by_itself(job: Job) -> bool:
    return (
        job.exists
        and job.algorithm == AUTO
        and job.late is Late.WAIT
        and job.by_switch
        and not any(seat.instance == FILE_INSTANCE for seat in job.epoch.seats)
    )


def _keep(job: Job) -> Migration:
    return Migration(job, changed=False)


def _stay(context: ControllerContext, job: Job, algorithm: str) -> Migration:
    """Switches combine as before; only what happens when one dies may change. Raises :class:`UnreachableError` if one has
    died, "auto" is asked for, and no trees go around it."""
    if algorithm == AUTO:
        find_down(context)
        if not goes_around(context, job):
            with open_clients(context, switches_of(job)):
                pass  # all of them are there
    if job.algorithm == algorithm:
        return _keep(job)
    with context.store.transaction():
        context.store.set_combining(replace(job, algorithm=algorithm))
    return Migration(context.store.job(job.name), changed=True)


def _to_members(context: ControllerContext, job: Job, algorithm: str) -> Migration:
    """Record the move, then remove the job from its switches; `reconcile` removes what cannot be removed now."""
    resumes = is_resumable(job)
    new = record_epoch(context, replace(job, algorithm=algorithm, parts=(), job_id=0), {}, resumes=resumes)
    _remove(context, job, (name for name in reversed(job.switches) if name not in context.down))
    with context.store.transaction():
        context.store.set_state(job.name, JobState.READY)
    return _done(context, new, resumes=resumes)


def _remove(context: ControllerContext, job: Job, switches: Iterable[str]) -> None:
    for name in switches:
        try:
            with context.client(name) as client:
                if client.pipeline_cookie() == context.program.cookie:
                    require_ours(context, client)
                    remove(context, job, {name: client})
                    settle(context, client, job)
        except ControllerError as error:
            log.warning("job %s stays on switch %s until it is reconciled: %s", job.name, name, error, extra=about(job))


def _to_switches(context: ControllerContext, job: Job, algorithm: str) -> Migration:
    placement = place(
        *(spec_of(replace(job, algorithm=algorithm)), context.topology_for(job.roots)),
        *(context.store.jobs(), context.store.last_job_id),
        *(table_size(context), find_down(context)),
    )
    placed = replace(job, algorithm=algorithm, job_id=placement.job_id, parts=placement.parts, slots=placement.slots)
    resumes = is_resumable(job)
    with open_clients(context, placed.switches) as clients:
        context.down.difference_update(clients)  # they answer; the watcher may not have looked yet
        new = replace_epoch(context, job, record_epoch(context, placed, clients, resumes=resumes), clients)
    return _done(context, new, resumes=resumes)


def _done(context: ControllerContext, new: Job, *, resumes: bool) -> Migration:
    return Migration(context.store.job(new.name), changed=True, new_epoch=new.epoch.number, resumes=resumes)


def _log(done: Migration) -> None:
    job = done.job
    how = "goes on" if done.resumes else "begins anew"
    what = "job %s: %s; it %s under epoch %d, its members combine"
    log.warning(what, job.name, done.why, how, job.epoch.number, extra=about(job))
