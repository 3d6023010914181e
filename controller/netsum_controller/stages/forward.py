"""Stage ``forward``: plain L2 forwarding of other traffic, if its sender address belongs to its port."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from netsum_controller.stages.entry import Entry


@dataclass(frozen=True)
class ForwardEntry(Entry):
    """Frames to ``eth_dst`` leave through ``port``; what has no entry is flooded."""

    TABLE: ClassVar = "forward"
    ACTION: ClassVar = "forward_to"
    KEY: ClassVar = ("eth_dst",)

    eth_dst: int
    port: int


@dataclass(frozen=True)
class SenderEntry(Entry):
    """Packets with this IPv4 or ARP sender ``address`` are accepted at the ports whose bits are set in ``ports``, and dropped
    at all others."""

    TABLE: ClassVar = "sender"
    ACTION: ClassVar = "comes_through"
    KEY: ClassVar = ("address",)

    address: int
    ports: int
