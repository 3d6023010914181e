# SPDX-License-Identifier: MIT
"""Networks of several switches on every fabric: every host reaches every other, once, and switches come and go one by one."""

from __future__ import annotations

import select
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from netsum.transports.segmentation import has_large_frames
from netsum_controller.config.topologies import fat_tree, leaf_spine, tree
from netsum_controller.config.topology import Topology, load_topology
from netsum_switch.ports import Port
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import NamespaceFabric, RootlessFabric

from tests.full.wires import open_wire
from tests.threads import PATIENCE

if TYPE_CHECKING:
    from netsum_testbed.mininet_fabric import MininetFabric

ROOT = Path(__file__).parents[2]
TYPE = b"\x88\xb5"  # for local experiments (IEEE 802)
BROADCAST = b"\xff" * 6


def mac(fabric: Fabric, host: str) -> bytes:
    return bytes.fromhex(fabric.topology.hosts[host].mac.replace(":", ""))


def collect(ends: dict[str, Port], count: int) -> Counter[tuple[str, str]]:
    """The texts of that many of our frames, with the hosts that got them."""
    got: Counter[tuple[str, str]] = Counter()
    deadline = time.monotonic() + PATIENCE
    while got.total() < count and time.monotonic() < deadline:
        select.select([end.fileno() for end in ends.values()], [], [], 0.1)
        for name, end in ends.items():
            for frame in end.receive():
                if frame[12:14] == TYPE:
                    got[name, frame[14:].rstrip(b"\0").decode()] += 1
    return got


def check_forwarding(fabric: Fabric) -> None:
    """A frame from every host to every other arrives there and nowhere else; a broadcast arrives everywhere, once."""
    hosts = list(fabric.topology.hosts)
    pairs = [(one, other) for one in hosts for other in hosts if one != other]
    with ExitStack() as stack:
        ends = {host: open_wire(fabric, host) for host in hosts}
        for end in ends.values():
            stack.callback(end.close)
        for one, other in pairs:
            words = f"{one} to {other}".encode()
            ends[one].send((mac(fabric, other) + mac(fabric, one) + TYPE + words).ljust(60, b"\0"))
        assert collect(ends, len(pairs)) == Counter((other, f"{one} to {other}") for one, other in pairs)
        for one in hosts:
            ends[one].send((BROADCAST + mac(fabric, one) + TYPE + f"{one} to all".encode()).ljust(60, b"\0"))
        assert collect(ends, len(pairs)) == Counter((other, f"{one} to all") for one, other in pairs)


@pytest.mark.full
def test_rootless_forwarding_on_the_embedded_switch() -> None:
    with RootlessFabric(leaf_spine(2, 2, 2)) as fabric:
        check_forwarding(fabric)
        check_processes(fabric)


@pytest.mark.root
@pytest.mark.bmv2
@pytest.mark.parametrize("topology", [leaf_spine(2, 2, 2), fat_tree(4)], ids=lambda topology: topology.name)
@pytest.mark.full
def test_namespace_forwarding(topology: Topology) -> None:
    with NamespaceFabric(topology, "bmv2") as fabric:
        check_forwarding(fabric)
        check_processes(fabric)


def check_processes(fabric: Fabric) -> None:
    """Each switch is a process of its own, with a log and P4Runtime of its own, and is killed and started alone."""
    pids = fabric.switch_pids
    assert list(pids) == list(fabric.topology.switches)
    assert len(set(pids.values())) == len(pids)
    assert len({switch.p4runtime for switch in fabric.topology.switches.values()}) == len(pids)
    for name in pids:
        assert (fabric.directory / f"switch.{name}.log").exists()
    victim = list(pids)[-1]
    fabric.kill_switch(victim)
    for name, pid in pids.items():
        assert Path(f"/proc/{pid}").exists() is (name != victim)
    fabric.start_switch(victim)
    assert {name for name, pid in fabric.switch_pids.items() if pid != pids[name]} == {victim}
    with pytest.raises(ValueError, match=r"which switch\? \(there are: "):
        fabric.kill_switch()
    with pytest.raises(ValueError, match=r"no switch 's0'\? \(there are: "):
        fabric.start_switch("s0")


def check_pings(fabric: MininetFabric) -> None:
    hosts = [fabric.net[name] for name in fabric.topology.hosts]
    for one in hosts:
        # All of a host's at the same time: each waits for ARP first.
        others = " ".join(other.IP() for other in hosts if other is not one)
        said = one.cmd(f"for ip in {others}; do ping -q -c1 -W10 $ip & done; wait")
        assert said.count(" 1 received") == len(hosts) - 1, said


@pytest.mark.full
def test_mininet(switch: str) -> None:
    from netsum_testbed.mininet_fabric import MininetFabric  # where the tests run without root it may not be there

    with MininetFabric(load_topology(ROOT / "mininet" / "topologies" / "leafspine2x2x2.yaml"), switch) as fabric:
        check_pings(fabric)
        check_link(fabric)
        check_processes(fabric)


def check_link(fabric: MininetFabric) -> None:
    """A link between switches has the rate and MTU of the file; only that of embedded switches carries large frames."""
    large = "on" if fabric.switch == "embedded" and has_large_frames() else "off"
    link = next(iter(fabric.topology.links.values()))
    there = list(fabric.topology.hosts.values())[-1]
    for switch, port in zip(link.switches, link.ports, strict=True):
        node, end = fabric.net[switch], f"{switch}-eth{port}"
        assert f"tcp-segmentation-offload: {large}" in node.cmd(f"ethtool -k {end}")
        assert f"mtu {link.mtu}" in node.cmd(f"ip link show dev {end}")
        assert "rate 1Gbit" in node.cmd(f"tc class show dev {end}")
    # A frame as large as the links take goes through.
    assert "1 received" in fabric.net["h1"].cmd(f"ping -c1 -W5 -M do -s {link.mtu - 28} {there.ip}")


@pytest.mark.root
@pytest.mark.full
def test_mininet_fat_tree_on_the_embedded_switch() -> None:
    from netsum_testbed.mininet_fabric import MininetFabric

    with MininetFabric(load_topology(ROOT / "mininet" / "topologies" / "fattree4.yaml"), "embedded") as fabric:
        check_pings(fabric)


@pytest.mark.root
def test_a_name_that_no_interface_can_have() -> None:
    from netsum_testbed.mininet_fabric import MininetFabric

    data = tree(1, 1).model_dump()
    data["hosts"] = {"a-host-of-many-letters": data["hosts"]["h1"]}
    fabric = MininetFabric(Topology.model_validate(data), "embedded")
    with pytest.raises(TestbedError, match="a-host-of-many-letters is too long a name for Mininet"):
        fabric.__enter__()
    assert not fabric.directory.exists()
