# SPDX-License-Identifier: MIT
"""Joining and leaving: which process holds which rank in which epoch, and when a new epoch begins."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from netsum.descriptor import AUTO, Descriptor, HostAddress, MemberLink, SwitchAddress
from netsum.errors import outcome_of
from netsum.wire.schema import UDP_PORT

from netsum_controller.config.topology import ANYWHERE, NO_MAC
from netsum_controller.context import ControllerContext
from netsum_controller.errors import (
    BusyError,
    ControllerError,
    EvictedError,
    InputError,
    RejectedError,
    StateError,
    UnauthorizedError,
    UnknownJobError,
)
from netsum_controller.jobs.epochs import FILE_INSTANCE, begin_epoch
from netsum_controller.jobs.groups import close_if_left, open_group
from netsum_controller.jobs.lifecycle import start_aging, token_hash, token_is
from netsum_controller.jobs.multicast import note_group
from netsum_controller.jobs.rejoin import Progress, happened, rejoin, some_ranks
from netsum_controller.observability import about
from netsum_controller.state.model import Job, JobState, Late, Rejoin, Seat, Waiting

log = logging.getLogger(__name__)

GRACE = 5.0
"""Seconds that a returning rank waits for the others of its last run to leave before it begins a new epoch."""

RETRY_MS = 200


class Membership:
    """A free rank of the current epoch gets the current descriptor. If the rank is taken, or someone has already left the
    epoch, a new epoch begins for all. A rank that left cleanly first waits ``GRACE`` seconds for the members still in the epoch
    to leave too.

    A member that says how far it was rejoins: it continues in its epoch, or in one that resumes it, or not at all. A rejoin never
    begins an epoch (:mod:`netsum_controller.jobs.rejoin`)."""

    def __init__(self, context: ControllerContext, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._waiting: dict[tuple[int, int], tuple[float, float]] = {}
        """(epoch, rank) that waits for others to leave -> since when, and when it last asked."""

    def job(self, name: str, token: str) -> Job:
        """The job, if the token is its own. Otherwise :class:`UnauthorizedError`; :class:`UnknownJobError` only for the token
        of some job, so that untrusted senders do not learn which jobs there are, not even from how long it takes."""
        if not self._context.store.knows_token(token_hash(token)):
            raise UnauthorizedError(name)
        job = self._context.store.job(name)
        if not token_is(job, token):
            raise UnauthorizedError(name)
        return job

    def join(
        self,
        name: str,
        token: str,
        rank: int,
        instance: str,
        link: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        peer: str | None = None,
        host_id: str | None = None,
        group: str | None = None,
    ) -> Descriptor:
        """Take a rank; asking again with the same ``instance`` gets the same answer. With a ``progress`` this is a rejoin: the
        descriptor is for that epoch, or for one that ``resumes`` it. ``peer`` is the HOST:PORT at which the other members reach
        this one if they combine themselves, ``host_id`` what it has in common with those with which it can share memory.
        ``group``, in a rejoin of the current epoch, is the IP multicast group of its descriptor, which it has joined; "": it has
        not, or has left it.

        Raises :class:`UnknownJobError`, :class:`UnauthorizedError`, :class:`UnknownRankError`, :class:`EvictedError`,
        :class:`BusyError` (ask again), :class:`CannotResumeError` (a rejoin), :class:`InputError` (bad ``link``) or
        :class:`SwitchError` (ask again).
        """
        kind = "join" if progress is None else "rejoin"
        try:
            descriptor = self._join(name, token, rank, instance, _link(link), progress, peer, host_id, group)
        except (UnknownJobError, UnauthorizedError):
            raise  # an untrusted sender's; counted as an HTTP request
        except ControllerError as error:
            self._context.counters.add("joins", name, kind, outcome_of(error))
            log.debug("job %s: rank %s may not %s now: %s", name, rank, kind, error, extra={"job": name, "rank": rank})
            raise
        self._context.counters.add("joins", name, kind, "ok")
        epoch = descriptor.epoch
        fields = {"job": name, "rank": rank, "epoch": epoch}
        log.info("job %s: rank %d %ss epoch %d", name, rank, kind, epoch, extra=fields)
        return descriptor

    def _join(
        self,
        name: str,
        token: str,
        rank: int,
        instance: str,
        wish: MemberLink | None,
        progress: Progress | None,
        peer: str | None,
        host_id: str | None,
        group: str | None,
    ) -> Descriptor:
        with self._context.store.lock:
            job = self.job(name, token)
            seat = job.seat(rank)
            if seat.evicted:
                raise EvictedError(name, rank)
            resumes = None
            gone = any(other.left for other in job.epoch.members)  # what they kept is lost, so no epoch can resume it
            if progress is not None:
                job = rejoin(self._context, job, rank, instance, progress, peer)
                resumes = progress.epoch if progress.epoch != job.epoch.number else None
                if resumes is None and progress.block is not None:
                    now = self._clock()
                    last = job.epoch.seats[rank].waiting
                    since = now if last is None or last.block != progress.block else last.since
                    place = progress.block, progress.sent, progress.octets
                    waiting = Waiting(progress.epoch, *place, since=since, at=now, received=progress.received)
                    with self._context.store.transaction():
                        self._context.store.set_waiting(rank, waiting)
                if resumes is None and group is not None:
                    job = note_group(self._context, job, rank, group)
            elif job.epoch.resumes is not None and seat.instance == instance and not gone:
                # It joined, but the switch restarted before it got the answer, so it holds nothing.
                nothing = Progress(job.epoch.resumes, job.epoch.first_block_id, job.epoch.number)
                job = rejoin(self._context, job, rank, instance, nothing, peer)
            elif not (seat.active and seat.instance == instance) or (gone and job.epoch.rejoin is Rejoin.WAITING):
                if self._needs_new_epoch(job, seat, instance):
                    job = begin_epoch(self._context, job)
                with self._context.store.transaction():
                    self._context.store.set_joined(job.epoch.number, [rank], instance)
                    if peer is not None:
                        self._context.store.set_peer(job.epoch.number, rank, peer)
                    self._context.store.set_host_id(job.epoch.number, rank, host_id)
                job = self._context.store.job(name)
            if progress is None and host_id is not None and job.share_memory and job.by_switch:
                job = self._by_hosts(job)
            if progress is None:  # not for each of the many rejoins
                start_aging(self._context, self._context.store.job(name))
            return replace(describe(self._context, job, rank, wish), resumes=resumes)

    def _by_hosts(self, job: Job) -> Job:
        """The job, in an epoch whose sources are the ranks that share memory. Raises :class:`BusyError` until all have joined:
        before, that is not known."""
        if missing := [seat.rank for seat in job.epoch.members if not seat.joined]:
            raise BusyError(f"job {job.name!r}: {some_ranks(missing)} must still join", RETRY_MS)
        if job.leaders == job.epoch.shape.leaders:
            return job
        seats, job = job.epoch.seats, begin_epoch(self._context, job)
        with self._context.store.transaction():
            for seat in seats:
                if seat.instance is not None and seat.joined:
                    self._context.store.set_joined(job.epoch.number, [seat.rank], seat.instance)
                if seat.peer is not None:
                    self._context.store.set_peer(job.epoch.number, seat.rank, seat.peer)
                self._context.store.set_host_id(job.epoch.number, seat.rank, seat.host_id)
        return self._context.store.job(job.name)

    def _needs_new_epoch(self, job: Job, seat: Seat, instance: str) -> bool:
        if job.state is not JobState.READY:
            return True  # a command was killed while it installed this epoch: no member has it, and the switch at most half
        seats = job.epoch.seats
        if not seat.joined:
            # Someone left before this rank came, so no block of the epoch can ever be finished. Or the epoch resumes another,
            # and this is not the process that had the rank.
            return any(other.left for other in job.epoch.members) or seat.instance not in (None, instance)
        still_in = [other.rank for other in seats if other.active and other.rank != seat.rank]
        if seat.left and still_in and job.epoch.rejoin is not Rejoin.WAITING:
            self._wait_for(job, seat, still_in)
        self._waiting = {key: times for key, times in self._waiting.items() if key[0] != job.epoch.number}
        return True

    def _wait_for(self, job: Job, seat: Seat, still_in: list[int]) -> None:
        """Raise :class:`BusyError`, unless this rank has been asking for ``GRACE`` seconds."""
        now = self._clock()
        key = (job.epoch.number, seat.rank)
        since, last = self._waiting.get(key, (now, now))
        if now - last > GRACE:
            since = now  # the earlier attempt was given up long ago
        self._waiting[key] = (since, now)
        if now - since < GRACE:
            raise BusyError(f"job {job.name!r}: the previous run is still finishing ({some_ranks(still_in)})", RETRY_MS)

    def leave(self, name: str, token: str, rank: int, instance: str) -> bool:
        """Give a rank up; returns whether ``instance`` held it. Raises what :meth:`join` raises."""
        with self._context.store.lock:
            job = self.job(name, token)
            job.seat(rank)
            with self._context.store.transaction():
                left = self._context.store.set_left(job.epoch.number, rank, instance)
            if left:
                log.info("job %s: rank %d leaves", name, rank, extra=about(job, rank=rank))
                close_if_left(self._context, name)
            return left

    def group(
        self,
        name: str,
        token: str,
        rank: int,
        instance: str,
        epoch: int,
        label: str,
        ranks: Sequence[int],
        algorithm: str | None = None,
    ) -> tuple[str, int]:
        """The name of the group of these ranks of a job, and the given rank's rank in it. ``algorithm``: a host algorithm instead
        of the job's. Raises :class:`RejectedError` if the
        member has not joined the job or has left it, or what :func:`open_group` raises."""
        with self._context.store.lock:
            job = self.job(name, token)
            seat = job.seat(rank)
            there = seat.joined or job.epoch.resumes is not None  # it may not know yet that its epoch was resumed
            if not there or seat.left or seat.evicted or seat.instance != instance:
                raise RejectedError(f"job {name!r}: rank {rank} has not joined, or was replaced")
            if rank not in ranks:
                raise InputError(f"rank {rank} requests a group of which it is no member")
            return open_group(self._context, job, token, epoch, label, ranks, algorithm).name, list(ranks).index(rank)

    def join_all(self, name: str, instance: str = FILE_INSTANCE) -> list[Descriptor]:
        """Take every rank that is not evicted, for members that do not talk to the controller; in a new epoch unless no member
        has joined the current one. Needs no token: a process that can write the state file owns the jobs."""
        with self._context.store.lock:
            job = self._context.store.job(name)
            if not job.by_switch:
                raise RejectedError(
                    f"job {name!r}: its members combine themselves, and must join over HTTP to tell where they are reached"
                )
            seats = job.epoch.seats
            if job.state is not JobState.READY or job.epoch.resumes is not None or any(seat.joined for seat in seats):
                job = begin_epoch(self._context, job)
            with self._context.store.transaction():
                ranks = [seat.rank for seat in job.epoch.members]
                self._context.store.set_joined(job.epoch.number, ranks, instance)
            start_aging(self._context, self._context.store.job(name))
            return [replace(describe(self._context, job, rank), one_run=True) for rank in ranks]

    def write_files(self, name: str, folder: str | Path, instance: str = FILE_INSTANCE) -> list[Path]:
        """Write every rank's descriptor file, ``NAME.RANK.json`` in ``folder``, for one run of the job."""
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            paths = []
            for descriptor in self.join_all(name, instance):
                path = folder / f"{name}.{descriptor.rank}.json"
                scratch = path.with_suffix(".json.new")
                scratch.write_text(json.dumps(descriptor.to_dict(), indent=1) + "\n", "utf-8")
                scratch.replace(path)
                paths.append(path)
        except OSError as error:
            raise StateError(f"{error.filename or folder}: {error.strerror}") from None
        return paths


def _link(hint: Mapping[str, Any] | None) -> MemberLink | None:
    if hint is None:
        return None
    try:
        return MemberLink(**hint)
    except (TypeError, ValueError) as error:
        raise InputError(f"link: {error}") from None


def describe(context: ControllerContext, job: Job, rank: int, link: MemberLink | None = None) -> Descriptor:
    """The descriptor of one rank in the job's current epoch. Unless the member chooses a ``link``, it follows from the topology:
    frames over UDP if the host has them, otherwise a kernel socket. :class:`BusyError` while it is not known where the epoch
    begins or, in a job whose members combine, where all of them are reached."""
    if job.epoch.rejoin is Rejoin.WAITING:
        raise BusyError(f"job {job.name!r}: {happened(job)}, and not every member has rejoined", RETRY_MS)
    peers = () if job.by_switch else _peers(job)
    seat = job.epoch.seats[rank]
    local = job.local_ranks(rank) if job.by_switch else ()
    leader = job.epoch.seats[local[0]] if local else seat
    host = context.topology.hosts.get(seat.host)
    if host is None:
        raise RejectedError(f"job {job.name!r}: its member {seat.host} is no longer in the topology")
    switch, shape = context.topology.switches[host.switch], job.epoch.shape
    roots = dict.fromkeys(shape.roots) if shape.striped else ()
    keyed = job.by_switch and context.topology.shares_port(host)
    group = job.group if keyed else ""
    address = SwitchAddress(ANYWHERE, NO_MAC)
    if job.by_switch:
        ip, _, port = (switch.endpoint or "" if keyed else "").rpartition(":")
        address = SwitchAddress(ip or switch.ip, switch.mac, int(port or UDP_PORT))
    if link is None:
        link = MemberLink("frames", host.frames, host.switch_frames) if host.frames and host.switch_frames else MemberLink()
    return Descriptor(
        job=job.name,
        job_id=job.job_id,
        epoch=job.epoch.number,
        rank=rank,
        src_id=seat.src_id,
        workers=job.workers,
        window=job.window,
        first_block_id=job.epoch.first_block_id,
        block_bytes=job.block_bytes,
        mtu=host.mtu,
        switch=address,
        host=HostAddress(host.ip, host.mac, leader.udp_port),
        link=link,
        controller=context.url,
        block_exp_ms=job.block_exp_ms,
        quorum=job.quorum_now,
        roots=shape.ways,
        endpoints=tuple(context.topology.switches[root].endpoint or "" for root in roots),
        evicted=job.epoch.evicted,
        left=tuple(seat.rank for seat in job.epoch.members if seat.left) if job.late is Late.WAIT else (),
        algorithm=job.combines,
        peers=peers,
        peer_key="" if job.by_switch and len(local) < 2 else job.epoch.peer_key,
        key=f"{job.epoch.key_of(leader.rank):016x}" if keyed else "",
        group=group,
        group_key=f"{job.epoch.group_key:016x}" if group else "",
        local_ranks=local if len(local) > 1 else (),
        advice=job.advice if job.by_switch and job.algorithm == AUTO else (),
    )


def _peers(job: Job) -> tuple[str, ...]:
    """The address of each rank, "" if it is evicted; :class:`BusyError` until all have joined."""
    missing = [seat.rank for seat in job.epoch.members if not (seat.joined and seat.peer)]
    if missing:
        who = some_ranks(missing)
        raise BusyError(f"job {job.name!r}: its members combine themselves, and {who} must still join", RETRY_MS)
    return tuple("" if seat.evicted else seat.peer or "" for seat in job.epoch.seats)
