# SPDX-License-Identifier: MIT
"""Random topologies, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st
from netsum_controller.config.topology import Topology


def make(switches: list[str], hosts: dict[str, str], links: list[tuple[str, str]]) -> Topology:
    """A topology of these switches, hosts (name to switch) and links; ports are counted from 1."""
    used = dict.fromkeys(switches, 0)

    def port(switch: str) -> int:
        used[switch] += 1
        return used[switch]

    return Topology.model_validate(
        {
            "name": "made",
            "switches": {
                name: {"device_id": 1, "ip": f"10.1.0.{n}", "mac": f"02:6e:73:00:01:{n:02x}"}
                for n, name in enumerate(switches, 1)
            },
            "hosts": {
                name: {"ip": f"10.0.0.{n}", "mac": f"02:6e:73:00:00:{n:02x}", "switch": switch, "port": port(switch)}
                for n, (name, switch) in enumerate(hosts.items(), 1)
            },
            "links": {f"l{n}": {"switches": pair, "ports": [port(pair[0]), port(pair[1])]} for n, pair in enumerate(links)},
        }
    )


@st.composite
def topologies(draw: st.DrawFn, connected: bool = True) -> Topology:
    """1..8 switches with a random spanning tree (or, not ``connected``, a part of one) and some more links, also a second one
    between the same two; 1..10 hosts anywhere."""
    switches = [f"s{n}" for n in range(1, draw(st.integers(1, 8)) + 1)]
    links = []
    for n in range(1, len(switches)):
        if connected or draw(st.booleans()):
            links.append((switches[n], switches[draw(st.integers(0, n - 1))]))
    if len(switches) > 1:
        ends = st.sampled_from(switches)
        pairs = st.tuples(ends, ends).filter(lambda pair: pair[0] != pair[1])
        links += draw(st.lists(pairs, max_size=8))
    hosts = {f"h{n}": draw(st.sampled_from(switches)) for n in range(1, draw(st.integers(1, 10)) + 1)}
    return make(switches, hosts, links)
