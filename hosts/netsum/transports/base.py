"""What a transport is: it carries netsum packets (header and payload, nothing below) between one member and its switch.

Unreliable by contract: a packet may be lost, doubled or reordered. What arrives is whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

Packet = Sequence[bytes | bytearray | memoryview]
"""One packet as the parts it is made of, sent one after the other without being copied together."""


@runtime_checkable
class Transport(Protocol):
    """Sends to and receives from one switch. Not thread-safe; one thread sends and receives at a time."""

    def send(self, packets: Sequence[Packet]) -> None:
        """Send the packets in this order. What the network cannot take now is lost, which the protocol repairs."""

    def recv(self, timeout: float | None) -> list[memoryview]:
        """All packets that have arrived, at most a batch; wait up to ``timeout`` seconds for the first.

        0 does not wait, None waits for ever. The buffers are valid until the next call.
        """

    def fileno(self) -> int | None:
        """A descriptor that is readable when packets wait, or None."""

    def close(self) -> None:
        """Give everything back. May be called twice."""
