# SPDX-License-Identifier: MIT
"""The endpoint of a rank for which another rank of its host contributes: a switch's, over shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from netsum.core.blocks import BlockRejected, CallMismatch
from netsum.core.endpoint import BlockedOn, CallMemory
from netsum.core.priority_backoff import PriorityBackoff
from netsum.core.retransmit import Retransmitter, Sent
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.descriptor import Descriptor
from netsum.intranode.group import MemberGroup
from netsum.intranode.segment import DIFFER, NO_FAILURE
from netsum.intranode.transport import MemberTransport
from netsum.packet_batch import Packet
from netsum.transports.base import Transport
from netsum.wire.schema import Outcome


class _NoRetransmission(Retransmitter):
    """Nothing is lost in memory, and the round trip is not known: results that come together are there together, so waiting for
    more of them is of no use."""

    def start(self, now: float, pause: float | None = None) -> None:
        pass

    def arrived(self, first: int, number: int, sent: Sent, now: float, *, others: bool) -> None:
        pass

    def find_overtaken(self, sent: Mapping[int, Sent]) -> int:  # noqa: ARG002
        return 0

    def lost(self, serial: int, sent: Sent, now: float, *, others: bool) -> None:
        pass


class _NoBackoff(PriorityBackoff):
    """The leader backs off, for all."""

    def on_result(self, backoff: bool, now: float, number: int = 1) -> None:
        pass


class LocalEndpoint(SwitchEndpoint):
    """One rank's own window, whichever of the host's ranks it is: what it sends and receives is never lost, and stands for this
    rank alone."""

    def __init__(self, descriptor: Descriptor) -> None:
        super().__init__(replace(descriptor, local_ranks=(), key="", endpoints=()))
        self._retransmitter = _NoRetransmission(self.block_id, descriptor.roots)
        self._backoff = _NoBackoff(descriptor.window)

    def resume(
        self,
        first_block_id: int,  # noqa: ARG002
        roots: Sequence[int] = (),  # noqa: ARG002
        job_id: int | None = None,  # noqa: ARG002
        key: str = "",  # noqa: ARG002
        src_id: int | None = None,  # noqa: ARG002
    ) -> bool:
        """Always False: the ranks of a host connect again in every epoch."""
        return False


class MemberEndpoint(LocalEndpoint):
    """The endpoint of every rank of a host but the leader (an :class:`netsum.core.endpoint.Endpoint`)."""

    def __init__(self, descriptor: Descriptor) -> None:
        """Raises JoinError."""
        self._group = MemberGroup(descriptor)
        super().__init__(descriptor)
        self._noticed = NO_FAILURE, 0  # the leader's failure, and the oldest block then
        self._raised = NO_FAILURE

    @property
    def received_end(self) -> int:
        segment = self._group.segment
        return max(self._received_end, segment.received_end if segment is not None else 0)

    @received_end.setter
    def received_end(self, value: int) -> None:
        self._received_end = value

    @property
    def call_memory(self) -> CallMemory | None:
        return self._group.call_memory

    def attach(self, link: Transport) -> Transport:
        return MemberTransport(link, self._group)

    def poll(self, now: float) -> Sequence[Packet]:
        self._raise_failure()
        return super().poll(now)

    def _raise_failure(self) -> None:
        """Raise once that the leader has failed, or that it has refused this rank's contribution. Results from before are taken
        first: all of them have come when nothing has arrived between two polls."""
        segment = self._group.segment
        if segment is None or self.base == self.next_serial:
            return
        refused, failure = int(segment.refused[self._group.index]), segment.failure
        if refused > self.base:
            self._reject(refused - 1, Outcome.FINGERPRINT_MISMATCH)
        if failure == self._raised:
            return
        if (failure, self.base) != self._noticed:
            self._noticed = failure, self.base
            return
        self._raised = failure
        if failure.reason == DIFFER:
            raise CallMismatch(self.base)
        if failure.serial >= self.base:
            self._reject(failure.serial, failure.reason)

    def _reject(self, serial: int, reason: int) -> None:
        rejection = BlockRejected(serial, reason)
        name = rejection.reason.name if rejection.reason else str(reason)
        self.stats.refused += 1
        self.stats.refusals[name] = self.stats.refusals.get(name, 0) + 1
        raise rejection

    def limit_to_buffer(self, holds: Callable[[int], int]) -> None:
        """Nothing to do: there is room for a window."""

    def waits(self) -> None:
        """Nothing: the leader has sent it."""

    def left_behind(self) -> tuple[int, ...]:
        return self._group.left_behind(self.base) if self.base < self.next_serial else ()

    def explain(self, now: float) -> BlockedOn | None:  # noqa: ARG002
        return self._group.explain(self.base)

    def leave(self, transport: Transport) -> None:  # noqa: ARG002
        self._group.leave()
