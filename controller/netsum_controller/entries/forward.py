"""Stage ``forward``: plain L2 forwarding of other traffic, if its sender address belongs to its port."""

from __future__ import annotations

from dataclasses import dataclass

from netsum_controller.entries.entry import Entry


@dataclass(frozen=True)
class ForwardEntry(Entry, table="forward", action="forward_to", key=("eth_dst",)):
    """Frames to ``eth_dst`` leave through ``port``; what has no entry is flooded."""

    eth_dst: int
    port: int


@dataclass(frozen=True)
class SenderEntry(Entry, table="sender", action="comes_through", key=("address",)):
    """Packets with this IPv4 or ARP sender ``address`` are accepted at the ports whose bits are set in ``ports``, and dropped
    at all others."""

    address: int
    ports: int
