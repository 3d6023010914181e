"""Hosts that are joined directly, without a switch, in Mininet: each has a network namespace, and forwards what is for others.

A host has one address, whatever its number of links, and reaches its neighbors over the link to them, and all others by a
shortest path. Needs root.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from netsum_planner.topologies.model import Pair, Topology

from netsum_testbed.errors import TestbedError
from netsum_testbed.interrupts import interrupts_held
from netsum_testbed.netns import OFFLOADS

MTU: Final = 9000
MOST: Final = 250
"""Hosts: addresses are 10.0.0.1 and so on."""


class DirectHosts:
    """A running network. Leave the ``with`` block to remove it."""

    def __init__(self, topology: Topology, rate_mbps: int) -> None:
        """Every link gets this rate, each way. Raises TestbedError if the topology has switches."""
        if topology.switches or not 1 <= len(topology.hosts) <= MOST:
            raise TestbedError(f"{topology.name}: wanted are 1 to {MOST} hosts, joined directly, and no switch")
        self.topology = topology
        self.addresses = {host: f"10.0.0.{number}" for number, host in enumerate(topology.hosts, 1)}
        self._rate = rate_mbps
        self._stack = ExitStack()
        self._interfaces: dict[Pair, str] = {}  # of the first, towards the second
        self._net: Any = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with interrupts_held():
            self._stack.close()

    def _start(self) -> None:
        from netsum_testbed.mininet_parts import Host, Mininet, TCLink, lg, setLogLevel  # noqa: PLC0415 - needs Mininet

        lg.propagate = False  # it has its own handler: nothing should be logged twice
        setLogLevel("critical")
        self._net = Mininet(controller=None, build=False)
        self._stack.callback(self._net.stop)
        for host in self.topology.hosts:
            self._net.addHost(host, cls=Host, ip=None, inNamespace=True)
        for one, other in [ends for ends in self.topology.rates if ends == tuple(sorted(ends, key=self._place))]:
            link = self._net.addLink(self._net[one], self._net[other], cls=TCLink, bw=self._rate)
            self._interfaces |= {(one, other): link.intf1.name, (other, one): link.intf2.name}
        self._net.build()
        for host in self.topology.hosts:
            self._configure(host)

    def _place(self, host: str) -> int:
        return self.topology.hosts.index(host)

    def _configure(self, host: str) -> None:
        off = " ".join(f"{name} off" for name in OFFLOADS)
        commands = [
            "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0",
            f"ip addr add {self.addresses[host]}/32 dev lo",
        ]
        for other in self.topology.neighbors[host]:
            end = self._interfaces[host, other]
            commands += [f"sysctl -qw net.ipv4.conf.{end}.rp_filter=0", f"ethtool -K {end} {off}"]
            commands += [f"ip link set dev {end} mtu {MTU} up"]
        for target, by in next_hops(self.topology, host).items():
            way = f"via {self.addresses[by]} " if by != target else ""
            commands.append(
                f"ip route add {self.addresses[target]}/32 {way}dev {self._interfaces[host, by]} onlink "
                f"src {self.addresses[host]}"
                if way
                else f"ip route add {self.addresses[target]}/32 dev {self._interfaces[host, by]} src {self.addresses[host]}"
            )
        for command in commands:
            if said := self._net[host].cmd(f"{command} >/dev/null 2>&1 || echo failed").strip():
                raise TestbedError(f"{host}: {command}: {said}")

    def prefix(self, host: str) -> Sequence[str]:
        """The prefix of a command line that makes it run on a host."""
        return ("mnexec", "-a", str(self._net[host].pid))

    def carried(self) -> Mapping[Pair, int]:
        """Bytes of frames that each link has carried so far, as its receiver counted them."""
        found: dict[Pair, int] = {}
        for host in self.topology.hosts:
            lines = Path(f"/proc/{self._net[host].pid}/net/dev").read_text().splitlines()[2:]
            received = {name.strip(): int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
            found |= {(other, host): received[self._interfaces[host, other]] for other in self.topology.neighbors[host]}
        return found


def next_hops(topology: Topology, host: str) -> dict[str, str]:
    """For every other host, the neighbor by which a shortest path goes; those with several take turns."""
    distance = {host: 0}
    first: dict[str, list[str]] = {}
    queue = deque([host])
    while queue:
        node = queue.popleft()
        for other in topology.neighbors[node]:
            if other not in distance:
                distance[other] = distance[node] + 1
                first[other] = []
                queue.append(other)
            if distance[other] == distance[node] + 1:
                first[other] += [by for by in first.get(node, [other]) if by not in first[other]]
    return {other: ways[number % len(ways)] for number, (other, ways) in enumerate(first.items())}
