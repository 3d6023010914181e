# SPDX-License-Identifier: MIT
"""Priorities between the jobs of a switch: strict between classes, none within a class.

A job entry carries ``priority``, its class + 1, only while jobs of different classes are on the switch; otherwise it is 0 and the
switch ignores priorities. So when a job comes or goes, the other jobs' entries may change. They change in place, in the same
epoch; members only notice that they are told to give way.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import replace

from netsum_controller.context import ControllerContext
from netsum_controller.entries import JobEntry
from netsum_controller.errors import SwitchError
from netsum_controller.p4runtime.client import SwitchClient, Update, UpdateKind
from netsum_controller.p4runtime.converge import AppliedUpdate, apply
from netsum_controller.state.model import Job, JobState

log = logging.getLogger(__name__)


def entry_priority(job: Job, classes: Collection[int]) -> int:
    """The priority in a job's entry on a switch whose jobs are of these classes (its own may be among them)."""
    return job.priority + 1 if len({job.priority, *classes}) > 1 else 0


def priority_on(context: ControllerContext, job: Job, switch: str) -> int:
    """The priority in a job's entry on one of its switches."""
    return entry_priority(job, context.store.classes(switch))


def settle(context: ControllerContext, client: SwitchClient, because: Job) -> int:
    """Update only the priority of every other job entry of a switch, because a job comes or goes; returns how many changed. Call
    it under the state lock, once the store knows. Raises :class:`SwitchError`; then nothing has changed."""
    others = context.store.classes(client.name, but=because.name)
    if others <= {because.priority} or len(others) > 1:
        return 0  # with it or without, they are of one class, or of several
    classes = context.store.classes(client.name)
    jobs = {job.job_id: job for job in context.store.jobs(client.name) if job.state is not JobState.DELETING}
    steps = []
    for item in client.read_entries(JobEntry):
        if isinstance(item, JobEntry) and item.job_id in jobs:
            priority = entry_priority(jobs[item.job_id], classes)
            if item.priority != priority:
                steps.append(AppliedUpdate(Update(UpdateKind.MODIFY, replace(item, priority=priority)), item))
    apply(client, steps)
    return len(steps)


def settle_quietly(context: ControllerContext, clients: Iterable[SwitchClient], because: Job) -> None:
    """:func:`settle` on several switches, where failure must not undo what was done before; ``netsum reconcile`` repairs it."""
    for client in clients:
        try:
            settle(context, client, because)
        except SwitchError as error:
            log.warning("switch %s: priorities stay as they were: %s", client.name, error, extra={"switch": client.name})
