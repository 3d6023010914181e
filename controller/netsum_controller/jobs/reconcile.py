"""Reconciling: loads the program where it is missing, and corrects whatever differs from the desired state."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from netsum_controller.errors import ControllerError, StateError, SwitchError
from netsum_controller.jobs.claims import NumberTaken, claim_again, foreign, require_ours
from netsum_controller.jobs.epochs import goes_around, is_resumable, record_epoch
from netsum_controller.jobs.lifecycle import clean_up
from netsum_controller.jobs.priorities import priority_on, settle_quietly
from netsum_controller.jobs.spread import install, open_clients, taking_part
from netsum_controller.logs import about
from netsum_controller.memory.items import memory_items
from netsum_controller.p4runtime.client import Kind, SwitchClient
from netsum_controller.p4runtime.converge import apply, plan
from netsum_controller.planning.job_items import job_items
from netsum_controller.planning.switch_items import switch_items
from netsum_controller.site import Site, find_down
from netsum_controller.stages import Item, JobEntry
from netsum_controller.state.model import Job, JobState, Rejoin

log = logging.getLogger(__name__)


@dataclass
class Report:
    """What was done to a switch; empty if nothing was wrong."""

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


def reconcile_switch(site: Site, name: str, *, force: bool = False, take_over: bool = False) -> Report:
    """Make one switch what the topology and the store say. ``force`` loads the program even if it is there; ``take_over``
    removes the jobs of another state file.

    A switch that has lost a job has restarted and lost its records too, so the job comes back under a new epoch on all of its
    switches: its members are refused and rejoin, and if possible the new epoch resumes the old one. The same happens if another
    of its switches is down (``site.down``) and trees can avoid it. Raises :class:`SwitchError`, or :class:`StateError` if it has
    jobs of another state file; then nothing but a freshly loaded program has changed.
    """
    try:
        report = _reconcile(site, name, force=force, take_over=take_over)
    except ControllerError:
        site.tally.add("reconciles", name, "failed")
        raise
    site.tally.add("reconciles", name, "changed" if report.changed else "unchanged")
    return report


def _reconcile(site: Site, name: str, *, force: bool, take_over: bool) -> Report:
    with site.store.lock, site.client(name) as client:
        report = Report(name)
        runs_ours = client.pipeline_cookie() == site.program.cookie
        if runs_ours and not take_over:
            require_ours(site, client)
        if force or not runs_ours:
            client.push_pipeline()
            report.program_pushed = True
        report.cleaned_up = clean_up(site, client)
        installed = client.read_items()
        fresh = _begin_epochs(site, client, installed, report)
        desired = switch_items(site.topology, name, frozenset(site.down))
        desired += memory_items(site.topology, site.memory.state(), name, frozenset(site.down))
        for job in site.store.jobs(name):
            desired += job_items(site.topology, job, name, priority=priority_on(site, job, name))
        steps = plan(desired, installed)
        apply(client, steps)
        for job in site.store.jobs(name):
            if name in fresh.get(job.name, ()) and not report.program_pushed:
                client.clear_outcomes(job.job_id)
            if job.state is JobState.CHANGING:
                _finish(site, job, client, fresh.get(job.name, frozenset()), report)
        kinds = [step.update.kind for step in steps]
        report.inserted, report.modified, report.deleted = (kinds.count(kind) for kind in Kind)
        log.info("switch %s: %s", name, report, extra={"switch": name})
        return report


def _begin_epochs(site: Site, client: SwitchClient, installed: list[Item], report: Report) -> dict[str, frozenset[str]]:
    """Begin new epochs for the jobs that cannot continue in theirs. Returns, for each, the switches on which its counters start
    at zero: those that are new to it, and this one if it has lost the job."""
    name, clients = client.name, {client.name: client}
    entries = [item for item in installed if isinstance(item, JobEntry)]
    others = {entry.job_id for entry in foreign(site, name, entries)}
    known = {entry.job_id for entry in entries} - others
    fresh = {}
    # In order of their numbers: claiming one takes all those below it, too.
    for job in sorted(site.store.jobs(name), key=lambda job: job.epoch.number):
        wanted = any(isinstance(item, JobEntry) for item in job_items(site.topology, job, name))
        lost = wanted and job.job_id not in known and not _nobody_has(job)
        if lost or goes_around(site, job) or not _keeps_number(site, client, job):
            resumes = is_resumable(job) and job.job_id not in others
            new = record_epoch(site, job, clients, resumes=resumes)
            report.new_epochs[job.name] = new.epoch.number
            fresh[job.name] = frozenset(new.switches) - frozenset(job.switches) | ({name} if lost else frozenset())
    return fresh


def _keeps_number(site: Site, client: SwitchClient, job: Job) -> bool:
    """Whether the number of the job's epoch is, or can be, claimed on this switch too."""
    if client.name in job.epoch.shape.switches:
        try:
            claim_again(site, client, job)
        except NumberTaken as error:
            log.warning("%s", error, extra=about(job))
            return False
    return True


def _nobody_has(job: Job) -> bool:
    """Whether the epoch resumes another and no member knows it yet, so that it needs no successor."""
    epoch = job.epoch
    return epoch.resumes is not None and (epoch.rejoin is Rejoin.WAITING or job.state is JobState.CHANGING)


def _finish(site: Site, job: Job, here: SwitchClient, fresh: frozenset[str], report: Report) -> None:
    """Install a job's epoch on its switches other than ``here``. Switches that it no longer needs are updated if they answer.
    If one that it needs does not answer, or has no program yet, the job waits until that switch is reconciled."""
    needed = [name for name in taking_part(job) if name != here.name]
    with ExitStack() as stack:
        try:
            clients = stack.enter_context(open_clients(site, needed, brief=True))
        except (SwitchError, StateError) as error:
            report.waiting[job.name] = str(error)
            return
        clients[here.name] = here
        if not all(_keeps_number(site, client, job) for client in clients.values()):
            job = record_epoch(site, job, clients, resumes=is_resumable(job))
            report.new_epochs[job.name] = job.epoch.number
        for name in fresh & clients.keys():
            clients[name].clear_outcomes(job.job_id)
        for name in job.switches:
            if name not in (*clients, *site.down) and name in site.topology.switches:
                try:
                    clients |= stack.enter_context(open_clients(site, [name]))
                except SwitchError as error:
                    log.info("job %s: %s", job.name, error, extra=about(job))
        install(site, job, clients)
        settle_quietly(site, clients.values())
    with site.store.transaction():
        site.store.set_state(job.name, JobState.READY)


def reconcile(
    site: Site, names: Iterable[str] = (), *, force: bool = False, take_over: bool = False
) -> Iterator[Report]:
    """Reconcile the named switches, or all; those that answer get paths around those that do not. A switch that fails does not
    stop the others: at the end :class:`SwitchError` (or :class:`StateError`) says what failed."""
    find_down(site)
    failures: list[ControllerError] = []
    for name in list(names) or site.topology.switches:
        try:
            yield reconcile_switch(site, name, force=force, take_over=take_over)
        except (SwitchError, StateError) as error:
            failures.append(error)
    if failures:
        raise (StateError if isinstance(failures[0], StateError) else SwitchError)("; ".join(map(str, failures)))
