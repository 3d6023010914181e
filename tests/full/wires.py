# SPDX-License-Identifier: MIT
"""A host's end of its wire, for tests that speak for the host by hand."""

from __future__ import annotations

from netsum.transports.sockets import parse_address
from netsum_switch.ports import Port
from netsum_switch.ports.packet import PacketPort
from netsum_switch.ports.udp import UdpPort
from netsum_testbed.fabric import Fabric


def open_wire(fabric: Fabric, name: str) -> Port:
    """A UDP socket on a rootless fabric, else the host's interface."""
    host = fabric.topology.hosts[name]
    if host.frames is not None and host.switch_frames is not None:
        return UdpPort(0, parse_address(host.frames), parse_address(host.switch_frames))
    return fabric.inside(lambda: PacketPort(0, fabric.interface(name)))
