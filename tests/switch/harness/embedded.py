# SPDX-License-Identifier: MIT
"""The embedded switch as a switch under test: in this process, ports on UDP sockets of the loopback."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from netsum_switch.runtime import EmbeddedSwitch

from tests.switch.harness.api import CPU_PORT, DEVICE_ID, PORTS, WithWires


class EmbeddedUnderTest(WithWires):
    """See `SwitchUnderTest`."""

    kind = "embedded"

    def __init__(self, ports: Sequence[int] = PORTS) -> None:
        self._wires = {port: socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for port in ports}
        for wire in self._wires.values():
            wire.bind(("127.0.0.1", 0))
        self.switch = self._start("127.0.0.1:0")
        self.grpc_address = self.switch.grpc_address

    def _start(self, grpc_address: str) -> EmbeddedSwitch:
        return EmbeddedSwitch(
            [f"{port}@udp:127.0.0.1:0:127.0.0.1:{wire.getsockname()[1]}" for port, wire in self._wires.items()],
            device_id=DEVICE_ID,
            cpu_port=CPU_PORT,
            grpc_address=grpc_address,
        )

    def send(self, port: int, frame: bytes) -> None:
        self._wires[port].sendto(frame, self.switch.port_address(port))

    @property
    def is_alive(self) -> bool:
        return True  # it is in this process

    def restart(self) -> None:
        self.switch.stop()
        self.switch = self._start(self.grpc_address)

    def close(self) -> None:
        self.switch.stop()
        for wire in self._wires.values():
            wire.close()
