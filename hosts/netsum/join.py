# SPDX-License-Identifier: MIT
"""Joining a job: from the controller, or from a descriptor file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from netsum.communicator import Communicator, Explain
from netsum.controller_client import ControllerClient
from netsum.core.endpoint_factory import open_transport
from netsum.descriptor import KNOWN, Descriptor, MemberLink, is_algorithm
from netsum.enrollment import open_client
from netsum.errors import JoinError
from netsum.logs import configure
from netsum.membership import ControllerMembership, JoinOptions, check_algorithm
from netsum.settings import Environment, seconds
from netsum.status_signal import print_status_on_signal
from netsum.transports.base import Transport


def join(
    job: str | None = None,
    rank: int | None = None,
    *,
    size: int | None = None,
    token: str | None = None,
    controller: str | None = None,
    descriptor: Descriptor | str | os.PathLike[str] | None = None,
    link: Mapping[str, str] | None = None,
    transport: Transport | Callable[[Descriptor], Transport] | None = None,
    timeout: float = 30.0,
    call_timeout: float | None = None,
    algorithm: str | None = None,
    peer: str | None = None,
    wrap: Callable[[Transport], Transport] | None = None,
) -> Communicator:
    """Take a rank of a job. Arguments that are not given come from the environment (:mod:`netsum.settings`).

    Args:
        job, rank: the job's name and the rank.
        size: the job's number of ranks. An aggregator creates the job with it; any other job must have that many.
        token, controller: the job's secret and the controller's URL; or
        controller: an aggregator's join line (:mod:`netsum.join_url`), which has a token of its own. The rank enrolls first: the
            aggregator creates the job when all ranks have enrolled, and gives out its token. Needs rank and size; or
        descriptor: a :class:`Descriptor`, or its file (``{rank}`` stands for the rank). A file is good for one run: in a second
            run, the first call raises :class:`DesynchronizedError`.
        link: how to reach the switch, if not by the descriptor's link: ``{"kind": "udp"}`` and so on.
        transport: carries the packets instead of the descriptor's link.
        timeout: seconds within which the controller must answer and the switch must know this rank.
        call_timeout: default timeout for every call of the communicator.
        algorithm: in a job without a switch, replaces the job's; the same on every rank. ``plan:FILE`` is a plan of
            `netsum plan schedule`. In a job by a switch, ``switch`` has it sum large calls, too.
        peer: address of this host, HOST or HOST:PORT, at which the other members reach it in a job without a switch. Default:
            the one from which it reaches the controller.
        wrap: wraps every transport, to the switch or to the other members. For tests, for example in a
            :class:`~netsum.transports.ImpairedTransport`.

    Raises:
        UnauthorizedError, UnknownRankError, NotReadyError, InvalidTimeoutError, JoinError: the rank was not taken.
    """
    environment = Environment.read()
    configure(environment.log, environment.log_level)
    print_status_on_signal()
    given_rank, rank = rank, environment.rank if rank is None else rank
    deadline = time.monotonic() + seconds(timeout)
    descriptor = descriptor if descriptor is not None else (None if controller else environment.descriptor)
    algorithm = _known(algorithm) or environment.algorithm
    call_timeout = environment.timeout if call_timeout is None else seconds(call_timeout, "call_timeout")
    peer = peer or environment.peer
    if descriptor is None:
        client = open_client(environment, deadline, job=job, rank=rank, size=size, token=token, controller=controller)
        if not isinstance(transport, Transport):
            options = JoinOptions(link, transport or open_transport, peer, algorithm, call_timeout, wrap or _as_it_is)
            return _sized(ControllerMembership(client, options).communicator(deadline), size)
        taken = _Taken(client.join(link, deadline), client.explain, client.leave)
    else:
        known = rank if isinstance(descriptor, str | os.PathLike) else given_rank
        taken = _given(descriptor, job, known, link, token or environment.token)
    try:
        chosen = check_algorithm(taken.descriptor, algorithm)
        made = transport if isinstance(transport, Transport) else (transport or open_transport)(chosen)
    except BaseException:
        if taken.leave is not None:
            taken.leave()
        raise
    made = (wrap or _as_it_is)(made)
    comm = Communicator(chosen, made, timeout=call_timeout, join_deadline=deadline, explain=taken.explain, leave=taken.leave)
    return _sized(comm, size)


def _sized(comm: Communicator, size: int | None) -> Communicator:
    """The communicator, unless the caller expects another number of ranks."""
    if size is None or comm.size == size:
        return comm
    comm.close()
    raise JoinError(
        f"job {comm.descriptor.job!r} has {comm.size} ranks, and this program runs as {size}: start as many processes as the "
        "job has ranks"
    )


def _as_it_is(transport: Transport) -> Transport:
    return transport


class _Taken(NamedTuple):
    """A rank that was taken: its descriptor, and functions for the communicator."""

    descriptor: Descriptor
    explain: Explain | None = None
    leave: Callable[[], None] | None = None


def _given(
    descriptor: Descriptor | str | os.PathLike[str],
    job: str | None,
    rank: int | None,
    link: Mapping[str, str] | None,
    token: str | None,
) -> _Taken:
    """The rank of a descriptor that did not come from the controller."""
    if isinstance(descriptor, Descriptor):
        _same(descriptor, job, rank)
    else:
        descriptor = _read(descriptor, rank, job)
    ours = _over(descriptor, link)
    client = ControllerClient.of_descriptor(ours, token)
    return _Taken(ours, client.explain if client is not None else None)


def _known(algorithm: str | None) -> str | None:
    """The algorithm, if it is one."""
    if algorithm is not None and not is_algorithm(algorithm):
        raise JoinError(f"algorithm is {algorithm!r}, must be one of {KNOWN}")
    return algorithm


def _same(descriptor: Descriptor, job: str | None, rank: int | None) -> None:
    """Raise JoinError if the descriptor is not for the job and rank that the caller named."""
    if (job or descriptor.job, descriptor.rank if rank is None else rank) != (descriptor.job, descriptor.rank):
        raise JoinError(
            f"the descriptor is for job {descriptor.job!r}, rank {descriptor.rank}, not for "
            f"job {job or descriptor.job!r}, rank {descriptor.rank if rank is None else rank}"
        )


def _over(descriptor: Descriptor, link: Mapping[str, str] | None) -> Descriptor:
    if link is None:
        return descriptor
    try:
        return replace(descriptor, link=MemberLink(**link))
    except (TypeError, ValueError) as error:
        raise JoinError(f"the link {dict(link)} is not valid: {error}") from None


def _read(path: str | os.PathLike[str], rank: int | None, job: str | None) -> Descriptor:
    name = os.fspath(path)
    if "{rank}" in name:
        if rank is None:
            raise JoinError(f"{name}: which rank? give `rank`, or set NETSUM_RANK")
        name = name.replace("{rank}", str(rank))
    try:
        descriptor = Descriptor.from_json(Path(name).read_bytes())
        _same(descriptor, job, rank)
    except OSError as error:
        raise JoinError(f"{error.filename or name}: {error.strerror or error}") from None
    except ValueError as error:
        raise JoinError(f"{name}: {error}") from None
    return descriptor
