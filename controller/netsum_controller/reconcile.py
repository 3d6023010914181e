"""Desired state against read-back: loads the program where it is not, puts right what differs, leaves the rest."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, field

from netsum_controller.client import Kind
from netsum_controller.converge import apply, plan
from netsum_controller.desired import switch_items
from netsum_controller.epochs import goes_around, is_resumable, record_new_epoch, record_resuming_epoch
from netsum_controller.errors import ControllerError, SwitchError
from netsum_controller.job_items import job_items
from netsum_controller.jobs import clean_up
from netsum_controller.logs import about
from netsum_controller.model import Job, JobState, Rejoin
from netsum_controller.priorities import priority_on, settle_quietly
from netsum_controller.reach import find_down
from netsum_controller.site import Site
from netsum_controller.spread import desired_items, open_clients, spread, taking_part
from netsum_controller.stages import Item, JobEntry

log = logging.getLogger(__name__)


@dataclass
class Report:
    """What was done to a switch. All empty: it was as it should be."""

    switch: str
    program_pushed: bool = False
    inserted: int = 0
    modified: int = 0
    deleted: int = 0
    new_epochs: dict[str, int] = field(default_factory=dict)
    """Jobs that the switch had lost, or that go around one that is down, and the epoch under which they are back."""
    cleaned_up: list[str] = field(default_factory=list)
    """Jobs of which an interrupted command had left parts."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Jobs that wait for another switch of theirs, and what is wrong with it; they go on when it has been reconciled."""

    @property
    def changed(self) -> bool:
        """Whether anything was done."""
        counts = self.inserted + self.modified + self.deleted
        return bool(self.program_pushed or counts or self.new_epochs or self.cleaned_up)


def reconcile_switch(site: Site, name: str, *, force: bool = False) -> Report:
    """Make one switch what the topology and the store say; ``force`` loads the program even if it is there.

    A switch that has lost a job also lost its records (it restarted), so the job comes back under a new epoch: its
    members are refused and rejoin, and where that is possible the new epoch goes on with the old. That is so on all
    switches of the job; and when one of its others is down (``site.down``), and its trees can do without it. Raises
    :class:`SwitchError`; the switch is then as it was, but for a program just loaded.
    """
    try:
        report = _reconcile(site, name, force=force)
    except ControllerError:
        site.tally.add("reconciles", name, "failed")
        raise
    site.tally.add("reconciles", name, "changed" if report.changed else "unchanged")
    return report


def _reconcile(site: Site, name: str, *, force: bool) -> Report:
    with site.store.lock, site.client(name) as client:
        report = Report(name)
        if force or client.pipeline_cookie() != site.program.cookie:
            client.push_pipeline()
            report.program_pushed = True
        report.cleaned_up = clean_up(site, client)
        installed = client.read_items()
        fresh = _begin_epochs(site, name, installed, report)
        desired = switch_items(site.topology, name, frozenset(site.down))
        for job in site.store.jobs(name):
            desired += job_items(site.topology, job, name, priority=priority_on(site, job, name))
        steps = plan(desired, installed)
        apply(client, steps)
        for job in site.store.jobs(name):
            if name in fresh.get(job.name, ()) and not report.program_pushed:
                client.clear_outcomes(job.job_id)
            if job.state is JobState.CHANGING:
                _finish(site, job, name, fresh.get(job.name, frozenset()), report)
        kinds = [step.update.kind for step in steps]
        report.inserted, report.modified, report.deleted = (kinds.count(kind) for kind in Kind)
        log.info("switch %s: %s", name, report, extra={"switch": name})
        return report


def _begin_epochs(site: Site, name: str, installed: list[Item], report: Report) -> dict[str, frozenset[str]]:
    """New epochs for the jobs that cannot go on in theirs; returns the switches on which each starts counting at zero: those
    that are new to it, and this one if it has lost the job."""
    known = {item.job_id for item in installed if isinstance(item, JobEntry)}
    fresh = {}
    for job in site.store.jobs(name):
        wanted = any(isinstance(item, JobEntry) for item in job_items(site.topology, job, name))
        lost = wanted and job.job_id not in known and not _nobody_has(job)
        if lost or goes_around(site, job):
            new = record_resuming_epoch(site, job) if is_resumable(job) else record_new_epoch(site, job, None)
            report.new_epochs[job.name] = new.epoch.number
            fresh[job.name] = frozenset(new.switches) - frozenset(job.switches) | ({name} if lost else frozenset())
    return fresh


def _nobody_has(job: Job) -> bool:
    """Whether the epoch resumes another and no member has been told of it yet: it needs no successor."""
    epoch = job.epoch
    return epoch.resumes is not None and (epoch.rejoin is Rejoin.WAITING or job.state is JobState.CHANGING)


def _finish(site: Site, job: Job, here: str, fresh: frozenset[str], report: Report) -> None:
    """Install a job's epoch on its other switches than ``here``; of those that it no longer needs, on what answers. When one that
    it needs does not answer, or has no program yet, the job waits until that one is reconciled."""
    needed = [name for name in taking_part(job) if name != here]
    with ExitStack() as stack:
        try:
            clients = stack.enter_context(open_clients(site, needed))
        except SwitchError as error:
            report.waiting[job.name] = str(error)
            return
        for name in fresh & clients.keys():
            clients[name].clear_outcomes(job.job_id)
        for name in job.switches:
            if name not in (here, *needed, *site.down) and name in site.topology.switches:
                try:
                    clients |= stack.enter_context(open_clients(site, [name]))
                except SwitchError as error:
                    log.info("job %s: %s", job.name, error, extra=about(job))
        spread(clients, job.job_id, desired_items(site, job, [name for name in job.switches if name in clients]))
        settle_quietly(site, clients.values())
    with site.store.transaction():
        site.store.set_state(job.name, JobState.READY)


def reconcile(site: Site, *, force: bool = False) -> list[Report]:
    """Every switch of the topology; those that answer get paths around those that do not. One that fails does not keep the
    others from being done; then :class:`SwitchError` says what failed."""
    find_down(site)
    reports, failures = [], []
    for name in site.topology.switches:
        try:
            reports.append(reconcile_switch(site, name, force=force))
        except SwitchError as error:
            failures.append(error)
    if failures:
        raise SwitchError("; ".join(map(str, failures)))
    return reports
