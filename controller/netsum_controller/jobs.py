"""Jobs: created and deleted. Each command is idempotent; a failed one leaves nothing on the switch or in the store."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from dataclasses import replace

from netsum_controller.admission import choose_chunks, choose_switch, place
from netsum_controller.client import SwitchClient
from netsum_controller.converge import RollbackError, apply, plan
from netsum_controller.desired import belongs_to, job_items
from netsum_controller.epochs import make_epoch, used_ids
from netsum_controller.errors import ControllerError, NoSuchJob, Refused, SwitchError
from netsum_controller.job_spec import JobSpec
from netsum_controller.logs import about
from netsum_controller.model import Job, JobState, Part
from netsum_controller.site import Site
from netsum_controller.stages import Item, MemberEntry, RewriteEntry

log = logging.getLogger(__name__)


def token_hash(token: str) -> str:
    """What the store keeps of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def token_is(job: Job, token: str) -> bool:
    """Whether it is the job's token, in time that tells nothing."""
    return hmac.compare_digest(job.token_sha256, token_hash(token))


def differences(job: Job, spec: JobSpec, site: Site) -> list[str]:
    """What a spec asks for that an existing job of its name does not have; empty when it is the same job."""
    found = []
    if job.members != spec.members:
        found.append(f"members {', '.join(job.members)}, not {', '.join(spec.members)}")
    if job.window != spec.window:
        found.append(f"window {job.window}, not {spec.window}")
    if not found and choose_switch(spec, site.topology) != job.switch:
        found.append(f"switch {job.switch}, not {choose_switch(spec, site.topology)}")
    if spec.chunks is not None and spec.chunks != job.chunks:
        found.append(f"chunks {job.chunks}, not {spec.chunks}")
    elif not found and choose_chunks(spec, site.topology) < job.chunks:
        found.append(f"chunks {job.chunks}, which the MTU in the topology no longer carries")
    if job.late is not spec.late:
        found.append(f"late {job.late.value}, not {spec.late.value}")
    elif job.block_exp_us != spec.block_exp_us:
        found.append(f"block_exp {job.block_exp_ms:g} ms, not {spec.block_exp_us / 1000:g} ms")
    elif job.quorum != spec.least_workers:
        found.append(f"quorum {job.quorum}, not {spec.least_workers}")
    if job.tenant != spec.tenant:
        found.append(f"tenant {job.tenant}, not {spec.tenant}")
    if spec.token is not None and not token_is(job, spec.token):
        found.append("another token")
    return found


def create_job(site: Site, spec: JobSpec) -> Job:
    """Install a job. The same spec again changes nothing and returns the job that is there (without its token).

    Raises :class:`Refused` (it does not fit, or a job of that name differs) or :class:`SwitchError`; nothing changed.
    """
    with site.store.lock:
        existing = site.store.find_job(spec.name)
        if existing is not None and existing.exists:
            different = differences(existing, spec, site)
            if different:
                raise Refused(
                    f"job {spec.name!r} exists with {'; '.join(different)}: delete it first, or use another name"
                )
            return existing
        with site.client(choose_switch(spec, site.topology)) as client:
            site.require_program(client)
            clean_up(site, client)
            job = _record(site, spec)
            try:
                client.clear_outcomes(job.job_id)
                converge_job(client, job.job_id, job_items(site.topology, job))
            except BaseException as error:
                _abandon(site, job, clean=isinstance(error, SwitchError) and not isinstance(error, RollbackError))
                raise
            with site.store.transaction():
                site.store.set_state(job.name, JobState.READY)
    log.info("job %s: created as %d on %s", job.name, job.job_id, job.switch, extra=about(job))
    return replace(job, state=JobState.READY, created=True)


def _record(site: Site, spec: JobSpec) -> Job:
    """Find room for a job and store it as INSTALLING."""
    token = spec.token or secrets.token_urlsafe(18)
    with site.store.transaction():
        table_size = min(site.program.size("tables", kind.TABLE) for kind in (MemberEntry, RewriteEntry))
        placement = place(spec, site.topology, site.store.jobs(), site.store.last_job_id, table_size)
        epoch, cursor = make_epoch(site, [placement.switch], placement.job_id, spec.members)
        job = Job(
            name=spec.name,
            job_id=placement.job_id,
            parts=(Part(placement.switch, placement.slot_base),),
            slots=placement.slots,
            window=spec.window,
            chunks=placement.chunks,
            members=spec.members,
            epoch=epoch,
            state=JobState.INSTALLING,
            token_sha256=token_hash(token),
            late=spec.late,
            block_exp_us=spec.block_exp_us,
            quorum=spec.least_workers,
            tenant=spec.tenant,
            token=token,
        )
        site.store.add_job(job, cursor)
    return job


def _abandon(site: Site, job: Job, *, clean: bool) -> None:
    """Forget a job that could not be installed; if the switch still has parts of it, the next command removes them."""
    with site.store.transaction():
        if clean:
            site.store.remove_job(job.name)
        else:
            site.store.set_state(job.name, JobState.DELETING)


def converge_job(client: SwitchClient, job_id: int, desired: list[Item]) -> int:
    """Make the job's part of a switch what it should be, and nothing else; returns the number of updates."""
    installed = [item for item in client.read_items() if belongs_to(item, job_id)]
    steps = plan(desired, installed)
    apply(client, steps)
    return len(steps)


def start_ageing(site: Site, job: Job) -> None:
    """Switch a degrade job's ageing on if every member has joined its epoch, and do nothing otherwise; again, it
    changes nothing. Call it under the state lock, after a join is stored. Raises :class:`SwitchError`; a join that is
    asked again repairs that."""
    if job.ageing:
        with site.client(job.switch) as client:
            site.require_program(client)
            if converge_job(client, job.job_id, job_items(site.topology, job)):
                epoch = job.epoch.number
                log.info("job %s: everyone has joined epoch %d, blocks age out", job.name, epoch, extra=about(job))


def clean_up(site: Site, client: SwitchClient) -> list[str]:
    """Remove what commands that were killed left half done on this switch; returns the names of the jobs."""
    left = [job for job in site.store.jobs(client.name) if not job.exists]
    for job in left:
        converge_job(client, job.job_id, [])
        with site.store.transaction():
            site.store.remove_job(job.name)
        log.info("job %s: removed what an interrupted command had left", job.name, extra=about(job))
    return [job.name for job in left]


def delete_job(site: Site, name: str, *, force: bool = False) -> Job:
    """Remove a job from its switch and forget it; its members' packets are refused from then on.

    ``force`` forgets it also when the switch cannot be reached (it is gone for good). Raises :class:`NoSuchJob` or
    :class:`SwitchError`; then the job is as it was.
    """
    with site.store.lock:
        job = site.store.find_job(name)
        if job is None:
            raise NoSuchJob(name)
        try:
            _remove_from_switch(site, job)
        except ControllerError:
            if not force:
                raise
        with site.store.transaction():
            site.store.remove_job(name)
    log.info("job %s: deleted", name, extra=about(job))
    return job


def _remove_from_switch(site: Site, job: Job) -> None:
    with site.client(job.switch) as client:
        if client.pipeline_cookie() != site.program.cookie:
            return  # the switch restarted or runs something else: nothing of ours is there
        used = used_ids(client, job)
        with site.store.transaction():
            site.store.set_used_ids(job.epoch.number, used)
            site.store.set_state(job.name, JobState.DELETING)
        try:
            converge_job(client, job.job_id, [])
        except RollbackError:
            raise
        except SwitchError:
            with site.store.transaction():
                site.store.set_state(job.name, job.state)
            raise
