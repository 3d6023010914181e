"""One job on several switches: every change is made on all of them or on none."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from netsum_controller.errors import SwitchError
from netsum_controller.jobs.claims import require_ours
from netsum_controller.jobs.priorities import priority_on
from netsum_controller.p4runtime.client import SwitchClient
from netsum_controller.p4runtime.converge import RollbackError, apply, plan
from netsum_controller.planning.job_items import job_items, of_job
from netsum_controller.site import Site, at_once
from netsum_controller.stages import Item
from netsum_controller.state.model import Job

log = logging.getLogger(__name__)

Clients = Mapping[str, SwitchClient]
"""Clients by switch name."""


@contextmanager
def open_clients(site: Site, switches: Iterable[str], *, brief: bool = False) -> Iterator[dict[str, SwitchClient]]:
    """Clients for all these switches, opened at the same time. Before anything is changed, raises :class:`SwitchError` or
    :class:`StateError` if one does not answer, does not run our program, or has jobs of another controller. ``brief`` is as for
    :meth:`Site.client`. Not to be called in a transaction."""
    clients = {name: site.client(name, brief=brief) for name in dict.fromkeys(switches)}

    def open_one(name: str) -> None:
        client = clients[name].connect()
        site.require_program(client)
        require_ours(site, client)

    with ExitStack() as stack:
        for client in clients.values():
            stack.callback(client.close)
        at_once(open_one, clients)
        yield clients


def converge_job(client: SwitchClient, job_id: int, desired: Sequence[Item]) -> int:
    """Bring the job's part of a switch up to date and leave the rest alone; returns the number of updates."""
    steps = plan(desired, of_job(client.read_items(), job_id))
    apply(client, steps)
    return len(steps)


def spread(clients: Clients, job_id: int, desired: Mapping[str, Sequence[Item]]) -> int:
    """Bring the job's part of several switches up to date, one after the other; returns the number of updates. When one
    fails, those before it are rolled back. Raises :class:`SwitchError`, or its subclass :class:`RollbackError` if a switch is
    left half updated."""
    done: list[tuple[SwitchClient, list[Item], Sequence[Item]]] = []
    updates = 0
    for name, items in desired.items():
        client = clients[name]
        try:
            before = of_job(client.read_items(), job_id)
            steps = plan(items, before)
            apply(client, steps)
        except SwitchError as error:
            failure = _take_back(done)
            if failure is None:
                raise
            raise RollbackError(f"{error}; undoing the changes on other switches failed too: {failure}") from error
        done.append((client, before, items))
        updates += len(steps)
    return updates


def _take_back(done: list[tuple[SwitchClient, list[Item], Sequence[Item]]]) -> SwitchError | None:
    """Undo as much as possible; returns the first failure."""
    first = None
    for client, before, after in reversed(done):
        try:
            apply(client, plan(before, after))
        except SwitchError as error:
            log.warning("rollback on switch %s failed: %s", client.name, error, extra={"switch": client.name})
            first = first or error
    return first


def install(site: Site, job: Job, clients: Clients, switches: Iterable[str] | None = None) -> int:
    """Bring the job's part of its switches that have clients up to date, parents before children (or, of ``switches``, in
    that order), on all or on none; returns the number of updates. Raises what :func:`spread` raises."""
    names = job.switches if switches is None else switches
    desired = {
        name: job_items(site.topology, job, name, priority=priority_on(site, job, name))
        for name in names
        if name in clients and name in site.topology.switches
    }
    return spread(clients, job.job_id, desired)


def taking_part(job: Job) -> tuple[str, ...]:
    """The switches of the job's trees, parents before children."""
    return tuple(name for name in job.switches if name in job.epoch.shape.switches)
