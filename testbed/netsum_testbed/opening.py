"""Brings up topologies in the way that fits the machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from netsum_controller.config.topologies import star
from netsum_controller.config.topology import Topology

from netsum_testbed.fabric import Fabric
from netsum_testbed.kernel import no_interfaces
from netsum_testbed.namespaces import NamespaceFabric
from netsum_testbed.rootless import RootlessFabric


def common_prefix(addresses: Sequence[str]) -> int:
    """Length of the longest prefix, at most 24, that puts all addresses in one subnet."""
    for length in range(24, 0, -1):
        if len({ipaddress.ip_interface(f"{address}/{length}").network for address in addresses}) == 1:
            return length
    return 0


def fabric_of(topology: Topology, switch: str, *, rootless: bool = False) -> Fabric:
    """A fabric for a topology: veths in a namespace as root, the loopback on request, or where we cannot make interfaces."""
    if rootless or no_interfaces():
        return RootlessFabric(topology, switch)
    return NamespaceFabric(topology, switch)


def open_fabric(switch: str, *, hosts: int, rootless: bool = False) -> Fabric:
    """A fabric that is a star."""
    return fabric_of(star(hosts), switch, rootless=rootless)
