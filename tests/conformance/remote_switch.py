# SPDX-License-Identifier: MIT
"""A switch that runs elsewhere: P4Runtime at an address, and the far ends of its data ports."""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from netsum_controller.p4runtime.client import SwitchClient
from netsum_controller.p4runtime.p4info import CompiledProgram, netsum_program
from netsum_switch.ports.base import Port
from netsum_switch.ports.spec import PortSpec, open_port, parse_port

from tests.protocol import star
from tests.protocol.frames import mac
from tests.protocol.targets import MARKER_TYPE, OnSwitch, switch_entry
from tests.switch.harness.api import DEVICE_ID, SwitchUnderTest
from tests.threads import PATIENCE

PROBE_INTERVAL: Final = 0.2
"""Seconds between two probes of a port."""


class ConformanceError(Exception):
    """What was given does not lead to a switch or a host; the message says what is wrong."""


class RemoteSwitch(SwitchUnderTest):
    """See `SwitchUnderTest`. ``ports`` are the far ends of the switch's ports, under their numbers."""

    kind = "remote"

    def __init__(self, grpc_address: str, ports: Sequence[PortSpec], device_id: int = DEVICE_ID) -> None:
        """Raises :class:`netsum_switch.ports.base.PortError` if an end cannot be opened."""
        self.grpc_address, self.device_id = grpc_address, device_id
        self._ports: dict[int, Port] = {}
        self._came: Mapping[int, deque[bytes]] = {spec.number: deque() for spec in ports}
        try:
            for spec in ports:
                self._ports[spec.number] = open_port(spec)
        except BaseException:
            self.close()
            raise

    def send(self, port: int, frame: bytes) -> None:
        self._ports[port].send(frame)

    def recv(self, port: int, timeout: float = PATIENCE) -> bytes | None:
        came, deadline = self._came[port], time.monotonic() + timeout
        while not came:
            left = deadline - time.monotonic()
            if not select.select([self._ports[port].fileno()], [], [], max(left, 0.0))[0]:
                return None
            came.extend(self._ports[port].receive())
        return came.popleft()

    def drain(self) -> None:
        for port in self._ports:
            while self.recv(port, 0.0) is not None:
                pass

    @property
    def is_alive(self) -> bool:
        return True  # its owner knows

    def restart(self) -> None:
        raise NotImplementedError("a switch that runs elsewhere is restarted by loading its program again")

    def close(self) -> None:
        for port in self._ports.values():
            port.close()


def parse_ports(texts: Sequence[str]) -> list[PortSpec]:
    """The far ends of ports 1 to 4. Raises ConformanceError if they are others, PortError if a text is none."""
    specs = [parse_port(text) for text in texts]
    if sorted(spec.number for spec in specs) != list(star.PORTS):
        wanted = ", ".join(map(str, star.PORTS))
        raise ConformanceError(
            f"the tests use the switch's ports {wanted}: give the far end of each with --port, such as "
            "--port 1@veth1 or --port 1@udp:127.0.0.1:9101:127.0.0.1:9001"
        )
    return specs


def probe(switch: SwitchUnderTest, timeout: float, program: CompiledProgram | None = None) -> None:
    """Load the program, and send a frame through every pair of ports. Raises :class:`netsum_controller.errors.ControllerError` if
    P4Runtime does not answer, ConformanceError if a frame does not come out within ``timeout`` seconds."""
    client = SwitchClient("s1", switch_entry(switch), program or netsum_program())
    client.connect().close()  # soon an error, where loading a program would wait long
    target = OnSwitch(switch, star.items(), program)
    try:
        for port in star.PORTS:
            for other in star.PORTS:
                if other != port:
                    _pass(switch, port, other, timeout)
    finally:
        target.close()
    switch.drain()


def _pass(switch: SwitchUnderTest, port: int, other: int, timeout: float) -> None:
    body = mac(star.station(port).mac) + MARKER_TYPE + bytes([port, other]).ljust(46, b"\0")
    frame, deadline = mac(star.station(other).mac) + body, time.monotonic() + timeout
    while time.monotonic() < deadline:
        switch.send(port, frame)
        while (came := switch.recv(other, PROBE_INTERVAL)) is not None:
            if came == frame:
                return
    raise ConformanceError(
        f"a frame into port {port} of the switch at {switch.grpc_address} did not come out of port {other} within {timeout:g} s: "
        f"check --port {port}@... and --port {other}@..., which name the far ends of these ports"
    )
