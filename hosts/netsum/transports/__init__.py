"""How packets reach the switch. A transport knows no tensor; see :mod:`netsum.transports.base` for what it must do."""

from netsum.transports.base import Packet, Transport
from netsum.transports.faulty import FaultCounts, Faults, FaultyTransport
from netsum.transports.frames import FramesTransport
from netsum.transports.links import open_link
from netsum.transports.memory import MemoryTransport, memory_pair
from netsum.transports.packet import PacketTransport
from netsum.transports.udp import UdpTransport

__all__ = [
    "FaultCounts",
    "Faults",
    "FaultyTransport",
    "FramesTransport",
    "MemoryTransport",
    "Packet",
    "PacketTransport",
    "Transport",
    "UdpTransport",
    "memory_pair",
    "open_link",
]
