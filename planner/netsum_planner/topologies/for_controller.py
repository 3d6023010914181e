"""A topology as the controller knows it, with addresses and ports that mean nothing: to ask for its trees, or to build it."""

from __future__ import annotations

from typing import Any

from netsum_controller.config.topology import MAX_PORT
from netsum_controller.config.topology import Topology as Installed

from netsum_planner.topologies.files import MBPS
from netsum_planner.topologies.model import Topology

MTU = 9000


def for_controller(topology: Topology) -> Installed | None:
    """None if the controller could not have it: a host is not on one switch, or a switch has too many ports. Links keep their
    order, and so traffic its paths. Rates are in whole Mbit/s, at least 1."""
    homes = {host: topology.neighbours[host] for host in topology.hosts}
    if any(len(others) != 1 or others[0] not in topology.switches for others in homes.values()):
        return None
    used = dict.fromkeys(topology.switches, 0)

    def port(switch: str) -> int:
        used[switch] += 1
        return used[switch]

    def addresses(number: int) -> dict[str, str]:
        return {
            "ip": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
            "mac": f"02:00:00:{number >> 16:02x}:{number >> 8 & 255:02x}:{number & 255:02x}",
        }

    def link(one: str, other: str) -> dict[str, Any]:
        rate = min(topology.rates[ends] for ends in ((one, other), (other, one)) if ends in topology.rates)
        return {"rate_mbps": max(1, round(rate / MBPS)), "mtu": MTU}

    order = {name: n for n, name in enumerate(topology.nodes, 1)}
    hosts = {
        host: {**addresses(order[host]), "switch": others[0], "port": port(others[0]), **link(host, others[0])}
        for host, others in homes.items()
    }
    between = dict.fromkeys(
        (one, other) if order[one] < order[other] else (other, one)
        for one, other in topology.rates
        if one in topology.switches and other in topology.switches and (other, one) in topology.rates
    )
    links = {
        f"{one}_{other}": {"switches": (one, other), "ports": (port(one), port(other)), **link(one, other)}
        for one, other in between
    }
    if max(used.values(), default=0) > MAX_PORT:
        return None
    switches = {name: {"device_id": order[name], **addresses(order[name])} for name in topology.switches}
    return Installed.model_validate({"name": "planned", "switches": switches, "hosts": hosts, "links": links})
