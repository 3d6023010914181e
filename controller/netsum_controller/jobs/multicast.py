# SPDX-License-Identifier: MIT
"""IP multicast: which members of a job have joined its group, and so get their results once for all of them at a port."""

from __future__ import annotations

import logging
from dataclasses import replace

from netsum_controller.context import ControllerContext
from netsum_controller.jobs.transaction import install, open_clients, switches_of
from netsum_controller.observability import about
from netsum_controller.state.model import Job

log = logging.getLogger(__name__)


def note_group(context: ControllerContext, job: Job, rank: int, group: str) -> Job:
    """Take a rank's word for the IP multicast ``group`` (HOST:PORT) that it has joined: from now on its results come there; "":
    by unicast. A report of another group than the job's changes nothing, since it is from before an eviction. Of ranks that share
    memory, it is the leader's that counts. Repeating it changes nothing. Call it under the state lock. Raises
    :class:`SwitchError`; then nothing has changed, and the rank must repeat it."""
    seats, joined = job.epoch.seats, bool(group)
    if not (job.multicast and job.by_switch) or group not in ("", job.group) or seats[rank].multicast == joined:
        return job
    seats = tuple(replace(seat, multicast=joined) if seat.rank == rank else seat for seat in seats)
    new = replace(job, epoch=replace(job.epoch, seats=seats))
    with open_clients(context, switches_of(job), brief=True) as clients:
        install(context, new, clients, before=job)
    with context.store.transaction():
        context.store.set_multicast(job.epoch.number, rank, joined)
    by = "IP multicast" if joined else "unicast"
    log.info("job %s: the results of rank %d come by %s", job.name, rank, by, extra=about(job, rank=rank))
    return new
