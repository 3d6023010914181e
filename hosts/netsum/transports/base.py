# SPDX-License-Identifier: MIT
"""The interface of a transport, which carries netsum packets (header and payload) between one member and its switch.

It is unreliable by contract: packets may be lost, duplicated or reordered, but those that arrive are whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from netsum.packet_batch import Packet

__all__ = ["Packet", "Transport"]


@runtime_checkable
class Transport(Protocol):
    """Sends to and receives from one switch. Not thread-safe; one thread sends and receives at a time."""

    def send(self, packets: Sequence[Packet]) -> None:
        """Send the packets in this order. Those that the network cannot take now are lost, which the protocol repairs. Rows of
        :class:`netsum.packet_batch.SendBatch` may go many at a time."""

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        """Return the packets that have arrived, at most a batch, perhaps as :class:`netsum.packet_batch.ReceiveBatch`; wait up to
        ``timeout`` seconds for the first (0: do not wait; None: wait forever). The buffers are valid until the next call."""

    def fileno(self) -> int | None:
        """A descriptor that is readable when packets wait, or None."""

    def close(self) -> None:
        """Release all resources. May be called twice."""
