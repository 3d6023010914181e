# SPDX-License-Identifier: MIT
"""A job by a switch, in memory, whose ranks may also sum by themselves: with a companion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from netsum import Communicator, Descriptor, JoinError
from netsum.collectives.selected_sum import READY
from netsum.collectives.way_selection import BOTH, RING, SizeClass
from netsum.companion import Companion
from netsum.descriptor import SWITCH
from netsum.transports import InMemoryTransport, Transport

from tests.hosts.calls import on_each
from tests.hosts.peers import memory_peers, peer_descriptor
from tests.hosts.restarts import MemoryMembership, RestartingNetwork
from tests.threads import PATIENCE, until

ADVICE = ((8192, 0.4),)
"""Calls of 8 KiB and more may leave the switch."""


class CompanionNetwork(RestartingNetwork):
    """Members whose descriptors have advice, and a controller that makes groups of all of them by a host algorithm."""

    def __init__(
        self, workers: int, advice: tuple[tuple[int, float], ...] = ADVICE, refuses: Sequence[int] = (), quorum: int = 0
    ) -> None:
        """The controller refuses these ranks a group."""
        self.advice = advice
        self.refuses = refuses
        self.groups: list[Communicator] = []
        self.wrap: Callable[[Transport, int], Transport] = lambda transport, _rank: transport
        """Put around the transport of a rank in a group."""
        self._peers: dict[tuple[int, str], dict[int, InMemoryTransport]] = {}
        super().__init__(workers, quorum=quorum)

    def describe(self, rank: int, resumes: int | None = None) -> Descriptor:
        return replace(super().describe(rank, resumes), advice=self.advice)

    def communicator(self, rank: int) -> Communicator:
        first = self.join_anew(rank)
        return Communicator(first, self.open(first), timeout=PATIENCE, membership=_Membership(self, rank))

    def peers(self, rank: int, epoch: int, label: str, algorithm: str | None) -> Communicator:
        with self.lock:
            if rank in self.refuses:
                raise JoinError(f"rank {rank} has no address for the others")
            transports = self._peers.setdefault((epoch, label), memory_peers(range(self.workers)))
            own = peer_descriptor(rank, self.workers, algorithm=algorithm)
            made = Communicator(own, self.wrap(transports[rank], rank), timeout=PATIENCE)
            self.groups.append(made)
            return made


class _Membership(MemoryMembership):
    def group(
        self,
        epoch: int,
        label: str,
        ranks: Sequence[int],
        deadline: float,  # noqa: ARG002 - it answers at once
        algorithm: str | None = None,
    ) -> Communicator:
        network = self._network
        assert isinstance(network, CompanionNetwork)
        assert list(ranks) == list(range(network.workers))
        return network.peers(self._rank, epoch, label, algorithm)


def _is_ready(companion: Companion) -> bool:
    return companion.state == READY


def ready(communicators: list[Communicator], call: Callable[[Communicator], Any]) -> None:
    """Make calls until all companions can be used. The first begins to make them."""
    on_each(communicators, call)
    for comm in communicators:
        companion = comm._companion
        assert companion is not None
        until(partial(_is_ready, companion), "the companion")


def settle(communicators: list[Communicator], way: str, nbytes: int, *, divisible: bool = True) -> None:
    """Have all calls of this size go one way, as if it had been the fastest."""
    for comm in communicators:
        size_class = class_of(comm, nbytes, divisible=divisible)
        assert way in size_class.ways
        size_class.settled = way


def class_of(comm: Communicator, nbytes: int, *, divisible: bool = True) -> SizeClass:
    companion = comm._companion
    assert companion is not None
    found = companion.selection.of(nbytes, divisible=divisible)
    assert found is not None
    return found


WAYS = (SWITCH, RING, BOTH)
