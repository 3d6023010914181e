# SPDX-License-Identifier: MIT
"""Topologies of the usual shapes, of any size: what ``netsum topology make`` writes.

Hosts are ``h1``, ``h2``... with addresses 10.0.0.1, 10.0.0.2...; switches have addresses from 10.0.0.254 down, in the order
of the file. A MAC address ends in the IP address's last byte. A leaf's first ports are its hosts', the next its uplinks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from netsum.text import counted

from netsum_controller.config.topology import MAX_PORT, Topology
from netsum_controller.errors import InputError

MTU = 9000
"""Bytes: enough for the largest block, 4096 bytes, in one packet."""

MAX_ADDRESSES = 254
"""Hosts and switches in one /24."""


def star(hosts: int, *, shared: int = 0, mtu: int = MTU, rate_mbps: int | None = None) -> Topology:
    """``hosts`` around one switch ``s1``, the last ``shared`` of them behind an ordinary Ethernet switch at one port."""
    _at_least(hosts=hosts)
    if not 0 <= shared <= hosts:
        raise InputError(f"{counted(hosts, 'host')} cannot have {shared} behind a shared port")
    made = _make(f"star{hosts}", ["s1"], ["s1"] * hosts, [], mtu, rate_mbps)
    if not shared:
        return made
    data, port = made.model_dump(), hosts - shared + 1
    for name in list(made.hosts)[-shared:]:
        data["hosts"][name]["port"] = port
    data["switches"]["s1"]["shared_ports"] = [port]
    return Topology.model_validate(data)


def tree(leaves: int, hosts: int, *, mtu: int = MTU, rate_mbps: int | None = None) -> Topology:
    """``leaves`` under one ``root``, with ``hosts`` each."""
    _at_least(leaves=leaves, hosts=hosts)
    names = [f"leaf{n}" for n in range(1, leaves + 1)]
    homes = [leaf for leaf in names for _ in range(hosts)]
    return _make(f"tree{leaves}x{hosts}", [*names, "root"], homes, [(leaf, "root") for leaf in names], mtu, rate_mbps)


def leaf_spine(spines: int, leaves: int, hosts: int, *, mtu: int = MTU, rate_mbps: int | None = None) -> Topology:
    """Every one of the ``leaves`` is joined to every one of the ``spines``, and has ``hosts``."""
    _at_least(spines=spines, leaves=leaves, hosts=hosts)
    upper = [f"spine{n}" for n in range(1, spines + 1)]
    lower = [f"leaf{n}" for n in range(1, leaves + 1)]
    homes = [leaf for leaf in lower for _ in range(hosts)]
    links = [(leaf, spine) for leaf in lower for spine in upper]
    return _make(f"leafspine{spines}x{leaves}x{hosts}", [*lower, *upper], homes, links, mtu, rate_mbps)


def fat_tree(k: int, hosts_per_edge: int | None = None, *, mtu: int = MTU, rate_mbps: int | None = None) -> Topology:
    """A fat-tree of switches with ``k`` ports (Al-Fares, Loukissas, Vahdat: "A Scalable, Commodity Data Center Network
    Architecture", SIGCOMM 2008, section 3): ``k`` pods of k/2 edge and k/2 aggregation switches, (k/2)**2 cores; k/2 hosts an
    edge switch unless ``hosts_per_edge`` says otherwise."""
    if k < 2 or k % 2:
        raise InputError(f"a fat-tree's k is an even number from 2, not {k}")
    half = k // 2
    hosts = half if hosts_per_edge is None else hosts_per_edge
    _at_least(hosts_per_edge=hosts)
    pods, places = range(1, k + 1), range(1, half + 1)
    edges = [f"edge{pod}-{n}" for pod in pods for n in places]
    aggregations = [f"agg{pod}-{n}" for pod in pods for n in places]
    cores = [f"core{n}" for n in range(1, half * half + 1)]
    homes = [edge for edge in edges for _ in range(hosts)]
    links = [(f"edge{pod}-{low}", f"agg{pod}-{high}") for pod in pods for low in places for high in places]
    # The n-th aggregation switch of every pod is joined to the n-th group of half cores.
    links += [(f"agg{pod}-{n}", f"core{(n - 1) * half + c}") for pod in pods for n in places for c in places]
    name = f"fattree{k}" if hosts_per_edge is None else f"fattree{k}x{hosts}"
    return _make(name, [*edges, *aggregations, *cores], homes, links, mtu, rate_mbps)


def _at_least(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise InputError(f"a topology has {name.replace('_', ' ')} of 1 or more, not {number}")


def _make(
    name: str,
    switches: Sequence[str],
    homes: Sequence[str],
    links: Sequence[tuple[str, str]],
    mtu: int,
    rate: int | None,
) -> Topology:
    """``homes``: the switch of each host. Ports are given in order, hosts first."""
    count = len(switches) + len(homes)
    if count > MAX_ADDRESSES:
        raise InputError(
            f"{counted(len(homes), 'host')} and {counted(len(switches), 'switch')} are {count} addresses; "
            f"a topology made here has {MAX_ADDRESSES} at most"
        )
    wire = {"mtu": mtu} if rate is None else {"rate_mbps": rate, "mtu": mtu}
    used = dict.fromkeys(switches, 0)

    def port(switch: str) -> int:
        used[switch] += 1
        if used[switch] > MAX_PORT:
            raise InputError(f"switch {switch} would need more than {MAX_PORT} ports")
        return used[switch]

    return Topology.model_validate(
        {
            "name": name,
            "switches": {switch: {"device_id": n, **_addresses(MAX_ADDRESSES + 1 - n)} for n, switch in enumerate(switches, 1)},
            "hosts": {f"h{n}": {**_addresses(n), "switch": home, "port": port(home), **wire} for n, home in enumerate(homes, 1)},
            "links": {
                f"{one}_{other}": {"switches": (one, other), "ports": (port(one), port(other)), **wire} for one, other in links
            },
        }
    )


def _addresses(last: int) -> dict[str, str]:
    return {"ip": f"10.0.0.{last}", "mac": f"02:6e:73:00:00:{last:02x}"}


def to_lines(topology: Topology) -> str:
    """A topology as a person would write it: YAML with one line for each switch, host and link, which
    :func:`~netsum_controller.config.topology.load_topology` reads back as an equal one."""
    lines = [f"name: {topology.name}"]
    data: Mapping[str, Any] = topology.model_dump(exclude_defaults=True)
    for section in ("switches", "hosts", "links", "tenants"):
        if data.get(section):
            lines.append(f"{section}:")
            lines += [f"  {name}: {_flow(values)}" for name, values in data[section].items()]
    return "\n".join([*lines, ""])


def _flow(values: Mapping[str, Any]) -> str:
    return yaml.safe_dump(values, default_flow_style=True, sort_keys=False, width=float("inf")).strip()
