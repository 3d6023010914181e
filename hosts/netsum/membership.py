# SPDX-License-Identifier: MIT
"""A rank taken through the controller, and taken again when the epoch has moved on or ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from netsum.communicator import Communicator
from netsum.controller_client import ControllerClient
from netsum.controller_http import REQUEST_TIMEOUT, BackgroundRequest
from netsum.core.recovery import RejoinReport
from netsum.descriptor import AUTO, PLAN, SWITCH, Descriptor, check_torus, of_some
from netsum.errors import JoinError
from netsum.peers.schedule_files import read_plan
from netsum.peers.transport import PeerSocket, PeerTransport, own_address
from netsum.transports.base import Transport
from netsum.transports.sockets import parse_address
from netsum.transports.udp import Joins

log = logging.getLogger("netsum.membership")


@dataclass(frozen=True)
class JoinOptions:
    """The arguments of :func:`netsum.join` about how to reach the others: the ``link`` to the switch and ``open_switch``, which
    opens it; ``peer``, the address for the other members (HOST or HOST:PORT); the ``algorithm`` in a job without a switch; and
    ``wrap``, which wraps every transport."""

    link: Mapping[str, str] | None
    open_switch: Callable[[Descriptor], Transport]
    peer: str | None
    algorithm: str | None
    call_timeout: float
    wrap: Callable[[Transport], Transport]


class ControllerMembership:
    """Keeps the socket for the other members open from the start: the controller tells them its address in case they have to
    combine without a switch."""

    def __init__(self, client: ControllerClient, options: JoinOptions) -> None:
        """Raises JoinError if the socket cannot be opened at the caller's address."""
        self._client = client
        self._options = options
        address = options.peer or own_address(client.controller)
        self._socket = PeerSocket(address) if address is not None else None
        self._reported: BackgroundRequest[None] | None = None

    @property
    def _peer(self) -> str | None:
        return self._socket.address if self._socket is not None else None

    def join(self, deadline: float) -> Descriptor:
        """Take the rank before ``deadline`` (``time.monotonic()``). Raises what :meth:`ControllerClient.join` raises."""
        descriptor = self._client.join(self._options.link, deadline, self._peer)
        try:
            return check_algorithm(descriptor, self._options.algorithm)
        except JoinError:
            self._client.leave()
            raise

    def rejoin(self, epoch: int, report: RejoinReport) -> Descriptor:
        """See :meth:`ControllerClient.rejoin`."""
        descriptor = self._client.rejoin(epoch, report, self._options.link, self._peer)
        return with_algorithm(descriptor, self._options.algorithm)

    def join_anew(self, deadline: float) -> Descriptor:
        """Take the rank again as a new process, before ``deadline`` (``time.monotonic()``)."""
        self._client.renew_instance()
        return with_algorithm(self._client.join(self._options.link, deadline, self._peer), self._options.algorithm)

    def open_transport(self, descriptor: Descriptor) -> Transport:
        if descriptor.by_switch:
            transport = self._options.wrap(self._options.open_switch(descriptor))
            if descriptor.group and descriptor.rank == descriptor.leader:
                self._reported = self._join_group(transport, descriptor)
            return transport
        if self._socket is None:
            raise JoinError(
                f"job {descriptor.job!r} has no switch, and this host has no address for the other members: "
                "give `peer` (or NETSUM_PEER)"
            )
        return self._options.wrap(PeerTransport(self._socket, descriptor))

    def _join_group(self, transport: Transport, descriptor: Descriptor) -> BackgroundRequest[None] | None:
        """Join the job's IP multicast group, and tell the controller, until which results come by unicast. A rank that cannot
        join loses nothing."""
        try:
            if not isinstance(transport, Joins):
                raise OSError(f"{type(transport).__name__} cannot join a group")
            transport.join(parse_address(descriptor.group))
        except OSError as error:
            what = "job %s, rank %d: results come by unicast, since joining the multicast group %s failed: %s"
            log.warning(what, descriptor.job, descriptor.rank, descriptor.group, error.strerror or error)
            return None
        deadline = time.monotonic() + REQUEST_TIMEOUT
        return BackgroundRequest(lambda: self._client.report_group(descriptor.epoch, descriptor.group, deadline))

    def group(self, epoch: int, label: str, ranks: Sequence[int], deadline: float, algorithm: str | None = None) -> Communicator:
        """The communicator of a group of these ranks, which include this one. ``algorithm``: a host algorithm instead of the
        job's."""
        host = self._peer and self._peer.rpartition(":")[0]
        own = algorithm or self._options.algorithm
        options = replace(self._options, peer=host, algorithm=own and of_some(own))
        member = ControllerMembership(self._client.group(epoch, label, ranks, deadline, algorithm), options)
        return member.communicator(deadline)

    def p2p_socket(self, purpose: str) -> tuple[PeerSocket, bytes] | None:
        """Another socket at this member's address, and a key for ``purpose`` that only members of the job can make. None if this
        host has no address."""
        if self._socket is None:
            return None
        host, _, _ = self._socket.address.rpartition(":")
        return PeerSocket(host), self._client.derived_key(purpose)

    def communicator(self, deadline: float) -> Communicator:
        joined = False
        try:
            descriptor = self.join(deadline)
            joined = True
            made = self.open_transport(descriptor)
            if self._reported is not None:  # else its first results come by unicast
                self._reported.done(deadline - time.monotonic())
        except BaseException:
            if joined:
                self._client.leave()
            self.close()
            raise
        return Communicator(
            descriptor,
            made,
            timeout=self._options.call_timeout,
            join_deadline=deadline,
            explain=self._client.explain,
            membership=self,
            leave=self.leave,
        )

    def leave(self) -> None:
        self._client.leave()
        self.close()

    def close(self) -> None:
        """Give the socket back. May be called twice."""
        if self._socket is not None:
            self._socket.close()


def check_algorithm(descriptor: Descriptor, algorithm: str | None) -> Descriptor:
    """The descriptor with the caller's algorithm instead of its own; JoinError if only the controller can change it."""
    if descriptor.by_switch and algorithm not in (None, SWITCH, AUTO):
        raise JoinError(
            f"job {descriptor.job!r} is combined by a switch, not by {algorithm!r}: "
            f"`netsum job create --algorithm {algorithm}` makes a job without one"
        )
    if not descriptor.by_switch and algorithm == SWITCH:
        raise JoinError(
            f"job {descriptor.job!r} has no switch (its algorithm is {descriptor.algorithm}): "
            f"`netsum job create --algorithm {SWITCH}` makes a job with one"
        )
    return with_algorithm(descriptor, algorithm)


def with_algorithm(descriptor: Descriptor, algorithm: str | None) -> Descriptor:
    """The descriptor with the caller's algorithm instead of its own, if there is no switch; where there is, ``switch`` leaves it
    all calls. JoinError if that is a plan that cannot be read, or a plan or a chain for another number of ranks."""
    if descriptor.by_switch and algorithm == SWITCH:
        return replace(descriptor, advice=())
    if not descriptor.by_switch and algorithm is not None and algorithm != SWITCH:
        try:
            check_torus(algorithm, descriptor.workers)
        except ValueError as error:
            raise JoinError(f"job {descriptor.job!r}: {error}") from None
        descriptor = replace(descriptor, algorithm=algorithm)
    if descriptor.algorithm.startswith(PLAN):
        try:
            hosts = read_plan(descriptor.algorithm.removeprefix(PLAN)).hosts
        except ValueError as error:
            raise JoinError(str(error)) from None
        if len(hosts) != descriptor.workers:
            raise JoinError(
                f"{descriptor.algorithm} is for {len(hosts)} ranks, and job {descriptor.job!r} has {descriptor.workers}"
            )
    return descriptor
