# SPDX-License-Identifier: MIT
"""Members' transports over real sockets: what comes, and time that passes when a test says so."""

from __future__ import annotations

import time
from collections.abc import Callable

from netsum.peers.transport import PeerTransport

from tests.threads import PATIENCE

LOST = b"\0\x01"
"""What rank 1 sent before may be lost."""


class Time:
    """Simulated: it passes when a test says so, and by ``step`` seconds each time it is read."""

    def __init__(self) -> None:
        self.now, self.step = 1000.0, 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def received(transport: PeerTransport, *others: PeerTransport, number: int = 1) -> list[bytes]:
    """Receive that many packets; meanwhile the others tend their connections. Fewer, if they do not come for a minute."""
    deadline = time.monotonic() + PATIENCE
    packets: list[bytes] = []
    while time.monotonic() < deadline and len(packets) < number:
        for other in others:
            assert other.recv(0) == []
        packets += map(bytes, transport.recv(0.01))
    return packets


def until(condition: Callable[[], bool], *transports: PeerTransport) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        for each in transports:
            assert each.recv(0.01) == []
