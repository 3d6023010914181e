# SPDX-License-Identifier: MIT
"""A fabric in Mininet: every host and switch has its own network namespace, the hosts with a kernel IP stack.

The controller runs in this process, outside the network. It reaches the switches over unix sockets, and the hosts
reach it at the same ``http://127.0.0.1:PORT`` everywhere: each host's own loopback has a listening socket that this
process opened inside the host's namespace. So no management network is needed.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from netsum.core.endpoint_factory import open_transport
from netsum.descriptor import Descriptor
from netsum.transports.base import Transport
from netsum.transports.segmentation import has_large_frames
from netsum.transports.udp import UdpTransport
from netsum_controller.config.topology import Host as TopologyHost
from netsum_controller.config.topology import Topology
from netsum_controller.controller import Controller
from netsum_controller.http.api import HttpServer
from netsum_controller.state.model import Job

from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric, Result
from netsum_testbed.fabrics import common_prefix
from netsum_testbed.links import LinkEnd, Opening
from netsum_testbed.mininet_parts import Host, Link, Mininet, Switch, TCLink, lg, setLogLevel
from netsum_testbed.netns import HTB, LARGE_FRAMES, OFFLOADS, call_inside, complaint
from netsum_testbed.processes import Child
from netsum_testbed.switches import SwitchProcess

MAX_INTERFACE: Final = 15
DELAYS: Final = "delay"
"""The node through which delayed links go."""
BRIDGE: Final = "bridge"
"""The node with the Linux bridge to which hosts have a second link."""
MAX_RATE: Final = 1000
"""Mbit/s: the most that Mininet can limit a link to."""

Launch = Callable[[str, Sequence[str], Sequence[str]], SwitchProcess]


class P4Switch(Switch):  # type: ignore[misc]  # Mininet has no types
    """A Mininet switch in its own namespace that runs what ``launch`` starts there, given the switch's name, an ``-i`` for
    each link, and the command line's prefix."""

    def __init__(self, name: str, launch: Launch, **params: Any) -> None:
        super().__init__(name, **{**params, "inNamespace": True})
        self._launch = launch
        self.process: SwitchProcess | None = None
        self._started = False

    def start(self, _controllers: object) -> None:
        """Start the switch with an ``-i PORT@INTERFACE`` for each link, and wait for it, except the first time: then all start
        at once, and :meth:`batchStartup` waits."""
        words = [f"{port}@{interface.name}" for port, interface in self.intfs.items() if interface.name != "lo"]
        self.process = self._launch(self.name, words, ("mnexec", "-a", str(self.pid)))
        if self._started:
            self.process.wait_ready()

    @classmethod
    def batchStartup(cls, switches: Sequence[P4Switch]) -> Sequence[P4Switch]:  # noqa: N802 - Mininet's name
        """Wait for switches that were started together. Returns those that run."""
        for switch in switches:
            assert switch.process is not None
            switch.process.wait_ready()
            switch._started = True
        return switches

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 - Mininet's name
        """Stop the switch; Mininet's own part removes the interfaces."""
        if self.process is not None:
            self.process.stop()
            self.process = None
        super().stop(deleteIntfs)


def rates_work() -> bool:
    """True if this kernel and its tools can limit a link's rate (tc with HTB)."""
    return complaint(HTB) is None


class MininetFabric(Fabric):
    """Host ``h3`` on port 3 has ``h3-eth0``, whose other end is the switch's ``s1-eth3``; so are links' ends. Hosts at a shared
    port 9 are at a Linux bridge, in the node ``s1p9``, whose ``s1p9-eth0`` leads to ``s1-eth9``. Needs root.

    ``say`` is told what this machine cannot do (link rates without tc's HTB). With ``delay_us``, a frame is in flight for so many
    microseconds on a host's link, each way (:mod:`netsum_testbed.long_wires`). With ``bridged``, each host has a second link of
    the same rate, ``h3-eth1``, to a Linux bridge, with the kernel's defaults for offloads: what a user would have without netsum.
    """

    def __init__(
        self,
        topology: Topology,
        switch: str,
        say: Callable[[str], None] = lambda _: None,
        *,
        delay_us: int = 0,
        bridged: bool = False,
    ) -> None:
        super().__init__(topology, switch)
        self._say = say
        self._delay_us, self.bridged = delay_us, bridged
        self._mtus: dict[Any, int] = {}
        self._ordinary: dict[tuple[str, int], Any] = {}  # what is at each shared port: a node with a bridge

    def _start_switches(self) -> None:
        try:
            self._start_network()
        except SystemExit:  # Mininet's, whose reason was logged where it is not shown
            found = ", ".join(name for name in ("ip", "ifconfig", "mnexec", "tc") if shutil.which(name) is None)
            what = f"not on PATH ({os.environ.get('PATH', '')}): {found}" if found else "it gave no reason"
            raise TestbedError(f"Mininet has ended by itself; {what}; `netsum doctor` says more") from None

    def _start_network(self) -> None:
        lg.propagate = False  # it has its own handler: nothing should be logged twice
        setLogLevel("critical")  # tc's remarks on HTB come as errors; what matters is checked here
        net = Mininet(controller=None, build=False)
        self.net = net
        self._stack.callback(net.stop)
        self._require_short_names()
        self._lay_wires(net)
        # No IPv6: its neighbor discovery would send unwanted frames.
        for each in net.values():
            each.cmd("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
        net.build()
        self._set_links()
        self._bridge_shared_ports()
        if self.bridged:
            self._bridge(net)
        if self._delay_us:
            self._delay(net[DELAYS])
        net.start()
        setLogLevel("output")

    def _lay_wires(self, net: Any) -> None:
        for name, switch in self.topology.switches.items():
            net.addSwitch(name, cls=P4Switch, launch=self._launch, dpid=f"{switch.device_id:x}")
        rates = [host.rate_mbps for host in self.topology.hosts.values()]
        rates += [link.rate_mbps for link in self.topology.links.values()]
        limited = any(rates) and self._rates()
        addresses = [switch.ip for switch in self.topology.switches.values()]
        length = common_prefix(addresses + [host.ip for host in self.topology.hosts.values()])
        if self._delay_us:
            net.addHost(DELAYS, cls=Host, ip=None, inNamespace=True)
        if self.bridged:
            net.addHost(BRIDGE, cls=Host, ip=None, inNamespace=True)
        for number, (host, place) in enumerate(self.topology.hosts.items()):
            member = net.addHost(host, cls=Host, ip=f"{place.ip}/{length}", mac=place.mac, inNamespace=True)
            options = self._kind(host, place.rate_mbps if limited else None)
            node, port = net[place.switch], place.port
            if self.topology.shares_port(place):
                node, port = self._ordinary_switch(net, place), number + 1
            if self._delay_us:  # two halves of a link; the rate is that of the host's
                made = net.addLink(net[DELAYS], node, port1=2 * number + 1, port2=port, cls=Link)
                self._mtus[made] = place.mtu
                node, port = net[DELAYS], 2 * number
            made = net.addLink(member, node, port1=0, port2=port, addr1=place.mac, **options)
            self._mtus[made] = place.mtu
            if self.bridged:
                net.addLink(member, net[BRIDGE], port1=1, port2=number, **options)
        for (name, number), below in self._ordinary.items():
            made = net.addLink(below, net[name], port1=0, port2=number, cls=Link)
            self._mtus[made] = max(host.mtu for host in self.topology.hosts_of(name).values() if host.port == number)
        for name, link in self.topology.links.items():
            options = self._kind(name, link.rate_mbps if limited else None)
            one, other = (net[switch] for switch in link.switches)
            made = net.addLink(one, other, port1=link.ports[0], port2=link.ports[1], **options)
            self._mtus[made] = link.mtu

    def _ordinary_switch(self, net: Any, host: TopologyHost) -> Any:
        """The node with the Linux bridge that is at a shared port."""
        at = host.switch, host.port
        if at not in self._ordinary:
            self._ordinary[at] = net.addHost(f"{host.switch}p{host.port}", cls=Host, ip=None, inNamespace=True)
        return self._ordinary[at]

    def _bridge_shared_ports(self) -> None:
        """Join what is at each shared port."""
        for node in self._ordinary.values():
            ends = [end.name for end in node.intfList() if end.name != "lo"]
            commands = [f"ip link add {BRIDGE} type bridge", *(f"ip link set {end} master {BRIDGE} up" for end in ends)]
            command = " && ".join([*commands, f"ip link set {BRIDGE} up"])
            if said := node.cmd(f"({command}) 2>&1 || echo failed").strip():
                raise TestbedError(f"{command}: {said}")

    def _rates(self) -> bool:
        if rates_work():
            return True
        self._say("this kernel cannot limit link rates (no tc with HTB): links run as fast as they can")
        return False

    def _kind(self, name: str, rate: int | None) -> dict[str, Any]:
        """The kind of Mininet link that a host's link, or one between switches, becomes."""
        if rate is not None and rate > MAX_RATE:
            self._say(f"{name}: Mininet limits rates up to {MAX_RATE} Mbit/s; its link of {rate} runs unlimited")
            rate = None
        return {"cls": Link} if rate is None else {"cls": TCLink, "bw": rate}

    def _require_short_names(self) -> None:
        """Interfaces are named after their owners, and Linux allows them 15 characters."""
        ports = [(host.switch, host.port) for host in self.topology.hosts.values()]
        ports += [end for link in self.topology.links.values() for end in zip(link.switches, link.ports, strict=True)]
        for name, port in (*((host, 0) for host in self.topology.hosts), *ports):
            if len(interface := f"{name}-eth{port}") > MAX_INTERFACE:
                raise TestbedError(
                    f"{name} is too long a name for Mininet: the interface {interface} would have more "
                    f"than {MAX_INTERFACE} characters"
                )

    def _set_links(self) -> None:
        """Set the MTU, and turn offloads off, with which simple_switch_grpc would see frames without a checksum, or several
        packets in one. The embedded switch reads large frames."""
        commands = [" ".join(f"{name} off" for name in OFFLOADS)]
        if self.switch == "embedded" and not self._delay_us and has_large_frames():
            commands.append(LARGE_FRAMES)
        for link, mtu in self._mtus.items():
            for end in (link.intf1, link.intf2):
                for command in (f"ip link set dev {end.name} mtu {mtu}", *(f"ethtool -K {end.name} {each}" for each in commands)):
                    if said := end.node.cmd(f"{command} >/dev/null 2>&1 || echo failed").strip():
                        raise TestbedError(f"{command}: {said}")

    def _bridge(self, net: Any) -> None:
        """Make the bridge, and give each host its address there."""
        commands = [(net[BRIDGE], f"ip link add {BRIDGE} type bridge && ip link set {BRIDGE} up")]
        for number, (host, place) in enumerate(self.topology.hosts.items()):
            port, end = f"{BRIDGE}-eth{number}", f"{host}-eth1"
            commands += [
                (net[BRIDGE], f"ip link set {port} mtu {place.mtu} master {BRIDGE} up"),
                (net[host], f"ip link set {end} mtu {place.mtu} up"),
                (net[host], f"ip addr flush dev {end} && ip addr add {self.bridged_ip(host)}/16 dev {end}"),
            ]
        for node, command in commands:
            if said := node.cmd(f"({command}) 2>&1 || echo failed").strip():
                raise TestbedError(f"{command}: {said}")

    def bridged_ip(self, host: str) -> str:
        """A host's address on the bridge."""
        number = list(self.topology.hosts).index(host) + 1
        return f"192.168.{number >> 8}.{number & 255}"

    def _delay(self, node: Any) -> None:
        """Join the halves of the hosts' links."""
        pairs = [f"{DELAYS}-eth{2 * number}:{DELAYS}-eth{2 * number + 1}" for number in range(len(self.topology.hosts))]
        command = [sys.executable, "-m", "netsum_testbed.long_wires", str(self._delay_us), *pairs]
        log = self.directory / f"{DELAYS}.log"
        wires = Child(["mnexec", "-a", str(node.pid), *command], output=log, piped=True)
        self._stack.callback(wires.stop)
        if not wires.stdout.readline():
            raise TestbedError(f"links cannot be delayed: {wires.last_words()}")

    def _serve(self, controller: Controller) -> None:
        super()._serve(controller)
        assert controller.url is not None
        port = int(controller.url.rpartition(":")[2])
        for host in self.topology.hosts:
            server = self.on_host(host, lambda: HttpServer(controller.context, controller.membership, "127.0.0.1", port))
            self._stack.callback(server.close)

    def on_host(self, host: str, function: Callable[[], Result]) -> Result:
        return call_inside(Path(f"/proc/{self.net[host].pid}/ns/net"), function)

    def prefix(self, host: str) -> Sequence[str]:
        return ("mnexec", "-a", str(self.net[host].pid))

    def link_ends(self, host: str) -> tuple[LinkEnd, LinkEnd]:
        place = self.topology.hosts[host]
        own = LinkEnd(self.prefix(host), self.interface(host))
        if self.topology.shares_port(place):
            number = list(self.topology.hosts).index(host) + 1
            return own, self._switch_end(f"{place.switch}p{place.port}", number)
        return own, self._switch_end(place.switch, place.port)

    def trunk_ends(self, link: str) -> tuple[LinkEnd, LinkEnd]:
        first, second = map(self._switch_end, self.topology.links[link].switches, self.topology.links[link].ports)
        return first, second

    def _switch_end(self, switch: str, port: int) -> LinkEnd:
        return LinkEnd(self.prefix(switch), f"{switch}-eth{port}")

    def opening(self, host: str) -> Opening:
        return Opening(f"/proc/{self.net[host].pid}/ns/net")

    def device_link(self, host: str) -> Sequence[str]:  # noqa: ARG002 - the kernel's UDP
        return ()

    def environment(self, job: Job, rank: int) -> dict[str, str]:
        """Each host has its own 127.0.0.1, so a member must be reached at its host's address."""
        host = self.topology.hosts[job.members[rank]]
        return {**super().environment(job, rank), "NETSUM_PEER": str(host.ip)}

    def interface(self, host: str) -> str:
        """Name of a host's interface, in its namespace."""
        return f"{host}-eth0"

    def open_transport(self, descriptor: Descriptor, host: str) -> Transport:
        transport = self.on_host(host, lambda: open_transport(descriptor))
        if isinstance(transport, UdpTransport):  # whose socket for a multicast group must be the host's, too
            join = transport.join
            transport.join = lambda group: self.on_host(host, lambda: join(group))  # type: ignore[method-assign]
        return transport
