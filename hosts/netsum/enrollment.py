# SPDX-License-Identifier: MIT
"""Enrollment: a rank shows an aggregator's join line, and gets its job's name and token."""

from __future__ import annotations

import urllib.parse
from typing import Any, Final

from netsum.controller_client import ControllerClient
from netsum.controller_http import ControllerRequests
from netsum.errors import JoinError
from netsum.intranode.identity import host_identity
from netsum.join_url import DEFAULT_JOB, JoinUrl, is_join_url
from netsum.peers.transport import own_address
from netsum.settings import Environment
from netsum.transports.interfaces import mtu_of
from netsum.transports.link_speed import speed_of

_LARGEST_MTU: Final = 65535
"""Loopback's MTU is one byte more than an IP packet can have."""


def open_client(
    environment: Environment,
    deadline: float,
    *,
    job: str | None = None,
    rank: int | None = None,
    size: int | None = None,
    token: str | None = None,
    controller: str | None = None,
) -> ControllerClient:
    """The client of this rank. Arguments that are not given come from the environment. Where a join line stands in for the
    controller, the rank enrolls first, before ``deadline`` (``time.monotonic()``).

    Raises JoinError if something is missing or contradictory, and what :meth:`ControllerClient.join` raises.
    """
    rank = environment.rank if rank is None else rank
    line = _parse(controller) if controller else environment.join
    if line is None:
        return ControllerClient.from_options(
            job or environment.job, rank, token or environment.token, controller or environment.controller
        )
    if token is not None:
        raise JoinError("a join line and `token` are both given: the aggregator gives out the job's token, so leave `token` out")
    if controller and job and line.job and job != line.job:
        raise JoinError(f"the join line is for job {line.job!r}, and `job` is {job!r}")
    size = environment.size if size is None else size
    return _enroll(line, job or line.job or environment.job or DEFAULT_JOB, *_checked(rank, size), deadline)


def _parse(controller: str) -> JoinUrl | None:
    """The join line that stands in for a controller's URL; None if it is a controller's URL."""
    if not is_join_url(controller):
        return None
    try:
        return JoinUrl.parse(controller)
    except ValueError as error:
        raise JoinError(f"controller is no join line: {error}") from None


def _checked(rank: int | None, size: int | None) -> tuple[int, int]:
    if rank is None or size is None:
        missing = [name for name, value in {"rank": rank, "size": size}.items() if value is None]
        names = " and ".join(f"`{name}` (or NETSUM_{name.upper()})" for name in missing)
        raise JoinError(f"to join by a join line, give {names}; torchrun, mpirun and srun set both")
    if size < 1 or not 0 <= rank < size:
        raise JoinError(f"rank is {rank} and size is {size}: a job of {size} ranks has ranks 0..{size - 1}")
    return rank, size


def _enroll(line: JoinUrl, job: str, rank: int, size: int, deadline: float) -> ControllerClient:
    """Send the enrollment until the aggregator answers, or until the deadline."""
    requests = ControllerRequests("/v1/jobs", line.token, line.controller, f"job {job!r}, rank {rank}")

    def request(left: float) -> Any:
        address = own_address(line.controller)
        if address is None:
            raise OSError(f"{urllib.parse.urlsplit(line.controller).hostname} has no IPv4 address, or there is no route to it")
        mtu = min(mtu_of(address), _LARGEST_MTU)
        body = {"job": job, "rank": rank, "size": size, "mtu": mtu, "address": address, "host": host_identity()}
        if (speed := speed_of(address)) is not None:
            body["link_mbps"] = speed
        return requests.request("POST", "", body, left)

    answer = requests.until(deadline, request)
    given = [answer.get(name) for name in ("job", "token")] if isinstance(answer, dict) else []
    if not given or not all(isinstance(text, str) and text for text in given):
        raise JoinError(f"the controller at {requests.address} gave no job and token: is it an aggregator?")
    name, token = given
    return ControllerClient(str(name), rank, str(token), line.controller)
