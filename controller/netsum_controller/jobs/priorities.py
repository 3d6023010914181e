"""Priorities between the jobs of a switch: strict between classes, and nothing within one.

A job entry carries ``priority``, its class + 1, only while jobs of different classes are on the switch; else 0, and the switch
looks at no priorities at all. So when a job comes or goes, the other jobs' entries may change: in place, in the same epoch,
and members notice nothing but that they are told to give way.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from netsum_controller.errors import SwitchError
from netsum_controller.p4runtime.client import Kind, SwitchClient, Update
from netsum_controller.p4runtime.converge import Step, apply
from netsum_controller.site import Site
from netsum_controller.stages import JobEntry
from netsum_controller.state.model import Job, JobState

log = logging.getLogger(__name__)


def entry_priority(job: Job, there: Iterable[Job]) -> int:
    """What a job's entry has on a switch where these jobs are, itself or not."""
    classes = {job.priority, *(other.priority for other in there if other.state is not JobState.DELETING)}
    return job.priority + 1 if len(classes) > 1 else 0


def priority_on(site: Site, job: Job, switch: str) -> int:
    """What a job's entry has on one of its switches."""
    return entry_priority(job, site.store.jobs(switch))


def settle(site: Site, client: SwitchClient) -> int:
    """Give all job entries of a switch the priority that they should have by now, and change nothing else; the number of
    entries that had another. Call it under the state lock, when the store knows who comes or goes. Raises
    :class:`SwitchError`; then all have what they had."""
    jobs = {job.job_id: job for job in site.store.jobs(client.name) if job.state is not JobState.DELETING}
    if not jobs:
        return 0
    steps = []
    for item in client.read_items():
        if isinstance(item, JobEntry) and item.job_id in jobs:
            priority = entry_priority(jobs[item.job_id], jobs.values())
            if item.priority != priority:
                steps.append(Step(Update(Kind.MODIFY, replace(item, priority=priority)), item))
    apply(client, steps)
    return len(steps)


def settle_quietly(site: Site, clients: Iterable[SwitchClient]) -> None:
    """The same on several switches, after something that is done whatever becomes of this; ``netsum reconcile`` does what
    cannot be done now."""
    for client in clients:
        try:
            settle(site, client)
        except SwitchError as error:
            log.warning(
                "switch %s: priorities stay as they were: %s", client.name, error, extra={"switch": client.name}
            )
