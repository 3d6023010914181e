# SPDX-License-Identifier: MIT
"""A transport that writes down what passes through it."""

from __future__ import annotations

from collections.abc import Sequence

from netsum.cli import packet_format
from netsum.transports.base import Packet, Transport
from netsum.wire.codec import parse_header
from netsum.wire.schema import HEADER_BYTES


class Recording:
    """Wraps a transport. ``lines``: each packet told once, in the order of its first passing."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.lines: list[str] = []

    def _note(self, direction: str, packet: bytes) -> None:
        told = packet_format.row(parse_header(packet), packet[HEADER_BYTES:], from_switch=direction == "<-")
        line = f"{direction} {packet_format.line(told)}"
        # On a busy machine packets are sent or answered twice; the story is the same.
        if line not in self.lines:
            self.lines.append(line)

    def send(self, packets: Sequence[Packet]) -> None:
        for packet in packets:
            self._note("->", b"".join(bytes(part) for part in packet))
        self.inner.send(packets)

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        came = self.inner.recv(timeout)
        for packet in came:
            self._note("<-", bytes(packet))
        return came

    def fileno(self) -> int | None:
        return self.inner.fileno()

    def close(self) -> None:
        self.inner.close()
