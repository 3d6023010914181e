"""A rank's place at the controller: taken once, and taken again when the epoch has gone on or ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from netsum.communicator import Communicator
from netsum.descriptor import AUTO, SWITCH, Descriptor
from netsum.door import Door
from netsum.errors import JoinError
from netsum.peers.transport import PeerSocket, PeerTransport, own_address
from netsum.transports.base import Transport


@dataclass(frozen=True)
class Wishes:
    """What the caller of :func:`netsum.join` has said of the way to the others: ``link`` to the switch, ``open_switch`` opens it;
    ``peer``: address (HOST, or HOST:PORT) for the other members; ``algorithm`` without a switch; ``call_timeout``; ``wrap``
    puts something around every transport."""

    link: Mapping[str, str] | None
    open_switch: Callable[[Descriptor], Transport]
    peer: str | None
    algorithm: str | None
    call_timeout: float
    wrap: Callable[[Transport], Transport]


class Place:
    """Its socket for the other members is open from the beginning: the controller tells them where it is, should they have to
    combine without a switch."""

    def __init__(self, door: Door, wishes: Wishes) -> None:
        """Raises JoinError when the socket cannot be opened at the address that the caller gave."""
        self.door = door
        self._wishes = wishes
        address = wishes.peer or own_address(door.controller)
        self._socket = PeerSocket(address) if address is not None else None

    @property
    def _peer(self) -> str | None:
        return self._socket.address if self._socket is not None else None

    def join(self, deadline: float) -> Descriptor:
        """Take the rank, until ``deadline`` (``time.monotonic()``). Raises as :meth:`Door.join`."""
        descriptor = self.door.join(self._wishes.link, deadline, self._peer)
        try:
            return checked(descriptor, self._wishes.algorithm)
        except JoinError:
            self.door.leave()
            raise

    def rejoin(self, epoch: int, needs: int) -> Descriptor:
        """What has become of the epoch (:meth:`Door.rejoin`)."""
        descriptor = self.door.rejoin(epoch, needs, self._wishes.link, self._peer)
        return with_algorithm(descriptor, self._wishes.algorithm)

    def join_anew(self, deadline: float) -> Descriptor:
        """Take the rank again as somebody new, until ``deadline`` (``time.monotonic()``)."""
        self.door.again()
        return with_algorithm(self.door.join(self._wishes.link, deadline, self._peer), self._wishes.algorithm)

    def open_transport(self, descriptor: Descriptor) -> Transport:
        """The way to the switch, or to the other members."""
        if descriptor.by_switch:
            return self._wishes.wrap(self._wishes.open_switch(descriptor))
        if self._socket is None:
            raise JoinError(
                f"job {descriptor.job!r} has no switch, and this host has no address for the other members: "
                "give `peer` (or NETSUM_PEER)"
            )
        return self._wishes.wrap(PeerTransport(self._socket, descriptor))

    def group(self, epoch: int, label: str, ranks: Sequence[int], deadline: float) -> Communicator:
        """The communicator of a group of these ranks, this one among them."""
        host = self._peer and self._peer.rpartition(":")[0]
        place = Place(self.door.group(epoch, label, ranks, deadline), replace(self._wishes, peer=host))
        return place.communicator(deadline)

    def communicator(self, deadline: float, join_deadline: float | None = None) -> Communicator:
        """Join, and be in it."""
        joined = False
        try:
            descriptor = self.join(deadline)
            joined = True
            made = self.open_transport(descriptor)
        except BaseException:
            if joined:
                self.door.leave()
            self.close()
            raise
        return Communicator(
            descriptor,
            made,
            timeout=self._wishes.call_timeout,
            join_deadline=deadline if join_deadline is None else join_deadline,
            explain=self.door.explain,
            seat=self,
            leave=self.leave,
        )

    def leave(self) -> None:
        """Give the rank up."""
        self.door.leave()
        self.close()

    def close(self) -> None:
        """Give the socket back. May be called twice."""
        if self._socket is not None:
            self._socket.close()


def checked(descriptor: Descriptor, algorithm: str | None) -> Descriptor:
    """The descriptor with the caller's algorithm in place of its own; JoinError when only the controller can change it."""
    if descriptor.by_switch and algorithm not in (None, SWITCH, AUTO):
        raise JoinError(
            f"job {descriptor.job!r} is combined by a switch, asked for was {algorithm!r}: "
            f"`netsum job create --algorithm {algorithm}` makes a job without one"
        )
    if not descriptor.by_switch and algorithm == SWITCH:
        raise JoinError(
            f"job {descriptor.job!r} has no switch (algorithm {descriptor.algorithm}), asked for was {SWITCH!r}: "
            f"`netsum job create --algorithm {SWITCH}` makes a job with one"
        )
    return with_algorithm(descriptor, algorithm)


def with_algorithm(descriptor: Descriptor, algorithm: str | None) -> Descriptor:
    """The descriptor with the caller's algorithm in place of its own, if there is no switch."""
    if descriptor.by_switch or algorithm in (None, SWITCH):
        return descriptor
    return replace(descriptor, algorithm=algorithm)
