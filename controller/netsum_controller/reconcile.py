"""Desired state against read-back: loads the program where it is not, puts right what differs, leaves the rest."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from netsum_controller.client import Kind, SwitchClient
from netsum_controller.converge import apply, plan
from netsum_controller.desired import job_items, switch_items
from netsum_controller.epochs import is_resumable, record_new_epoch, record_resuming_epoch
from netsum_controller.errors import ControllerError, SwitchError
from netsum_controller.jobs import clean_up
from netsum_controller.model import Job, JobState, Rejoin
from netsum_controller.reach import find_down
from netsum_controller.site import Site
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
    """Jobs that the switch had lost, and the epoch under which they are back."""
    cleaned_up: list[str] = field(default_factory=list)
    """Jobs of which an interrupted command had left parts."""

    @property
    def changed(self) -> bool:
        """Whether anything was done."""
        counts = self.inserted + self.modified + self.deleted
        return bool(self.program_pushed or counts or self.new_epochs or self.cleaned_up)


def reconcile_switch(site: Site, name: str, *, force: bool = False) -> Report:
    """Make one switch what the topology and the store say; ``force`` loads the program even if it is there.

    A switch that has lost a job also lost its records (it restarted), so the job comes back under a new epoch: its
    members are refused and rejoin, and where that is possible the new epoch goes on with the old. Raises
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
        desired = _desired(site, name, installed, report)
        steps = plan(desired, installed)
        apply(client, steps)
        with site.store.transaction():
            for job in site.store.jobs(name):
                site.store.set_state(job.name, JobState.READY)  # half-made ones are gone since clean_up
        _clear_new(site, client, report)
        kinds = [step.update.kind for step in steps]
        report.inserted, report.modified, report.deleted = (kinds.count(kind) for kind in Kind)
        log.info("switch %s: %s", name, report, extra={"switch": name})
        return report


def _desired(site: Site, name: str, installed: list[Item], report: Report) -> list[Item]:
    desired = switch_items(site.topology, name, frozenset(site.down))
    known = {item.job_id for item in installed if isinstance(item, JobEntry)}
    for job in site.store.jobs(name):
        current = job
        if job.job_id not in known and not _nobody_has(job):
            current = record_resuming_epoch(site, job) if is_resumable(job) else record_new_epoch(site, job, None)
            report.new_epochs[job.name] = current.epoch.number
        desired += job_items(site.topology, current)
    return desired


def _nobody_has(job: Job) -> bool:
    """Whether the epoch resumes another and no member has been told of it yet: it needs no successor."""
    epoch = job.epoch
    return epoch.resumes is not None and (epoch.rejoin is Rejoin.WAITING or job.state is JobState.CHANGING)


def _clear_new(site: Site, client: SwitchClient, report: Report) -> None:
    """A job that came back to a switch without its records starts counting at zero there too."""
    if not report.program_pushed:
        for name in report.new_epochs:
            client.clear_outcomes(site.store.job(name).job_id)


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
