# SPDX-License-Identifier: MIT
"""Epochs: each one has its own number, fresh UDP ports, and block ids that no earlier epoch has used."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace

from netsum_controller.config.topology import Topology
from netsum_controller.context import ControllerContext
from netsum_controller.entries import MemberEntry, RewriteEntry, UplinkEntry
from netsum_controller.errors import ControllerError, RejectedError, SwitchError
from netsum_controller.jobs.epoch_numbers import (
    claim_again,
    claim_numbers,
)
from netsum_controller.jobs.priorities import settle_quietly
from netsum_controller.jobs.transaction import Clients, install, open_clients, switches_of
from netsum_controller.observability import about
from netsum_controller.p4runtime.client import SwitchClient
from netsum_controller.p4runtime.converge import RollbackError
from netsum_controller.planning.admission import place_again
from netsum_controller.planning.allocation import allocate_first_block_id, scattered
from netsum_controller.planning.items import home_of
from netsum_controller.planning.replan import Replanned
from netsum_controller.planning.trees import Trees, plan_trees, source_ids
from netsum_controller.state.model import SERIAL, Claim, Edge, Epoch, Job, JobState, Late, Part, Rejoin, Seat, Shape

log = logging.getLogger(__name__)

FILE_INSTANCE = "descriptor file"
"""The instance of members that got their descriptors from files. They never talk to the controller, so they cannot rejoin."""

_RECORD_TIMEOUT = 2.0
"""Seconds to wait for the record that tells how far an epoch got; without it, a generous guess is used."""


def make_epoch(
    context: ControllerContext,
    claim: Claim,
    switches: Sequence[str],
    job_id: int,
    members: Sequence[str],
    shape: Shape,
    evicted: Collection[int] = (),
) -> Epoch:
    """A new epoch with trees of this shape and the claimed numbers, without the ``evicted`` ranks. Its block ids avoid those that
    earlier epochs used on ``switches``."""
    ports = claim.udp_ports
    edges = tuple(Edge(*edge, port) for edge, port in zip(shape.edges, ports[len(members) :], strict=True))
    start = scattered(claim.number) if claim.others else 0
    first_block_id = allocate_first_block_id(context.store.used_ranges(switches, job_id), start)
    ids = source_ids(shape)
    seats = tuple(
        Seat(rank, ids.get(shape.homes[rank], {}).get(shape.leader(rank), 0) if ids else 0, host, port, evicted=rank in evicted)
        for rank, (host, port) in enumerate(zip(members, ports[: len(members)], strict=True))
    )
    edges = tuple(sorted(edges, key=lambda edge: (edge.child, edge.parent)))
    epoch = Epoch(claim.number, first_block_id, seats, edges=edges, shape=shape)
    return replace(epoch, peer_key=secrets.token_hex(16), key_seed=secrets.token_hex(16))


def claim_for(
    context: ControllerContext, clients: Clients, switches: Sequence[str], members: Sequence[str], shape: Shape
) -> Claim:
    """Numbers and ports for an epoch, claimed on those of its ``switches`` that have clients; on the others
    :func:`~netsum_controller.jobs.epochs.claim_again` must follow before the epoch is installed. Raises what
    :func:`~netsum_controller.jobs.epochs.claim_numbers` raises."""
    there = {name: clients[name] for name in switches if name in clients}
    return claim_numbers(context, there, [*members, *(child for child, _ in shape.edges)])


def used_ids(client: SwitchClient, job: Job) -> int | None:
    """Upper bound of the block ids that the job's current epoch has used; None if the switch cannot tell.

    One record is enough: if slot s holds block b, block b + slots has not been opened yet, so no host holds its result, and none
    has sent a block that is a window or more beyond it.
    """
    if job.epoch.rejoin is Rejoin.WAITING:
        return _reported_ids(job)
    try:
        record = client.query_records([job.slot_base], _RECORD_TIMEOUT)[job.slot_base]
    except SwitchError as error:
        log.warning("the progress of epoch %d of job %s is not known: %s", job.epoch.number, job.name, error, extra=about(job))
        return None
    opened = 0
    if record.epoch == job.epoch.number:
        opened = (record.block_id - job.epoch.first_block_id) % (1 << 32)
    return int(opened + job.slots + job.window)


def _reported_ids(job: Job) -> int | None:
    """Upper bound of the block ids of the epoch that the current one resumes, according to its members' reports."""
    first = job.epoch.first_block_id
    needs = [(seat.needs - first) % SERIAL for seat in job.epoch.members if seat.needs is not None]
    return max(needs) + 2 * job.window if needs else None


def table_size(context: ControllerContext) -> int:
    """Size of the smallest table that has an entry for each member or stripe."""
    return min(context.program.size("tables", kind.TABLE) for kind in (MemberEntry, RewriteEntry, UplinkEntry))


def _plan(context: ControllerContext, job: Job) -> tuple[Trees, tuple[Part, ...]]:
    """Trees and parts that the job could have now; :class:`RejectedError` if there is no path or no room."""
    members = {seat.rank: seat.host for seat in job.epoch.members}
    topology, down = context.usable, frozenset(context.down)
    anew = replanned(context, job)
    choices: list[Mapping[str, int] | None] = [each for each in (anew.roots if anew else None, job.roots) if each]
    if context.links_down or not choices:  # without a link, the roots that were asked for may not be able to share
        choices.append(None)
    trees = _first_possible(topology, members, down, choices, job.leaders)
    new = any(job.part(switch) is None for switch in trees.nodes)  # only then do the others matter
    return trees, place_again(context.topology, job, trees, context.store.jobs() if new else (), table_size(context))


def _first_possible(
    topology: Topology,
    members: Mapping[int, str],
    down: frozenset[str],
    choices: Sequence[Mapping[str, int] | None],
    leaders: tuple[int, ...],
) -> Trees:
    *others, last = choices
    for weights in others:
        with suppress(RejectedError):
            return plan_trees(topology, members, down=down, weights=weights, leaders=leaders)
    return plan_trees(topology, members, down=down, weights=last, leaders=leaders)


def replanned(context: ControllerContext, job: Job) -> Replanned | None:
    """Roots for what is left of the network that the job's roots were planned for; None if it is whole, or that is not known."""
    links = (context.topology.links[name].switches for name in context.links_down if name in context.topology.links)
    gone: frozenset[str | tuple[str, str]] = frozenset({*context.down, *links})
    if not gone or not job.network or context.replan is None:
        return None
    found = context.replan(job.network, frozenset(seat.host for seat in job.epoch.members), gone)
    return found if found.roots else None


def _plan_again(context: ControllerContext, job: Job) -> tuple[Shape, tuple[Part, ...]]:
    """Shape and parts for the job's next epoch, for the remaining members and around switches that are down. If there are no such
    trees, those of the current epoch: the job waits for its switches. Both are empty if the members combine themselves."""
    if not job.by_switch:
        return Shape(), ()
    try:
        trees, parts = _plan(context, job)
    except RejectedError as error:
        if not job.epoch.shape.switches:
            raise  # its members combine, so there are no trees to keep
        log.warning("job %s keeps its trees: %s", job.name, error, extra=about(job))
        return job.epoch.shape, job.parts
    _log_new_plan(context, job, trees)
    hosts = context.topology.hosts
    homes = tuple(hosts[seat.host].switch if seat.host in hosts else home_of(job, seat.rank) for seat in job.epoch.seats)
    return Shape(trees.roots, trees.parents, homes, job.leaders), parts


def _log_new_plan(context: ControllerContext, job: Job, trees: Trees) -> None:
    anew = replanned(context, job)
    if anew is not None and set(anew.roots) == set(trees.roots):
        gone = ", ".join([*sorted(context.down), *sorted(context.links_down)])
        shares = ", ".join(f"{root} {weight}" for root, weight in anew.roots.items())
        message = "job %s: planned anew without %s: roots %s, %.3g of %.3g GB/s"
        log.warning(message, job.name, gone, shares, anew.rate, anew.before, extra=about(job))


def goes_around(context: ControllerContext, job: Job) -> bool:
    """True if the job's trees need a switch or a link that is down, and other trees would not."""
    shape = job.epoch.shape
    cut = {frozenset(context.topology.links[name].switches) for name in context.links_down if name in context.topology.links}
    if not shape.switches & context.down and cut.isdisjoint(map(frozenset, shape.edges)):
        return False
    try:
        _plan(context, job)
    except RejectedError:
        return False
    return True


def is_resumable(job: Job) -> bool:
    """True if another epoch can resume the current one, which its switch has lost. Not if a member has left, because the
    contributions that it kept are gone; nor if one was evicted after it had joined, because some members hold results with its
    part that others would get without it; nor if results may be partial, because no rank can reproduce them."""
    seats = job.epoch.seats
    return (
        job.late is Late.WAIT
        and (any(seat.joined for seat in seats) or job.epoch.rejoin is Rejoin.WAITING)
        and not any(seat.left or (seat.joined and seat.evicted) for seat in seats)
        and not any(seat.instance == FILE_INSTANCE for seat in seats)
    )


def record_epoch(
    context: ControllerContext, job: Job, clients: Clients, *, used: int | None = None, resumes: bool = False
) -> Job:
    """Store a new epoch as the job's current one. The switches do not know it yet, so the job is ``CHANGING``. ``used`` is how
    many block ids the old epoch has used, None if that is not known.

    An epoch that ``resumes`` the old one, which its switch has lost, keeps each seat's instance. Its first block is known once
    all members have rejoined (:mod:`netsum_controller.jobs.rejoin`). If not all had joined the old epoch, none of its blocks
    can have been finished, and the new one begins at the same block.
    """
    old = job.epoch
    waits = old.rejoin is Rejoin.WAITING or all(seat.joined for seat in old.members)
    shape, parts = _plan_again(context, job)
    job = replace(job, parts=parts)
    claim = claim_for(context, clients, job.switches, job.members, shape)
    if resumes:
        used = None if waits else 2 * job.window
    with context.store.transaction():
        context.store.set_used_ids(old.number, used)
        epoch = make_epoch(context, claim, job.switches, job.job_id, job.members, shape, old.evicted)
        if resumes:
            seats = zip(epoch.seats, old.seats, strict=True)
            epoch = replace(
                epoch,
                first_block_id=old.first_block_id,
                seats=tuple(replace(seat, instance=before.instance, host_id=before.host_id) for seat, before in seats),
                resumes=old.number,
                rejoin=Rejoin.WAITING if waits else Rejoin.DONE,
            )
        context.store.set_combining(job)
        context.store.add_epoch(job, epoch, claim)
        context.store.set_epoch(job.name, epoch.number)
        context.store.set_state(job.name, JobState.CHANGING)
    return replace(job, epoch=epoch, state=JobState.CHANGING)


def replace_epoch(context: ControllerContext, job: Job, new: Job, clients: Clients) -> Job:
    """Install ``new``, the epoch just recorded in place of ``job``'s, on all of its switches; ``clients`` are those already open.
    If one refuses, the old epoch goes on and the error is raised. Call it under the state lock."""
    more = [name for name in switches_of(new) if name not in clients]
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(open_clients(context, more))
            for client in opened.values():
                claim_again(context, client, new)
            clients = {**clients, **opened}
            for name in new.switches:
                if name in clients and job.part(name) is None:  # the counters there are an earlier job's
                    clients[name].clear_outcomes(new.job_id)
            install(context, new, clients, before=job)
        except ControllerError as error:
            if not isinstance(error, RollbackError):
                with context.store.transaction():
                    context.store.set_combining(job)
                    context.store.set_epoch(job.name, job.epoch.number)
                    context.store.set_state(job.name, job.state)
            raise
        with context.store.transaction():
            context.store.set_state(job.name, JobState.READY)
        if new.switches != job.switches:
            settle_quietly(context, clients.values(), new)
    return replace(new, state=JobState.READY)


def begin_epoch(context: ControllerContext, job: Job) -> Job:
    """Begin a new epoch for all members. When this returns it is installed, and the old epoch's packets are refused. Raises as
    :func:`replace_epoch`. Call it under the state lock."""
    before = [name for name in switches_of(job) if name not in context.down]
    with open_clients(context, before) as clients:
        used = used_ids(clients[job.switch], job) if job.switch in clients else None
        new = replace_epoch(context, job, record_epoch(context, job, clients, used=used), clients)
    first = new.epoch.first_block_id
    log.info("job %s: epoch %d, first block %d", job.name, new.epoch.number, first, extra=about(new, block=first))
    return new
