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
from netsum_controller.errors import ControllerError, InputError, NoSwitchError, RejectedError, UnreachableError
from netsum_controller.jobs.claims import require_ours
from netsum_controller.jobs.epochs import (
    FILE_INSTANCE,
    goes_around,
    is_resumable,
    record_epoch,
    replace_epoch,
    table_size,
)
from netsum_controller.jobs.priorities import settle
from netsum_controller.jobs.spread import open_clients, remove, taking_part
from netsum_controller.logs import about
from netsum_controller.planning.admission import check_plan, place
from netsum_controller.site import Site, answers, find_down
from netsum_controller.state.model import Job, JobState, Late

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Move:
    """The result of a move. ``changed`` says whether it did anything; ``new_epoch`` is the number under which members must
    rejoin, which they do by themselves if it ``resumes`` the one before; ``why`` says why no switch combines although "auto"
    was asked for."""

    job: Job
    changed: bool
    new_epoch: int | None = None
    resumes: bool = False
    why: str = ""


def move(site: Site, name: str, algorithm: str) -> Move:
    """Change who combines in a job: switches ("switch"), its members by the algorithm of this name, or switches if they can
    ("auto"). Repeating it changes nothing. Raises :class:`UnknownJobError`, :class:`InputError`, :class:`RejectedError` (or its
    subclass :class:`NoSwitchError`: no room), or :class:`SwitchError`; then nothing has changed."""
    if not is_algorithm(algorithm):
        raise InputError(f"there is no algorithm {algorithm!r} (there are: {KNOWN})")
    with site.store.lock:
        job = site.store.job(name)
        if without_switch(algorithm):
            check_plan(name, algorithm, job.members)
            if job.late is Late.DEGRADE:
                raise RejectedError(f"job {name!r} goes on without late members, which only a switch can")
            stays = not job.by_switch and job.algorithm == algorithm
            return _keep(job) if stays else _to_members(site, job, algorithm)
        try:
            return _stay(site, job, algorithm) if job.by_switch else _to_switches(site, job, algorithm)
        except (NoSwitchError, UnreachableError) as error:
            if algorithm != AUTO or job.late is Late.DEGRADE:
                raise
            there = not job.by_switch and job.algorithm == AUTO
            return replace(_keep(job) if there else _to_members(site, job, AUTO), why=str(error))


def leave_dead_switch(site: Site, switch: str) -> list[Move]:
    """Move "auto" jobs that wait for a switch which does not answer to their members. Jobs whose trees can go around it stay,
    and so do jobs whose members got descriptor files, since nobody could tell them."""
    with site.store.lock:
        jobs = [job for job in site.store.jobs(switch) if _waits_in_vain(site, job, switch)]
        if not jobs or answers(site, switch):  # since the watcher looked, the switch may have come back
            return []
        moves = [replace(_to_members(site, job, AUTO), why=f"switch {switch} does not answer") for job in jobs]
    for done in moves:
        _log(done)
    return moves


def _waits_in_vain(site: Site, job: Job, switch: str) -> bool:
    return (
        job.exists
        and job.algorithm == AUTO
        and job.late is Late.WAIT
        and switch in job.epoch.shape.switches
        and not any(seat.instance == FILE_INSTANCE for seat in job.epoch.seats)
        and not goes_around(site, job)
    )


def _keep(job: Job) -> Move:
    return Move(job, changed=False)


def _stay(site: Site, job: Job, algorithm: str) -> Move:
    """Switches combine as before; only what happens when one dies may change. Raises :class:`UnreachableError` if one has
    died, "auto" is asked for, and no trees go around it."""
    if algorithm == AUTO:
        find_down(site)
        if not goes_around(site, job):
            with open_clients(site, taking_part(job)):
                pass  # all of them are there
    if job.algorithm == algorithm:
        return _keep(job)
    with site.store.transaction():
        site.store.set_combining(replace(job, algorithm=algorithm))
    return Move(site.store.job(job.name), changed=True)


def _to_members(site: Site, job: Job, algorithm: str) -> Move:
    """Record the move, then remove the job from its switches; `reconcile` removes what cannot be removed now."""
    resumes = is_resumable(job)
    new = record_epoch(site, replace(job, algorithm=algorithm, parts=(), job_id=0), {}, resumes=resumes)
    _remove(site, job, (name for name in reversed(job.switches) if name not in site.down))
    with site.store.transaction():
        site.store.set_state(job.name, JobState.READY)
    return _done(site, new, resumes=resumes)


def _remove(site: Site, job: Job, switches: Iterable[str]) -> None:
    for name in switches:
        try:
            with site.client(name) as client:
                if client.pipeline_cookie() == site.program.cookie:
                    require_ours(site, client)
                    remove(site, job, {name: client})
                    settle(site, client, job)
        except ControllerError as error:
            log.warning("job %s stays on switch %s until it is reconciled: %s", job.name, name, error, extra=about(job))


def _to_switches(site: Site, job: Job, algorithm: str) -> Move:
    placement = place(
        *(spec_of(replace(job, algorithm=algorithm)), site.topology_for(job.roots)),
        *(site.store.jobs(), site.store.last_job_id),
        *(table_size(site), find_down(site)),
    )
    placed = replace(job, algorithm=algorithm, job_id=placement.job_id, parts=placement.parts, slots=placement.slots)
    resumes = is_resumable(job)
    with open_clients(site, placed.switches) as clients:
        site.down.difference_update(clients)  # they answer; the watcher may not have looked yet
        new = replace_epoch(site, job, record_epoch(site, placed, clients, resumes=resumes), clients)
    return _done(site, new, resumes=resumes)


def _done(site: Site, new: Job, *, resumes: bool) -> Move:
    return Move(site.store.job(new.name), changed=True, new_epoch=new.epoch.number, resumes=resumes)


def _log(done: Move) -> None:
    job = done.job
    how = "goes on" if done.resumes else "begins anew"
    what = "job %s: %s; it %s under epoch %d, its members combine"
    log.warning(what, job.name, done.why, how, job.epoch.number, extra=about(job))
