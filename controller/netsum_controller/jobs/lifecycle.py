# SPDX-License-Identifier: MIT
"""Creating and deleting jobs. Both are idempotent; a failed one leaves nothing on the switches or in the store."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace

from netsum.descriptor import without_switch

from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topology import Topology
from netsum_controller.context import ControllerContext, find_down
from netsum_controller.entries import Item
from netsum_controller.errors import (
    ControllerError,
    NoSwitchError,
    RejectedError,
    SwitchError,
    UnknownJobError,
    UnreachableError,
)
from netsum_controller.jobs.epoch_numbers import require_ours
from netsum_controller.jobs.epochs import claim_for, make_epoch, table_size, used_ids
from netsum_controller.jobs.priorities import settle, settle_quietly
from netsum_controller.jobs.transaction import Clients, install, open_clients, remove, switches_of
from netsum_controller.observability import about
from netsum_controller.p4runtime.client import SwitchClient
from netsum_controller.p4runtime.converge import RollbackError, apply, plan
from netsum_controller.planning.admission import check_plan, check_tenant, choose_chunks, choose_trees, homes_of, place
from netsum_controller.planning.items import home_of, job_trees, of_job
from netsum_controller.planning.trees import Trees
from netsum_controller.state.model import Epoch, Job, JobState, Part, Shape

log = logging.getLogger(__name__)

NO_TREES = Trees({}, ())
"""The trees of a job whose members combine themselves."""


def token_hash(token: str) -> str:
    """The hash of a token that the store keeps."""
    return hashlib.sha256(token.encode()).hexdigest()


def token_is(job: Job, token: str) -> bool:
    """True if it is the job's token; takes the same time for every wrong one."""
    return hmac.compare_digest(job.token_sha256, token_hash(token))


def differences(job: Job, spec: JobSpec, context: ControllerContext) -> list[str]:
    """The differences of an existing job from a spec of its name; empty when it is the same job."""
    found = []
    if job.members != spec.members:
        found.append(f"members {', '.join(job.members)}, not {', '.join(spec.members)}")
    for what in ("window", "algorithm", "tenant", "priority", "share_memory", "multicast", "advice"):
        if getattr(job, what) != getattr(spec, what):
            found.append(f"{what} {getattr(job, what)}, not {getattr(spec, what)}")
    if job.roots != (spec.roots or {}):
        found.append(f"roots {_weights(job.roots)}, not {_weights(spec.roots or {})}")
    if not found and job.by_switch:
        there, requested = (home_of(job, rank) for rank in range(job.workers)), homes_of(spec.members, context.topology)
        if (homes := tuple(there)) != requested:
            found.append(f"switch {', '.join(dict.fromkeys(homes))}, not {', '.join(dict.fromkeys(requested))}")
    if spec.chunks is not None and spec.chunks != job.chunks:
        found.append(f"chunks {job.chunks}, not {spec.chunks}")
    elif not found and choose_chunks(spec, context.topology, _trees(context, job)) < job.chunks:
        found.append(f"chunks {job.chunks}, which the MTU in the topology no longer carries")
    if job.late is not spec.late:
        found.append(f"late {job.late.value}, not {spec.late.value}")
    elif job.block_exp_us != spec.block_exp_us:
        found.append(f"block_exp {job.block_exp_ms:g} ms, not {spec.block_exp_us / 1000:g} ms")
    elif job.quorum != spec.least_workers:
        found.append(f"quorum {job.quorum}, not {spec.least_workers}")
    if spec.token is not None and not token_is(job, spec.token):
        found.append("another token")
    return found


def _trees(context: ControllerContext, job: Job) -> Trees:
    return job_trees(context.topology, job) if job.by_switch else NO_TREES


def _weights(roots: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={weight}" for name, weight in roots.items()) or "as the controller chooses"


def create_job(context: ControllerContext, spec: JobSpec, *, wait_for_switch: bool = True) -> Job:
    """Install a job. The same spec again changes nothing and returns the existing job (without its token). An "auto" job for
    which no switch has room is created without one, and its ``why_hosts`` says why. With ``wait_for_switch``, a switch that
    does not answer is an error, so that a restart at the wrong moment does not cost the job its switch for good.

    Raises :class:`RejectedError` (it does not fit, or a job of that name differs) or :class:`SwitchError`; then nothing has
    changed.
    """
    with context.store.lock:
        existing = context.store.find_job(spec.name)
        if existing is not None and existing.exists:
            different = differences(existing, spec, context)
            if different:
                raise RejectedError(f"job {spec.name!r} exists with {'; '.join(different)}: delete it first, or use another name")
            return existing
        _check_multicast(spec, context.topology)
        if without_switch(spec.algorithm):
            return _create_without_switch(context, spec, "")
        try:
            return _create_on_switches(context, spec, existing)
        except (NoSwitchError, UnreachableError) as error:
            if not spec.may_do_without:
                raise
            if isinstance(error, UnreachableError) and wait_for_switch:
                instead = "start it, or let the members combine without it: `--algorithm ring` or another"
                raise UnreachableError(f"{error}; {instead}") from None
            return _create_without_switch(context, spec, str(error))


def _check_multicast(spec: JobSpec, topology: Topology) -> None:
    hosts = [topology.hosts[name] for name in spec.members if name in topology.hosts]
    if spec.multicast and hosts and not any(map(topology.shares_port, hosts)):
        raise RejectedError(
            f"job {spec.name!r}: multicast is for members that share a switch's port (`shared_ports` in the topology), and each "
            "of these has its own, to which results go once anyway: leave it out"
        )


def _trees_now(context: ControllerContext, spec: JobSpec) -> Trees:
    """The job's trees around the switches that do not answer; :class:`UnreachableError` if no trees can avoid them."""
    choose_trees(spec, context.topology)
    down = find_down(context)
    try:
        return choose_trees(spec, context.topology_for(spec.roots), down)
    except NoSwitchError as error:
        raise UnreachableError(str(error)) from None


def _create_without_switch(context: ControllerContext, spec: JobSpec, why: str) -> Job:
    """Create a job whose members combine themselves, which exists only in the store. What an interrupted job of that name left on
    switches is removed when they are reconciled."""
    try:
        homes_of(spec.members, context.topology)
    except RejectedError as error:
        raise RejectedError(f"job {spec.name!r}: {error}") from None
    check_plan(spec.name, spec.algorithm, spec.members)
    check_tenant(spec, context.topology)
    chunks = choose_chunks(spec, context.topology, NO_TREES)
    claim = claim_for(context, {}, (), spec.members, Shape())
    with context.store.transaction():
        context.store.remove_job(spec.name)
        epoch = make_epoch(context, claim, [], 0, spec.members, Shape())
        job = replace(_job(spec, 0, (), spec.slots, chunks, epoch), state=JobState.READY)
        context.store.add_job(job, claim)
    log.info("job %s: created; its members combine (%s)", job.name, job.algorithm, extra=about(job))
    return replace(job, created=True, why_hosts=why)


def _create_on_switches(context: ControllerContext, spec: JobSpec, existing: Job | None) -> Job:
    """``existing`` is what an interrupted command has left of a job of that name."""
    left = [name for name in existing.switches if name in context.topology.switches] if existing is not None else []
    trees = _trees_now(context, spec)
    with open_clients(context, [*trees.nodes, *left]) as clients:
        for client in clients.values():
            for gone in clean_up(context, client):
                settle(context, client, gone)
        job = _record(context, spec, clients)
        try:
            for name in job.switches:
                clients[name].clear_outcomes(job.job_id)
                settle(context, clients[name], job)
            install(context, job, clients, before=replace(job, parts=()))
        except BaseException as error:
            _abandon(context, job, clean=isinstance(error, SwitchError) and not isinstance(error, RollbackError))
            settle_quietly(context, clients.values(), job)
            raise
        with context.store.transaction():
            context.store.set_state(job.name, JobState.READY)
    log.info("job %s: created as %d on %s", job.name, job.job_id, ", ".join(job.switches), extra=about(job))
    return replace(job, state=JobState.READY, created=True)


def _record(context: ControllerContext, spec: JobSpec, clients: Clients) -> Job:
    """Find room for a job and store it as INSTALLING."""
    jobs, last = context.store.jobs(), context.store.last_job_id
    topology = context.topology_for(spec.roots)
    placement = place(spec, topology, jobs, last, table_size(context), context.down)
    switches = [part.switch for part in placement.parts]
    shape = Shape(placement.trees.roots, placement.trees.parents, homes_of(spec.members, context.topology), spec.leaders)
    claim = claim_for(context, clients, switches, spec.members, shape)
    with context.store.transaction():
        epoch = make_epoch(context, claim, switches, placement.job_id, spec.members, shape)
        job = _job(spec, placement.job_id, placement.parts, placement.slots, placement.chunks, epoch)
        context.store.add_job(job, claim)
    return job


def _job(spec: JobSpec, job_id: int, parts: tuple[Part, ...], slots: int, chunks: int, epoch: Epoch) -> Job:
    token = spec.token or secrets.token_urlsafe(18)
    return Job(
        name=spec.name,
        job_id=job_id,
        parts=parts,
        slots=slots,
        window=spec.window,
        chunks=chunks,
        members=spec.members,
        epoch=epoch,
        state=JobState.INSTALLING,
        token_sha256=token_hash(token),
        late=spec.late,
        block_exp_us=spec.block_exp_us,
        quorum=spec.least_workers,
        tenant=spec.tenant,
        roots=spec.roots or {},
        priority=spec.priority,
        share_memory=spec.share_memory,
        multicast=spec.multicast,
        algorithm=spec.algorithm,
        advice=spec.advice,
        rates=spec.rates,
        network=spec.network,
        token=token,
    )


def _abandon(context: ControllerContext, job: Job, *, clean: bool) -> None:
    """Forget a job that could not be installed; if switches still have parts of it, the next command cleans up."""
    with context.store.transaction():
        if clean:
            context.store.remove_job(job.name)
        else:
            context.store.set_state(job.name, JobState.DELETING)


def start_aging(context: ControllerContext, job: Job) -> None:
    """Turn on a degrade job's aging once every member has joined its epoch. Repeating it changes nothing. Call it under the
    state lock, after a join is stored. Raises :class:`SwitchError`, in which case the join must be repeated."""
    if job.aging:
        with open_clients(context, switches_of(job)) as clients:
            if install(context, job, clients, before=job):
                epoch = job.epoch.number
                log.info("job %s: everyone has joined epoch %d, blocks age out", job.name, epoch, extra=about(job))


def clean_up(context: ControllerContext, client: SwitchClient, installed: Iterable[Item] | None = None) -> list[Job]:
    """Remove what killed commands left half done on this switch, and return those jobs; ``installed`` is all that is there, if it
    has been read. Their parts on other switches stay until those are cleaned up."""
    left = context.store.half_done(client.name)
    items = list(client.read_items() if left and installed is None else installed or ())
    for job in left:
        apply(client, plan([], of_job(items, job.job_id)))
        parts = [part for part in job.parts if part.switch != client.name]
        with context.store.transaction():
            if any(part.switch in context.topology.switches for part in parts):
                context.store.set_parts(job.name, job.job_id, parts)
                context.store.set_state(job.name, JobState.DELETING)
            else:
                context.store.remove_job(job.name)
        log.info("job %s: removed what an interrupted command had left", job.name, extra=about(job))
    return left


def delete_job(context: ControllerContext, name: str, *, force: bool = False) -> Job:
    """Remove a job from its switches and forget it; its members' packets are refused from then on. ``force`` forgets it even if a
    switch cannot be reached, because it is gone for good. Raises :class:`UnknownJobError` or :class:`SwitchError`; then the
    job is as it was."""
    with context.store.lock:
        job = context.store.find_job(name)
        if job is None:
            raise UnknownJobError(name)
        try:
            _remove_from_switches(context, job, force=force)
        except ControllerError:
            if not force:
                raise
        with context.store.transaction():
            context.store.remove_job(name)
    log.info("job %s: deleted", name, extra=about(job))
    return job


def _remove_from_switches(context: ControllerContext, job: Job, *, force: bool) -> None:
    """Leaves go first, so that parents are still there for what is on its way to them."""
    with ExitStack() as stack:
        clients = {}
        for name in reversed(job.switches):
            try:
                client = stack.enter_context(context.client(name))
                running = client.pipeline_cookie()
            except ControllerError:
                if force or name not in job.epoch.shape.switches:
                    continue  # the job has nothing there, or it is removed when the switch is back
                raise
            if running == context.program.cookie:  # else it has restarted or runs another program: nothing of ours is there
                require_ours(context, client)
                clients[name] = client
        if not clients:
            return
        used = used_ids(clients[job.switch], job) if job.switch in clients else None
        with context.store.transaction():
            context.store.set_used_ids(job.epoch.number, used)
            context.store.set_state(job.name, JobState.DELETING)
        try:
            remove(context, job, clients)
        except RollbackError:
            raise
        except SwitchError:
            with context.store.transaction():
                context.store.set_state(job.name, job.state)
            raise
        settle_quietly(context, clients.values(), job)
