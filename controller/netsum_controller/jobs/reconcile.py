# SPDX-License-Identifier: MIT
"""Reconciling: loads the program where it is missing, and corrects whatever differs from the desired state."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from netsum_controller.context import ControllerContext, find_down
from netsum_controller.entries import Item, JobEntry
from netsum_controller.errors import ControllerError, StateError, SwitchError
from netsum_controller.jobs.epoch_numbers import NumberTakenError, claim_again, foreign, require_ours
from netsum_controller.jobs.epochs import goes_around, is_resumable, record_epoch
from netsum_controller.jobs.lifecycle import clean_up
from netsum_controller.jobs.priorities import entry_priority, settle_quietly
from netsum_controller.jobs.transaction import Clients, apply_on_all, desired_on, open_some, switches_of
from netsum_controller.memory.placement import memory_items
from netsum_controller.observability import about
from netsum_controller.p4runtime.client import SwitchClient, UpdateKind
from netsum_controller.p4runtime.converge import apply, plan
from netsum_controller.planning.items import by_job, check_room, job_items, job_of, of_job, switch_items
from netsum_controller.state.model import Job, JobState, Rejoin

log = logging.getLogger(__name__)

TURN: Final = 16
"""Jobs that are restored before others get the state lock: this takes a fraction of a second."""


@dataclass
class Report:
    """The repairs of a switch; empty if nothing was wrong."""

    switch: str
    program_pushed: bool = False
    inserted: int = 0
    modified: int = 0
    deleted: int = 0
    new_epochs: dict[str, int] = field(default_factory=dict)
    """Jobs that the switch had lost, or whose trees now avoid one that is down, and their new epoch."""
    cleaned_up: list[str] = field(default_factory=list)
    """Jobs that an interrupted command had left half done."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Jobs that wait for another of their switches to be reconciled, and what is wrong with it."""

    @property
    def changed(self) -> bool:
        counts = self.inserted + self.modified + self.deleted
        return bool(self.program_pushed or counts or self.new_epochs or self.cleaned_up)


def reconcile_switch(context: ControllerContext, name: str, *, force: bool = False, take_over: bool = False) -> Report:
    """Make one switch what the topology and the store say. ``force`` loads the program even if it is there; ``take_over``
    removes the jobs of another state file.

    A switch that has lost a job has restarted and lost its records too, so the job comes back under a new epoch on all of its
    switches: its members are refused and rejoin, and if possible the new epoch resumes the old one. The same happens if another
    of its switches is down (``context.down``) and trees can avoid it. Raises :class:`SwitchError`, or :class:`StateError` if
    it has jobs of another state file; then nothing but a freshly loaded program has changed.
    """
    try:
        report = _reconcile(context, name, force=force, take_over=take_over)
    except ControllerError:
        context.counters.add("reconciles", name, "failed")
        raise
    context.counters.add("reconciles", name, "changed" if report.changed else "unchanged")
    return report


def _reconcile(context: ControllerContext, name: str, *, force: bool, take_over: bool) -> Report:
    restoring = _Restoring(context, name, Report(name))
    with context.store.lock, context.client(name) as client:
        restoring.begin(client, force=force, take_over=take_over)
    while restoring.left:
        # Not under one lock: members of the jobs that are restored already, and others that wait for it, continue in between.
        with context.store.lock, context.client(name) as client:
            restoring.take_turn(client)
    log.info("switch %s: %s", name, restoring.report, extra={"switch": name})
    return restoring.report


class _Restoring:
    """One switch that is made what it should be. It is read once, at the beginning; then some jobs are installed at a time. A
    job that another command has changed since it was read is read again."""

    def __init__(self, context: ControllerContext, name: str, report: Report) -> None:
        self._context, self._name, self.report = context, name, report
        self.left: list[Job] = []
        """The jobs that need a new epoch, or whose epoch a killed command has left half installed; as they were then."""
        self._take_over = False
        self._lost: set[str] = set()
        self._others: set[int] = set()
        """The ids of jobs of another state file that were there."""
        self._there: dict[str, dict[int, list[Item]]] = {}
        """The parts that each switch that has been read had of each job, by its id."""
        self._changed: set[str] = set()
        """The jobs that others have changed since then."""
        self._troubles: dict[str, ControllerError] = {}
        """The faults of other switches that cannot be used."""

    def begin(self, client: SwitchClient, *, force: bool, take_over: bool) -> None:
        """Load the program where it is missing, and correct everything but the jobs that are ``left``. Call it under the state
        lock, and :meth:`take_turn` under another one as long as there are some."""
        context, report = self._context, self.report
        base = switch_items(context.topology, self._name, frozenset(context.down))
        base += memory_items(context.topology, context.memory.state(), self._name, frozenset(context.down))
        check_room(context.topology.name, self._name, base, lambda table: context.program.size("tables", table))
        runs_ours = client.pipeline_cookie() == context.program.cookie
        self._take_over = take_over
        if runs_ours and not take_over:
            require_ours(context, client)
        if force or not runs_ours:
            client.push_pipeline()
            report.program_pushed = True
        installed = client.read_items()
        half_done = clean_up(context, client, installed)
        report.cleaned_up = [job.name for job in half_done]
        gone = {job.job_id for job in half_done}
        installed = [item for item in installed if job_of(item) not in gone]
        kept = self._sort(client, installed)
        waiting = {job.job_id for job in self.left}
        classes = context.store.classes(self._name)
        for job in kept:
            base += job_items(context.topology, job, self._name, priority=entry_priority(job, classes))
        self._apply(client, base, [item for item in installed if job_of(item) not in waiting])

    def _sort(self, client: SwitchClient, installed: list[Item]) -> list[Job]:
        """The jobs that stay as they are; the others are ``left``."""
        entries = [item for item in installed if isinstance(item, JobEntry)]
        self._others = {entry.job_id for entry in foreign(self._context, self._name, entries)}
        self._there[self._name] = by_job(installed)
        known = {entry.job_id for entry in entries} - self._others
        kept: list[Job] = []
        # In order of their numbers: claiming one takes all those below it, too.
        for job in sorted(self._context.store.jobs(self._name), key=lambda job: job.epoch.number):
            wanted = any(isinstance(item, JobEntry) for item in job_items(self._context.topology, job, self._name))
            if wanted and job.job_id not in known and not _is_unknown(job):
                self._lost.add(job.name)
            renewed = self._needs_epoch(client, job)
            (self.left if renewed or job.state is JobState.CHANGING else kept).append(job)
        return kept

    def _needs_epoch(self, client: SwitchClient, job: Job) -> bool:
        return job.name in self._lost or goes_around(self._context, job) or not _keeps_number(self._context, client, job)

    def _apply(self, client: SwitchClient, desired: list[Item], installed: list[Item]) -> None:
        steps = plan(desired, installed)
        apply(client, steps)
        kinds = [step.update.kind for step in steps]
        self.report.inserted += kinds.count(UpdateKind.INSERT)
        self.report.modified += kinds.count(UpdateKind.MODIFY)
        self.report.deleted += kinds.count(UpdateKind.DELETE)

    def take_turn(self, client: SwitchClient) -> None:
        """Restore the next jobs, on all of their switches."""
        context, turn, self.left = self._context, self.left[:TURN], self.left[TURN:]
        context.require_program(client)
        if not self._take_over:
            require_ours(context, client)
        jobs, before, fresh = [], [], {}
        for old in turn:
            job = context.store.find_job(old.name)
            if job is None or not job.exists or _done_meanwhile(old, job):
                continue
            if job != old:
                self._changed.add(job.name)
            before += self._of(client, job)
            job, fresh[job.name] = self._renewed(client, job)
            jobs.append(job)
        desired: list[Item] = []
        classes = context.store.classes(self._name)
        for job in jobs:
            items = job_items(context.topology, job, self._name, priority=entry_priority(job, classes))
            self._there[self._name][job.job_id] = items
            desired += items
        self._apply(client, desired, before)
        for job in jobs:
            if self._name in fresh[job.name] and not self.report.program_pushed:
                client.clear_outcomes(job.job_id)
        self._finish(client, jobs, fresh)

    def _of(self, client: SwitchClient, job: Job) -> list[Item]:
        """The part of a job on a switch before its turn."""
        if client.name not in self._there:
            self._there[client.name] = by_job(client.read_items())
        elif job.name in self._changed:
            return of_job(client.read_items(), job.job_id)
        return self._there[client.name].get(job.job_id, [])

    def _renewed(self, client: SwitchClient, job: Job) -> tuple[Job, frozenset[str]]:
        """The job, in a new epoch if it cannot continue in its own; and the switches on which its counters start at zero: those
        that are new to it, and this one if it has lost the job."""
        if _is_unknown(job):  # perhaps of another switch that has restarted meanwhile
            self._lost.discard(job.name)
        if not self._needs_epoch(client, job):
            return job, frozenset()
        resumes = is_resumable(job) and job.job_id not in self._others
        new = record_epoch(self._context, job, {client.name: client}, resumes=resumes)
        self.report.new_epochs[job.name] = new.epoch.number
        lost = {self._name} if job.name in self._lost else set()
        return new, frozenset(new.switches) - frozenset(job.switches) | lost

    def _finish(self, here: SwitchClient, jobs: list[Job], fresh: Mapping[str, frozenset[str]]) -> None:
        """Install these jobs on their other switches. Those that a job no longer needs are updated if they answer. If one that it
        needs does not answer, or has no program yet, the job waits until that switch is reconciled."""
        context = self._context
        alone = [job for job in jobs if job.switches == (here.name,)]
        with context.store.transaction():
            for job in alone:
                context.store.set_state(job.name, JobState.READY)
        spread_out = [job for job in jobs if job not in alone]
        needed = {name for job in spread_out for name in switches_of(job)}
        others = {name for job in spread_out for name in job.switches if name in context.topology.switches}
        others = (needed | others - context.down) - self._troubles.keys() - {here.name}
        with open_some(context, sorted(others), brief=True) as (clients, failures):
            self._troubles |= failures
            clients[here.name] = here
            for job in spread_out:
                self._finish_one(job, clients, fresh[job.name])

    def _finish_one(self, job: Job, clients: Clients, fresh: frozenset[str]) -> None:
        context = self._context
        clients = {name: client for name, client in clients.items() if name in job.switches}
        if self._must_wait(job, clients):
            return
        if not all(_keeps_number(context, client, job) for client in clients.values()):
            job = record_epoch(context, job, clients, resumes=is_resumable(job))
            self.report.new_epochs[job.name] = job.epoch.number
            if self._must_wait(job, clients):
                return
        for name in fresh & clients.keys() - {self._name}:
            clients[name].clear_outcomes(job.job_id)
        apply_on_all(clients, desired_on(context, job, clients), lambda client, _: self._before(client, job))
        settle_quietly(context, [clients[name] for name in fresh & clients.keys() - {self._name}], job)
        with context.store.transaction():
            context.store.set_state(job.name, JobState.READY)

    def _must_wait(self, job: Job, clients: Clients) -> bool:
        missing = [name for name in switches_of(job) if name not in clients]
        if missing:
            self.report.waiting[job.name] = str(self._troubles.get(missing[0], f"switch {missing[0]} has not been asked"))
        return bool(missing)

    def _before(self, client: SwitchClient, job: Job) -> list[Item]:
        """The part of a job on a switch now."""
        here = client.name == self._name
        return self._there[self._name][job.job_id] if here else self._of(client, job)


def _done_meanwhile(old: Job, job: Job) -> bool:
    """True if another command has installed another epoch of the job since it was read."""
    return job.epoch.number != old.epoch.number and job.state is JobState.READY


def _keeps_number(context: ControllerContext, client: SwitchClient, job: Job) -> bool:
    """True if the number of the job's epoch is, or can be, claimed on this switch too."""
    if client.name in job.epoch.shape.switches:
        try:
            claim_again(context, client, job)
        except NumberTakenError as error:
            log.warning("%s", error, extra=about(job))
            return False
    return True


def _is_unknown(job: Job) -> bool:
    """True if the epoch resumes another and no member knows it yet, so that it needs no successor."""
    epoch = job.epoch
    return epoch.resumes is not None and (epoch.rejoin is Rejoin.WAITING or job.state is JobState.CHANGING)


def reconcile(
    context: ControllerContext, names: Iterable[str] = (), *, force: bool = False, take_over: bool = False
) -> Iterator[Report]:
    """Reconcile the named switches, or all; those that answer get paths around those that do not. A switch that fails does not
    stop the others: at the end :class:`SwitchError` (or :class:`StateError`) says what failed."""
    find_down(context)
    failures: list[ControllerError] = []
    for name in list(names) or context.topology.switches:
        try:
            yield reconcile_switch(context, name, force=force, take_over=take_over)
        except (SwitchError, StateError) as error:
            failures.append(error)
    if failures:
        raise (StateError if isinstance(failures[0], StateError) else SwitchError)("; ".join(map(str, failures)))
