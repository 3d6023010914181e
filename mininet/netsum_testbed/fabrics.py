# SPDX-License-Identifier: MIT
"""Fabrics without Mininet: rootless, and in a network namespace; and the choice of what fits the machine."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final, NoReturn, TypeVar

import click
from netsum.core.endpoint_factory import open_transport
from netsum.descriptor import Descriptor
from netsum.frames import FrameFormat
from netsum.transports.base import Transport
from netsum.transports.packet import FramesTransport, PacketTransport
from netsum.transports.segmentation import has_large_frames
from netsum.transports.sockets import parse_address
from netsum.wire.schema import UDP_PORT
from netsum_controller.cli.options import Settings
from netsum_controller.cli.switch import chosen
from netsum_controller.config.topologies import star
from netsum_controller.config.topology import Host, Switch, SwitchLink, Topology, load_topology, mac_of
from netsum_controller.http.api import HttpServer
from netsum_controller.state.model import Job

from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.free_ports import hold_address
from netsum_testbed.interrupts import end_on_signals
from netsum_testbed.links import LinkEnd, Opening, limit_rate, make_link
from netsum_testbed.netns import NetworkNamespace, no_interfaces
from netsum_testbed.side_by_side import ChildProgram, run_side_by_side
from netsum_testbed.switches import switch_command

# A fabric without root: embedded switches as processes, each wire a pair of UDP sockets on the loopback.


NO_INTERFACES: Final = "the wires of a rootless fabric are sockets: there is no interface to lose packets on"

_WRITES: Final = "`netsum topology make ... --rootless` writes a file with the UDP addresses of all wires"


def _free_ends(stack: ExitStack) -> tuple[str, str]:
    """Two free addresses, held until the stack is closed."""
    return hold_address(stack), hold_address(stack)


def _own_address(stack: ExitStack) -> dict[str, Any]:
    """A switch's address at a free socket, held until the stack is closed."""
    endpoint = hold_address(stack)
    host = endpoint.rpartition(":")[0]
    return {"ip": host, "mac": mac_of(host), "endpoint": endpoint}


def socket_of(switch: Switch) -> str:
    """HOST:PORT of the socket at a switch's shared ports."""
    return switch.endpoint or f"{switch.ip}:{UDP_PORT}"


def socket_interfaces(topology: Topology) -> dict[str, list[str]]:
    """The arguments of each switch's ``-i``, by the switch's name. Every wire must have its UDP addresses. At a shared port there
    is a UDP socket at the switch's own address."""
    words: dict[str, list[str]] = {name: [] for name in topology.switches}
    for name, each in topology.switches.items():
        words[name] += [f"{port}@socket:{socket_of(each)}:{UDP_PORT}" for port in each.shared_ports]
    for name, host in topology.hosts.items():
        if topology.shares_port(host):
            continue
        if host.frames is None or host.switch_frames is None:
            raise TestbedError(f"topology {topology.name}: host {name} has no `frames` and `switch_frames`; {_WRITES}")
        words[host.switch].append(f"{host.port}@udp:{host.switch_frames}:{host.frames}")
    for name, link in topology.links.items():
        if link.frames is None:
            raise TestbedError(f"topology {topology.name}: link {name} has no `frames`; {_WRITES}")
        for switch, port, ours, theirs in zip(link.switches, link.ports, link.frames, link.frames[::-1], strict=True):
            words[switch].append(f"{port}@udp:{ours}:{theirs}")
    return words


class RootlessFabric(Fabric):
    """Each datagram carries a frame. A host's socket has one user, so here a host takes part in one job at a time."""

    rootless = True

    def __init__(self, topology: Topology, switch: str = "embedded") -> None:
        if switch != "embedded":
            raise ValueError(f"without root there is only the embedded switch: {switch} needs network interfaces")
        super().__init__(topology, switch)

    def _start_switches(self) -> None:
        places = self.topology.hosts
        with ExitStack() as stack:
            # All are held until all are known, so that no port is taken twice.
            wires = {name: _free_ends(stack) for name, host in places.items() if not self.topology.shares_port(host)}
            links = {name: {"frames": _free_ends(stack)} for name in self.topology.links}
            sockets = {name: _own_address(stack) for name, switch in self.topology.switches.items() if switch.shared_ports}
        hosts = {name: {"frames": ours, "switch_frames": theirs} for name, (ours, theirs) in wires.items()}
        self.topology = self.topology.filled(sockets, hosts, links)
        for name, interfaces in socket_interfaces(self.topology).items():
            self._launch(name, interfaces)
        self._wait_ready()

    def link_ends(self, host: str) -> NoReturn:  # noqa: ARG002
        raise TestbedError(NO_INTERFACES)

    def trunk_ends(self, link: str) -> NoReturn:  # noqa: ARG002
        raise TestbedError(NO_INTERFACES)

    def opening(self, host: str) -> Opening:  # noqa: ARG002 - the descriptor's own link says where
        return Opening()

    def device_link(self, host: str) -> Sequence[str]:
        place = self.topology.hosts[host]
        return ("--frames", place.frames or "", place.switch_frames or "", "--mac", place.mac)

    def open_transport(self, descriptor: Descriptor, host: str) -> Transport:
        link = self.topology.hosts[host]
        if self.topology.shares_port(link):
            return open_transport(descriptor)
        return FramesTransport(
            FrameFormat.of(descriptor), parse_address(link.frames or ""), parse_address(link.switch_frames or "")
        )


# A fabric in one network namespace: veth pairs, raw frames, either kind of switch. It needs root.


Result = TypeVar("Result")


class NamespaceFabric(Fabric):
    """The topology's third host has the interface ``h3``, whose other end ``s3`` is its switch's, or at a shared port a Linux
    bridge's; the ends of the third link are ``l3a`` and ``l3b``. A host's ``rate_mbps`` limits what it sends; with ``queue``, a
    link has its rate both ways."""

    _inside: HttpServer | None = None
    """The controller's HTTP endpoint in the namespace, once something there needs it."""

    def _start_switches(self) -> None:
        hosts = self.topology.hosts
        pairs = [(self.switch_interface(name), self.interface(name)) for name in hosts]
        words: dict[str, list[str]] = {name: [] for name in self.topology.switches}
        bridges: dict[tuple[str, int], list[str]] = {}
        for name, host in hosts.items():
            if self.topology.shares_port(host):
                bridges.setdefault((host.switch, host.port), []).append(self.switch_interface(name))
            else:
                words[host.switch].append(f"{host.port}@{self.switch_interface(name)}")
        places: list[Host | SwitchLink] = [*hosts.values(), *self.topology.links.values()]
        for name, link in self.topology.links.items():
            ends = self.link_interfaces(name)
            pairs.append(ends)
            for switch, port, end in zip(link.switches, link.ports, ends, strict=True):
                words[switch].append(f"{port}@{end}")
        # A queue that holds a number of packets, and marks them, is one of single packets.
        reads = self.switch == "embedded" and has_large_frames()
        large = [pair for pair, place in zip(pairs, places, strict=True) if reads and place.queue is None]
        for number, ((home, home_port), below) in enumerate(bridges.items(), 1):
            uplink = (f"u{number}a", f"u{number}b")  # from the switch to the bridge
            pairs.append(uplink)
            large += [uplink] * all((self.switch_interface(name), self.interface(name)) in large for name in hosts)
            words[home].append(f"{home_port}@{uplink[0]}")
            below.append(uplink[1])
        self._namespace = NetworkNamespace(pairs, max(place.mtu for place in places), large, list(bridges.values()))
        self._stack.callback(self._namespace.close)
        self._shape_links()
        for name, interfaces in words.items():
            self._launch(name, interfaces, self._prefix)
        self._wait_ready()

    def _shape_links(self) -> None:
        for name, host in self.topology.hosts.items():
            ends = (self.interface(name), self.switch_interface(name))
            if host.rate_mbps is not None and host.queue is not None:
                for end in ends:
                    make_link(self._namespace.run, end, host.rate_mbps, host.queue, host.ecn)
            elif host.rate_mbps is not None:
                limit_rate(self._namespace.run, ends[0], host.rate_mbps)
        for name, link in self.topology.links.items():
            if link.rate_mbps is not None and link.queue is not None:
                for end in self.link_interfaces(name):
                    make_link(self._namespace.run, end, link.rate_mbps, link.queue, link.ecn)

    @property
    def _prefix(self) -> Sequence[str]:
        return ("ip", "netns", "exec", self._namespace.name)

    def environment(self, job: Job, rank: int) -> dict[str, str]:
        """A descriptor file, good for one run, replaces the controller, whose endpoint is outside the namespace."""
        link = self.client_link(job.members[rank])
        descriptor = self.controller.join(job.name, self.tokens[job.name], rank, secrets.token_hex(8), link)
        file = self.directory / f"{job.name}.{rank}.json"
        file.write_text(replace(descriptor, controller=None).to_json(), "utf-8")
        return {"NETSUM_DESCRIPTOR": str(file), "NETSUM_JOIN": ""}

    def prefix(self, host: str) -> Sequence[str]:  # noqa: ARG002 - they share a namespace
        return self._prefix

    def link_ends(self, host: str) -> tuple[LinkEnd, LinkEnd]:
        return LinkEnd(self._prefix, self.interface(host)), LinkEnd(self._prefix, self.switch_interface(host))

    def trunk_ends(self, link: str) -> tuple[LinkEnd, LinkEnd]:
        first, second = self.link_interfaces(link)
        return LinkEnd(self._prefix, first), LinkEnd(self._prefix, second)

    def opening(self, host: str) -> Opening:
        return Opening(f"/run/netns/{self._namespace.name}", self.interface(host))

    def url_on_hosts(self) -> str:
        """The same URL as outside: a second server, inside."""
        url = super().url_on_hosts()
        if self._inside is None:
            context, membership = self.controller.context, self.controller.membership
            port = int(url.rpartition(":")[2])
            self._inside = self.inside(lambda: HttpServer(context, membership, "127.0.0.1", port))
            self.closes(self._inside.close)
        return url

    def device_link(self, host: str) -> Sequence[str]:
        return ("--interface", self.interface(host), "--mac", self.topology.hosts[host].mac)

    def client_link(self, host: str) -> Mapping[str, str]:
        return {"kind": "packet", "interface": self.interface(host)}

    def interface(self, host: str) -> str:
        return f"h{self._place(host)}"

    def switch_interface(self, host: str) -> str:
        """Name of the interface at the other end, which is the switch's."""
        return f"s{self._place(host)}"

    def link_interfaces(self, link: str) -> tuple[str, str]:
        """Names of the interfaces of a link between switches."""
        place = list(self.topology.links).index(link) + 1
        return f"l{place}a", f"l{place}b"

    def _place(self, host: str) -> int:
        # Neither the port, which another switch may have, nor the name, which may be too long for an interface.
        return list(self.topology.hosts).index(host) + 1

    def inside(self, function: Callable[[], Result]) -> Result:
        return self._namespace.call(function)

    def open_transport(self, descriptor: Descriptor, host: str) -> Transport:
        return PacketTransport(FrameFormat.of(descriptor), self.interface(host))


# Brings up topologies in the way that fits the machine.


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


def switch_programs(topology: Topology, names: tuple[str, ...]) -> list[ChildProgram]:
    """The named switches, or all."""
    interfaces = socket_interfaces(topology)
    programs = []
    for name in chosen(topology, names):
        switch = topology.switches[name]
        if switch.p4runtime is None:
            raise TestbedError(
                f"topology {topology.name}: switch {name} has no `p4runtime`, the address at which it serves; "
                "`netsum topology make ... --rootless` writes one"
            )
        command = switch_command("embedded", interfaces[name], switch.p4runtime, switch.device_id, tls=switch.tls)
        programs.append(ChildProgram(f"switch {name}", name, command))
    return programs


@click.command()
@click.argument("file", required=False, metavar="[TOPOLOGY]")
@click.argument("names", nargs=-1, metavar="[SWITCH]...")
@click.pass_obj
def start(settings: Settings, file: str | None, names: tuple[str, ...]) -> None:
    """Start the embedded switches of a topology file whose wires are UDP sockets: all, or the named ones. Ctrl-C ends them.

    TOPOLOGY is the global option's, unless it is given here. `netsum topology make ... --rootless` writes such a file.
    """
    programs = switch_programs(settings.topology() if file is None else load_topology(file), names)
    end_on_signals()
    try:
        run_side_by_side(programs)
    except KeyboardInterrupt:
        return  # that is how it is meant to end
