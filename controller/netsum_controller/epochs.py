"""Epochs: each life of a job has a number of its own, fresh UDP ports, and block ids that no earlier life has used."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from netsum_controller.allocation import SERIAL, UDP_PORTS, allocate_first_block_id, allocate_ports
from netsum_controller.client import SwitchClient
from netsum_controller.converge import RollbackError, apply, plan
from netsum_controller.desired import belongs_to, job_items
from netsum_controller.errors import ControllerError, Refused, SwitchError
from netsum_controller.logs import about
from netsum_controller.model import Epoch, Job, JobState, Late, Rejoin, Seat
from netsum_controller.site import Site

log = logging.getLogger(__name__)

FILE_INSTANCE = "descriptor file"
"""The instance of members that got their descriptors from files: they do not talk to the controller, nor rejoin."""

_RECORD_TIMEOUT = 2.0
"""Seconds to wait for the record that tells how far an epoch got; without it a generous guess serves."""


def make_epoch(
    site: Site, switches: Sequence[str], job_id: int, members: Sequence[str], evicted: Collection[int] = ()
) -> tuple[Epoch, int]:
    """A new epoch and the next port cursor; ``evicted`` ranks stay out of it. Call it in a transaction of the store,
    which remembers the number."""
    allocated = allocate_ports(site.store.port_cursor, members, site.store.used_ports())
    if allocated is None:
        raise Refused(f"no UDP ports left for {len(members)} members (each host has {len(UDP_PORTS)})")
    ports, cursor = allocated
    first_block_id = allocate_first_block_id(site.store.used_ranges(switches, job_id))
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
    if job.epoch.rejoin is Rejoin.WAITING:
        return _told(job)
    try:
        record = client.query_records([job.slot_base], _RECORD_TIMEOUT)[job.slot_base]
    except SwitchError as error:
        log.warning(
            "cannot tell how far epoch %d of job %s got: %s", job.epoch.number, job.name, error, extra=about(job)
        )
        return None
    opened = 0
    if record.epoch == job.epoch.number:
        opened = (record.block_id - job.epoch.first_block_id) % (1 << 32)
    return int(opened + job.slots + job.window)


def _told(job: Job) -> int | None:
    """Upper bound of the ids used by the epoch that the job's current one resumes, as far as its members have told."""
    first = job.epoch.first_block_id
    told = [(seat.needs - first) % SERIAL for seat in job.epoch.members if seat.needs is not None]
    return max(told) + 2 * job.window if told else None


def record_new_epoch(site: Site, job: Job, used: int | None) -> Job:
    """Store a new epoch as the job's current one. The switch does not know it yet, so the job is ``CHANGING``."""
    with site.store.transaction():
        site.store.set_used_ids(job.epoch.number, used)
        epoch, cursor = make_epoch(site, job.switches, job.job_id, job.members, job.epoch.evicted)
        _make_current(site, job, epoch, cursor)
    return replace(job, epoch=epoch, state=JobState.CHANGING)


def _make_current(site: Site, job: Job, epoch: Epoch, cursor: int) -> None:
    site.store.add_epoch(job, epoch, cursor)
    site.store.set_epoch(job.name, epoch.number)
    site.store.set_state(job.name, JobState.CHANGING)


def is_resumable(job: Job) -> bool:
    """Whether the job's current epoch, lost by its switch, can go on in another one. Not one that somebody has left:
    the contributions that it kept are gone. Nor one of which somebody was evicted after it had joined: results that
    some hold have its part, and the others would get them without. Nor a partial result, which nobody can make again."""
    seats = job.epoch.seats
    return (
        job.late is Late.WAIT
        and any(seat.joined for seat in seats)
        and not any(seat.left or (seat.joined and seat.evicted) for seat in seats)
        and not any(seat.instance == FILE_INSTANCE for seat in seats)
    )


def record_resuming_epoch(site: Site, job: Job) -> Job:
    """Store an epoch that goes on with the job's current one, which its switch has lost; each seat stays with its
    instance. Where it begins is known when all members have rejoined (:mod:`netsum_controller.rejoin`). But when not all
    had joined the old one, none of its blocks can have been finished, and it simply begins again."""
    old = job.epoch
    waits = all(seat.joined for seat in old.members)
    with site.store.transaction():
        fresh, cursor = make_epoch(site, job.switches, job.job_id, job.members, old.evicted)
        epoch = replace(
            fresh,
            first_block_id=old.first_block_id,
            seats=tuple(
                replace(seat, instance=before.instance) for seat, before in zip(fresh.seats, old.seats, strict=True)
            ),
            resumes=old.number,
            rejoin=Rejoin.WAITING if waits else Rejoin.DONE,
        )
        site.store.set_used_ids(old.number, None if waits else 2 * job.window)
        _make_current(site, job, epoch, cursor)
    return replace(job, epoch=epoch, state=JobState.CHANGING)


def install(site: Site, job: Job) -> None:
    """Make the job's part of its switch what it should be. Call it under the state lock."""
    with site.client(job.switch) as client:
        site.require_program(client)
        _converge(site, client, job)


def _converge(site: Site, client: SwitchClient, job: Job) -> None:
    installed = [item for item in client.read_items() if belongs_to(item, job.job_id)]
    apply(client, plan(job_items(site.topology, job), installed))


def begin_epoch(site: Site, job: Job) -> Job:
    """A new epoch for all members, on the switch before this returns; what still sends in the old one is refused there.

    When the switch refuses, the old epoch goes on and the error is raised. Call it under the state lock.
    """
    with site.client(job.switch) as client:
        site.require_program(client)
        new = record_new_epoch(site, job, used_ids(client, job))
        try:
            _converge(site, client, new)
        except ControllerError as error:
            if not isinstance(error, RollbackError):
                with site.store.transaction():
                    site.store.set_epoch(job.name, job.epoch.number)
                    site.store.set_state(job.name, job.state)
            raise
        with site.store.transaction():
            site.store.set_state(job.name, JobState.READY)
    first = new.epoch.first_block_id
    log.info("job %s: epoch %d, first block %d", job.name, new.epoch.number, first, extra=about(new, block=first))
    return replace(new, state=JobState.READY)
