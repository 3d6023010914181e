"""What should be on a switch without any job: pure, from the topology to entries."""

from __future__ import annotations

from collections.abc import Collection

from netsum_controller.config.topology import Topology
from netsum_controller.planning.addresses import ip_to_int, mac_to_int
from netsum_controller.planning.forwarding import forwarding_items
from netsum_controller.stages import AggregatorEntry, ElsewhereEntry, Item


def switch_items(topology: Topology, switch: str, down: Collection[str] = frozenset()) -> list[Item]:
    """What a switch has without any job: its own address, those of the other switches, and forwarding that avoids switches
    that are ``down``."""
    own = topology.switches[switch]
    items: list[Item] = [AggregatorEntry(address=ip_to_int(own.ip), mac=mac_to_int(own.mac))]
    items += [ElsewhereEntry(ip_to_int(other.ip)) for name, other in topology.switches.items() if name != switch]
    return items + forwarding_items(topology, switch, down)
