# SPDX-License-Identifier: MIT
"""Transport of packets to the switch. A transport knows no tensor; see :mod:`netsum.transports.base` for what it must do."""

from netsum.transports.base import Packet, Transport
from netsum.transports.factory import open_link
from netsum.transports.impairment import ImpairedTransport, Impairment, ImpairmentCounts
from netsum.transports.loopback import InMemoryTransport, in_memory_pair
from netsum.transports.packet import FramesTransport, PacketTransport
from netsum.transports.striped import StripedUdpTransport
from netsum.transports.udp import UdpTransport

__all__ = [
    "FramesTransport",
    "ImpairedTransport",
    "Impairment",
    "ImpairmentCounts",
    "InMemoryTransport",
    "Packet",
    "PacketTransport",
    "StripedUdpTransport",
    "Transport",
    "UdpTransport",
    "in_memory_pair",
    "open_link",
]
