# SPDX-License-Identifier: MIT
"""Transports of ranks that share memory: around the link of the rank that contributes for all, and in its place on the others."""

from __future__ import annotations

from collections.abc import Sequence

from netsum.core.endpoint import WAIT_SLICE
from netsum.errors import CommunicatorError
from netsum.intranode.group import LeaderGroup, MemberGroup
from netsum.packet_batch import Packet
from netsum.transports.base import Transport


class LeaderTransport:
    """The leader's ``link``; a wait on it also ends when another rank has contributed."""

    def __init__(self, link: Transport, group: LeaderGroup) -> None:
        self.link = link
        self.group = group
        self._fd = link.fileno()
        if self._fd is not None:
            group.watch(self._fd)

    def send(self, packets: Sequence[Packet]) -> None:
        self.link.send(packets)

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        if self._fd is not None and timeout != 0:
            self.group.wait(timeout)
        self.group.listen()
        slice_ = WAIT_SLICE if timeout is None else min(timeout, WAIT_SLICE)
        return self.link.recv(0.0 if self._fd is not None else slice_)  # one without a descriptor is in memory

    def fileno(self) -> int | None:
        return None if self._fd is None else self.group.fileno()

    def close(self) -> None:
        self.group.close()
        self.link.close()


class MemberTransport:
    """Shared memory as a transport, which loses nothing. ``link`` is only closed."""

    def __init__(self, link: Transport, group: MemberGroup) -> None:
        self.link = link
        self.group = group

    def send(self, packets: Sequence[Packet]) -> None:
        self.group.contribute(packets)

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        """Results, as views of the shared memory."""
        group = self.group
        if (found := group.take()) is None:
            if timeout != 0:
                group.wait(timeout)
            group.listen()
            found = group.take()
        return [] if found is None else found

    def fileno(self) -> int | None:
        return self.group.fileno()

    def close(self) -> None:
        self.group.close()
        self.link.close()


class NoLink:
    """The link of a rank for which another one contributes: there is none."""

    def send(self, packets: Sequence[Packet]) -> None:  # noqa: ARG002
        raise CommunicatorError("this rank has no link of its own: another rank of its host contributes for it")

    def recv(self, timeout: float | None) -> Sequence[memoryview]:  # noqa: ARG002
        return []

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        """Nothing to do."""
