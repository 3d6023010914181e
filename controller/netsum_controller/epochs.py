"""Epochs: each life of a job has a number of its own, fresh UDP ports, and block ids that no earlier life has used."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from netsum_controller.allocation import UDP_PORTS, allocate_first_block_id, allocate_ports
from netsum_controller.client import SwitchClient
from netsum_controller.converge import RollbackError, apply, plan
from netsum_controller.desired import belongs_to, job_items
from netsum_controller.errors import ControllerError, Refused, SwitchError
from netsum_controller.model import Epoch, Job, JobState, Seat
from netsum_controller.site import Site

log = logging.getLogger(__name__)

_RECORD_TIMEOUT = 2.0
"""Seconds to wait for the record that tells how far an epoch got; without it a generous guess serves."""


def make_epoch(
    site: Site, switch: str, job_id: int, members: Sequence[str], evicted: Collection[int] = ()
) -> tuple[Epoch, int]:
    """A new epoch and the next port cursor; ``evicted`` ranks stay out of it. Call it in a transaction of the store,
    which remembers the number."""
    allocated = allocate_ports(site.store.port_cursor, members, site.store.used_ports())
    if allocated is None:
        raise Refused(f"no UDP ports left for {len(members)} members (each host has {len(UDP_PORTS)})")
    ports, cursor = allocated
    first_block_id = allocate_first_block_id(site.store.used_ranges(switch, job_id))
    seats = tuple(
        Seat(rank=rank, src_id=rank, host=host, udp_port=port, evicted=rank in evicted)
        for rank, (host, port) in enumerate(zip(members, ports, strict=True))
    )
    return Epoch(site.store.take_epoch_number(), first_block_id, seats), cursor


def used_ids(client: SwitchClient, job: Job) -> int | None:
    """Upper bound of the block ids that the job's current epoch has used; None when the switch cannot tell.

    One record is enough: when slot s holds block b, block b + slots has not been opened yet, so no host holds its
    result, and none has sent a block beyond it by a window or more.
    """
    try:
        record = client.query_records([job.slot_base], _RECORD_TIMEOUT)[job.slot_base]
    except SwitchError as error:
        log.warning("cannot tell how far epoch %d of job %s got: %s", job.epoch.number, job.name, error)
        return None
    opened = 0
    if record.epoch == job.epoch.number:
        opened = (record.block_id - job.epoch.first_block_id) % (1 << 32)
    return int(opened + job.slots + job.window)


def record_new_epoch(site: Site, job: Job, used: int | None) -> Job:
    """Store a new epoch as the job's current one. The switch does not know it yet, so the job is ``CHANGING``."""
    with site.store.transaction():
        site.store.set_used_ids(job.epoch.number, used)
        epoch, cursor = make_epoch(site, job.switch, job.job_id, job.members, job.epoch.evicted)
        site.store.add_epoch(job.name, job.switch, job.job_id, epoch, cursor)
        site.store.set_epoch(job.name, epoch.number)
        site.store.set_state(job.name, JobState.CHANGING)
    return replace(job, epoch=epoch, state=JobState.CHANGING)


def begin_epoch(site: Site, job: Job) -> Job:
    """A new epoch for all members, on the switch before this returns; what still sends in the old one is refused there.

    When the switch refuses, the old epoch goes on and the error is raised. Call it under the state lock.
    """
    with site.client(job.switch) as client:
        site.require_program(client)
        new = record_new_epoch(site, job, used_ids(client, job))
        try:
            installed = [item for item in client.read_items() if belongs_to(item, job.job_id)]
            apply(client, plan(job_items(site.topology, new), installed))
        except ControllerError as error:
            if not isinstance(error, RollbackError):
                with site.store.transaction():
                    site.store.set_epoch(job.name, job.epoch.number)
                    site.store.set_state(job.name, job.state)
            raise
        with site.store.transaction():
            site.store.set_state(job.name, JobState.READY)
    log.info("job %s: epoch %d, first block %d", job.name, new.epoch.number, new.epoch.first_block_id)
    return replace(new, state=JobState.READY)
