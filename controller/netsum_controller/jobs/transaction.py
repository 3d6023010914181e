# SPDX-License-Identifier: MIT
"""One job on several switches: every change is made on all of them or on none."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from netsum_controller.context import ControllerContext, at_once
from netsum_controller.entries import Item
from netsum_controller.errors import ControllerError, RejectedError, StateError, SwitchError
from netsum_controller.jobs.epoch_numbers import require_ours
from netsum_controller.jobs.priorities import priority_on
from netsum_controller.p4runtime.client import SwitchClient
from netsum_controller.p4runtime.converge import RollbackError, apply, plan
from netsum_controller.planning.items import job_items, of_job
from netsum_controller.state.model import Job, JobState

log = logging.getLogger(__name__)

Clients = Mapping[str, SwitchClient]
"""Clients by switch name."""


@contextmanager
def open_clients(
    context: ControllerContext, switches: Iterable[str], *, brief: bool = False
) -> Iterator[dict[str, SwitchClient]]:
    """Clients for all these switches, opened at the same time. Before anything is changed, raises :class:`SwitchError` or
    :class:`StateError` if one does not answer, does not run our program, or has jobs of another controller. ``brief`` is as for
    :meth:`ControllerContext.client`. Not to be called in a transaction."""
    with open_some(context, switches, brief=brief) as (clients, failures):
        for error in failures.values():
            raise error
        yield clients


@contextmanager
def open_some(
    context: ControllerContext, switches: Iterable[str], *, brief: bool = False
) -> Iterator[tuple[dict[str, SwitchClient], dict[str, ControllerError]]]:
    """The same, but what is wrong with each switch that cannot be used is returned."""
    clients = {name: context.client(name, brief=brief) for name in dict.fromkeys(switches)}

    def trouble(name: str) -> ControllerError | None:
        try:
            client = clients[name].connect()
            context.require_program(client)
            require_ours(context, client)
        except (SwitchError, StateError) as error:
            return error
        return None

    with ExitStack() as stack:
        for client in clients.values():
            stack.callback(client.close)
        found = dict(zip(clients, at_once(trouble, clients), strict=True))
        failures = {name: error for name, error in found.items() if error is not None}
        yield {name: client for name, client in clients.items() if name not in failures}, failures


Read = Callable[[SwitchClient, Sequence[Item]], list[Item]]
"""Says what a switch has of a job for which these items are desired there."""


def reader(context: ControllerContext, job_id: int, before: Job | None) -> Read:
    """Reads no more than the job may have, which was last installed as ``before``. If that is None, or cannot be told, or proves
    to be wrong, everything on the switch is read, which takes the longer the more jobs there are."""

    def read(client: SwitchClient, desired: Sequence[Item]) -> list[Item]:
        there = None if before is None else _may_have(context, before, client.name)
        if there is not None:
            known = {item.identity for item in there}
            found = client.read_same([*desired, *there])
            if all(item.identity in known for item in found):
                return found
        return of_job(client.read_items(), job_id)

    return read


def _may_have(context: ControllerContext, job: Job, switch: str) -> list[Item] | None:
    """All that a switch may have of a job that was installed as it is, also of members that a killed command was about to evict.
    None: not known, because a command was killed while it changed the job, or the topology is another one."""
    if job.part(switch) is None:
        return []
    if job.state is not JobState.READY:
        return None
    seats = tuple(replace(seat, evicted=False) for seat in job.epoch.seats)
    try:
        return job_items(context.topology, replace(job, epoch=replace(job.epoch, seats=seats)), switch)
    except RejectedError:
        return None


def apply_on_all(clients: Clients, desired: Mapping[str, Sequence[Item]], read: Read) -> int:
    """Bring a job's part of several switches up to date, one after the other; returns the number of updates. When one fails,
    those before it are rolled back. Raises :class:`SwitchError`, or its subclass :class:`RollbackError` if a switch is left half
    updated."""
    done: list[tuple[SwitchClient, list[Item], Sequence[Item]]] = []
    updates = 0
    for name, items in desired.items():
        client = clients[name]
        try:
            before = read(client, items)
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


def install(
    context: ControllerContext,
    job: Job,
    clients: Clients,
    switches: Iterable[str] | None = None,
    *,
    before: Job | None = None,
) -> int:
    """Bring the job's part of its switches that have clients up to date, parents before children (or, of ``switches``, in
    that order), on all or on none; returns the number of updates. ``before`` is the job as it was last installed, so that no
    other job's entries are read. Raises what :func:`apply_on_all` raises."""
    desired = desired_on(context, job, clients, switches)
    return apply_on_all(clients, desired, reader(context, job.job_id, before))


def desired_on(
    context: ControllerContext, job: Job, clients: Clients, switches: Iterable[str] | None = None
) -> dict[str, list[Item]]:
    """The items of the job on its switches (or ``switches``) that have clients."""
    return {
        name: job_items(context.topology, job, name, priority=priority_on(context, job, name))
        for name in (job.switches if switches is None else switches)
        if name in clients and name in context.topology.switches
    }


def remove(context: ControllerContext, job: Job, clients: Clients) -> int:
    """Remove the job from these switches, in that order, from all or from none; returns the number of updates. Raises what
    :func:`apply_on_all` raises."""
    return apply_on_all(clients, {name: [] for name in clients}, reader(context, job.job_id, job))


def switches_of(job: Job) -> tuple[str, ...]:
    """The switches of the job's trees, parents before children."""
    return tuple(name for name in job.switches if name in job.epoch.shape.switches)
