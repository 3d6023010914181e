# SPDX-License-Identifier: MIT
"""The jobs of an aggregator, which hosts create by enrolling."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final

from netsum.descriptor import AUTO, IP_UDP_BYTES
from netsum.user_state import read_json, write_json
from netsum.wire.schema import HEADER_BYTES, SWITCH_SOURCE
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.controller import Controller
from netsum_controller.errors import BusyError, RejectedError
from netsum_controller.http.enrollment import EnrolledJob, Enrollment
from netsum_controller.jobs.membership import RETRY_MS
from netsum_controller.jobs.rejoin import some_ranks
from netsum_controller.state.model import Job

from netsum_testbed.aggregator_place import Origin, Place

FORGOTTEN: Final = 30.0
"""Seconds after which a rank that waits for others counts as gone unless it has enrolled again, as it does every second."""


class Jobs:
    """The jobs that hosts create by enrolling. A job is created when all of its ranks have enrolled, since only then is it known
    which of them are on one host, and sum in its memory."""

    def __init__(self, controller: Controller, token: str, place: Place, clock: Callable[[], float] = time.monotonic) -> None:
        self._controller = controller
        self._key = blake2b(token.encode()).digest()
        self._place = place
        self._kept = place.folder / "hosts.json"  # the origin of each job's ranks, for when this process is started again
        self._clock = clock
        self._origins = _origins_of(read_json(self._kept))
        self._enrolled: dict[str, dict[int, tuple[Origin, float]]] = {}
        """By job and rank, of a job that is not there yet: the rank's origin, and when it enrolled last."""

    def enroll(self, wanted: Enrollment) -> EnrolledJob:
        """Find the rank's job, or create it with the last of its ranks. A job of another size, with ranks on other hosts, of
        another place's options, or that has left the switch by itself, is made anew once all of its ranks have left it. Raises
        :class:`BusyError` until all ranks have enrolled, :class:`RejectedError` while ranks of another size are there, or if the
        rank's link cannot carry the job's packets."""
        token = blake2b(wanted.job.encode(), key=self._key, digest_size=24).hexdigest()
        origin = Origin(wanted.host or f"of rank {wanted.rank} alone", wanted.link_mbps)
        job = next((job for job in self._controller.jobs() if job.name == wanted.job), None)
        active = [seat.rank for seat in job.epoch.seats if seat.active] if job is not None else []
        if job is not None and active and job.workers != wanted.size:
            raise RejectedError(
                f"job {job.name!r} has {job.workers} ranks, of which {', '.join(map(str, active))} are in it, and not "
                f"{wanted.size}: end them, delete it (`netsum job delete {job.name}`), or name another job in the join line"
            )
        origins = self._origins.get(wanted.job, [])
        same = len(origins) == wanted.size and origins[wanted.rank] == origin
        if job is None or (not active and (not same or self._is_outdated(job, origins) or _has_left_switch(job))):
            origins = self._gathered(wanted, origin)
            if job is not None:
                self._controller.delete_job(job.name)
            job = self._create(wanted.job, origins, token)
        _check_mtu(job, wanted)
        return EnrolledJob(job.name, token)

    def _is_outdated(self, job: Job, origins: Sequence[Origin]) -> bool:
        """True if it was made with other options."""
        place = self._place
        made_for = place.multicast, place.advice(origins), place.rates_in_words(origins)
        return (job.multicast, job.advice, job.rates) != made_for

    def _gathered(self, wanted: Enrollment, origin: Origin) -> list[Origin]:
        """The origin of each rank, when all have enrolled. Those that wait repeat their enrollment; one that has not done so for
        some time has ended."""
        now = self._clock()
        known = self._enrolled.get(wanted.job, {})
        fresh = {rank: each for rank, each in known.items() if rank < wanted.size and now - each[1] < FORGOTTEN}
        ranks = self._enrolled[wanted.job] = {**fresh, wanted.rank: (origin, now)}
        if missing := [rank for rank in range(wanted.size) if rank not in ranks]:
            raise BusyError(f"job {wanted.job!r}: {some_ranks(missing)} must still enroll", RETRY_MS)
        del self._enrolled[wanted.job]
        return [ranks[rank][0] for rank in range(wanted.size)]

    def _create(self, name: str, origins: Sequence[Origin], token: str) -> Job:
        hosts = [each.host for each in origins]
        different = list(dict.fromkeys(hosts))
        if len(different) > SWITCH_SOURCE:
            raise RejectedError(f"job {name!r} is on {len(different)} hosts; an aggregator serves {SWITCH_SOURCE} at most")
        members = tuple(f"host{different.index(each)}" for each in hosts)
        place = self._place
        advised: dict[str, Any] = {"advice": place.advice(origins), "rates": place.rates_in_words(origins)}
        spec = JobSpec(name=name, members=members, token=token, share_memory=True, multicast=place.multicast, **advised)
        job = self._controller.create_job(spec)
        there = {each.name for each in self._controller.jobs()}
        self._origins = {each: found for each, found in self._origins.items() if each in there} | {name: list(origins)}
        write_json(self._kept, self._origins)
        return job


def _origins_of(kept: Any) -> dict[str, list[Origin]]:
    """What :meth:`Jobs._create` has kept; nothing of a file that is damaged."""
    try:
        return {name: [Origin(str(host), int(mbps)) for host, mbps in ranks] for name, ranks in kept.items()}
    except (AttributeError, TypeError, ValueError):
        return {}


def _has_left_switch(job: Job) -> bool:
    """True if an earlier run of the job has ended without the switch, although "auto" was asked for."""
    return not job.by_switch and job.algorithm == AUTO and any(seat.instance is not None for seat in job.epoch.seats)


def _check_mtu(job: Job, wanted: Enrollment) -> None:
    needed = job.block_bytes + HEADER_BYTES + IP_UDP_BYTES
    if wanted.mtu < needed:
        raise RejectedError(
            f"job {job.name!r} sends packets of {needed} bytes, and the interface {wanted.address} of rank {wanted.rank} carries "
            f"{wanted.mtu}: start the aggregator with --mtu {wanted.mtu}, or raise the MTU there and on the way"
        )
