"""Where the two ends of a host's link are on each kind of fabric, and how any process opens it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from netsum.descriptor import Descriptor, Link
from netsum.transports.base import Transport
from netsum.transports.choose import open_transport
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.namespaces import NamespaceFabric
from netsum_testbed.netns import call_inside
from netsum_testbed.rootless import RootlessFabric


@dataclass(frozen=True)
class End:
    """An interface, and what comes in front of a command so that it runs where that is."""

    prefix: Sequence[str]
    interface: str


def link_ends(fabric: Fabric, host: str) -> tuple[End, End]:
    """The host's end of its link and the switch's. Raises :class:`TestbedError` where wires are no interfaces."""
    if isinstance(fabric, RootlessFabric):
        raise TestbedError("the wires of a rootless fabric are sockets: there is no interface to lose packets on")
    prefix = tuple(fabric.prefix(host))
    place = fabric.topology.hosts[host]
    if isinstance(fabric, NamespaceFabric):
        return End(prefix, fabric.interface(host)), End(prefix, fabric.switch_interface(host))
    switch = fabric.net[place.switch]  # type: ignore[attr-defined]  # Mininet's
    return End(prefix, fabric.interface(host)), End(
        ("mnexec", "-a", str(switch.pid)), f"{place.switch}-eth{place.port}"
    )


def trunk_ends(fabric: Fabric, link: str) -> tuple[End, End]:
    """The two ends of a link between switches, as the topology has them. Raises :class:`TestbedError` where wires are no
    interfaces."""
    if isinstance(fabric, RootlessFabric):
        raise TestbedError("the wires of a rootless fabric are sockets: there is no interface to lose packets on")
    place = fabric.topology.links[link]
    if isinstance(fabric, NamespaceFabric):
        prefix = tuple(fabric.prefix(""))
        first, second = (End(prefix, name) for name in fabric.link_interfaces(link))
        return first, second
    nodes = [fabric.net[name] for name in place.switches]  # type: ignore[attr-defined]  # Mininet's
    first, second = (
        End(("mnexec", "-a", str(node.pid)), f"{name}-eth{port}")
        for node, name, port in zip(nodes, place.switches, place.ports, strict=True)
    )
    return first, second


@dataclass(frozen=True)
class Opening:
    """How to open a host's transport from any process on this machine: in the namespace of that file, if there is one,
    and on the interface, if the descriptor's own link is not to be used."""

    namespace: str | None = None
    interface: str | None = None

    @classmethod
    def of(cls, fabric: Fabric, host: str) -> Opening:
        """The opening of a host on this fabric."""
        if isinstance(fabric, RootlessFabric):
            return cls()
        where = fabric.prefix(host)[-1]
        if isinstance(fabric, NamespaceFabric):
            return cls(f"/run/netns/{where}", fabric.interface(host))
        return cls(f"/proc/{where}/ns/net")

    def open(self, descriptor: Descriptor) -> Transport:
        """The transport for an epoch's descriptor."""
        if self.interface is not None:
            descriptor = replace(descriptor, link=Link("packet", interface=self.interface))
        if self.namespace is None:
            return open_transport(descriptor)
        return call_inside(Path(self.namespace), lambda: open_transport(descriptor))
