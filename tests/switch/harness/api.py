# SPDX-License-Identifier: MIT
"""The interface of either switch for tests."""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping
from typing import Protocol

from tests.threads import PATIENCE

DEVICE_ID = 1
CPU_PORT = 510
PORTS = (1, 2, 3, 4)

# Seconds in which a frame that must not come would have come.
SILENCE = 0.3


class SwitchUnderTest(Protocol):
    """A running switch with `PORTS`, a CPU port and no program yet."""

    kind: str
    grpc_address: str
    device_id: int = DEVICE_ID

    def send(self, port: int, frame: bytes) -> None:
        """Put a frame on the wire of a port, towards the switch."""

    def recv(self, port: int, timeout: float = PATIENCE) -> bytes | None:
        """The next frame that the switch sends on a port; None when there is none in `timeout` seconds."""

    def passed(self, frame: bytes, port: int) -> bytes | None:
        """Put a frame on the wire of port 1; the next that leaves at `port`."""
        self.send(1, frame)
        return self.recv(port)

    def drain(self) -> None:
        """Forget frames that were not received."""

    @property
    def is_alive(self) -> bool:
        """True if its process has not ended by itself: BMv2's may, on an assertion."""

    def restart(self) -> None:
        """End the switch, and start another in its place: the same address and wires, and no program."""

    def close(self) -> None:
        """Stop the switch and leave nothing behind."""


class WithWires(SwitchUnderTest):
    """Receives through the far ends of the ports' wires, which are sockets."""

    _wires: Mapping[int, socket.socket]

    def recv(self, port: int, timeout: float = PATIENCE) -> bytes | None:
        readable, _, _ = select.select([self._wires[port]], [], [], timeout)
        return self._wires[port].recv(65536) if readable else None

    def drain(self) -> None:
        for port in self._wires:
            while self.recv(port, 0.0) is not None:
                pass
