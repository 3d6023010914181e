"""A fabric without root: embedded switches as processes, each wire a pair of UDP sockets on the loopback."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, NoReturn

from netsum.descriptor import Descriptor
from netsum.frames import FrameFormat
from netsum.transports.base import Transport
from netsum.transports.frames import FramesTransport
from netsum.transports.sockets import parse_address
from netsum_controller.config.topology import Topology

from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.free_ports import hold_address
from netsum_testbed.link_ends import Opening

NO_INTERFACES: Final = "the wires of a rootless fabric are sockets: there is no interface to lose packets on"

_WRITES: Final = "`netsum topology make ... --rootless` writes a file with the UDP addresses of all wires"


def _free_ends(stack: ExitStack) -> tuple[str, str]:
    """Two free addresses, held until the stack is closed."""
    return hold_address(stack), hold_address(stack)


def socket_interfaces(topology: Topology) -> dict[str, list[str]]:
    """The arguments of each switch's ``-i``, by the switch's name. Every wire must have its UDP addresses."""
    words: dict[str, list[str]] = {name: [] for name in topology.switches}
    for name, host in topology.hosts.items():
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
        with ExitStack() as stack:
            # All are held until all are known, so that no port is taken twice.
            wires = {name: _free_ends(stack) for name in self.topology.hosts}
            links = {name: {"frames": _free_ends(stack)} for name in self.topology.links}
        hosts = {name: {"frames": ours, "switch_frames": theirs} for name, (ours, theirs) in wires.items()}
        self.topology = self.topology.filled(hosts=hosts, links=links)
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
        return FramesTransport(
            FrameFormat.of(descriptor), parse_address(link.frames or ""), parse_address(link.switch_frames or "")
        )
