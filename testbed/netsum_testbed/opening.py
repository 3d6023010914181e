"""Stars of any size, brought up in the way that fits the machine."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence

from netsum_controller.topology import Topology

from netsum_testbed.fabric import Fabric
from netsum_testbed.namespaces import NamespaceFabric
from netsum_testbed.rootless import RootlessFabric


def star(hosts: int, mtu: int = 9000) -> Topology:
    """``h1``, ``h2``... on ports 1, 2... of ``s1``, with addresses 10.0.0.x; the switch's is 10.0.0.254."""
    return Topology.model_validate(
        {
            "name": f"star{hosts}",
            "switches": {"s1": {"device_id": 1, "ip": "10.0.0.254", "mac": "02:6e:73:00:00:fe"}},
            "hosts": {
                f"h{n}": {"ip": f"10.0.0.{n}", "mac": f"02:6e:73:00:00:{n:02x}", "switch": "s1", "port": n, "mtu": mtu}
                for n in range(1, hosts + 1)
            },
        }
    )


def common_prefix(addresses: Sequence[str]) -> int:
    """Length of the longest prefix, at most 24, that puts all addresses in one subnet."""
    for length in range(24, 0, -1):
        if len({ipaddress.ip_interface(f"{address}/{length}").network for address in addresses}) == 1:
            return length
    return 0


def open_fabric(switch: str, *, hosts: int, rootless: bool = False) -> Fabric:
    """A fabric, to be used as a context manager: veths in a namespace for root, the loopback without or on request."""
    if rootless or os.geteuid() != 0:
        return RootlessFabric(star(hosts), switch)
    return NamespaceFabric(star(hosts), switch)
