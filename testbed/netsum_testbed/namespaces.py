"""A fabric in one network namespace: veth pairs, raw frames, either kind of switch. It needs root."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from netsum.descriptor import Descriptor
from netsum.frames import FrameFormat
from netsum.transports.base import Transport
from netsum.transports.packet import PacketTransport
from netsum_controller.http.api import HttpServer
from netsum_controller.state.model import Job

from netsum_testbed.fabric import Fabric
from netsum_testbed.link_ends import LinkEnd, Opening
from netsum_testbed.link_rates import limit_rate, make_link
from netsum_testbed.netns import NetworkNamespace

Result = TypeVar("Result")


class NamespaceFabric(Fabric):
    """The topology's third host has the interface ``h3``, whose other end ``s3`` is its switch's; the ends of the third link
    are ``l3a`` and ``l3b``. A host's ``rate_mbps`` limits what it sends; with ``queue``, a link has its rate both ways."""

    _inside: HttpServer | None = None
    """The controller's HTTP endpoint in the namespace, once something there needs it."""

    def _start_switches(self) -> None:
        hosts = self.topology.hosts
        pairs = [(self.switch_interface(name), self.interface(name)) for name in hosts]
        words: dict[str, list[str]] = {name: [] for name in self.topology.switches}
        for name, host in hosts.items():
            words[host.switch].append(f"{host.port}@{self.switch_interface(name)}")
        for name, link in self.topology.links.items():
            ends = self.link_interfaces(name)
            pairs.append(ends)
            for switch, port, end in zip(link.switches, link.ports, ends, strict=True):
                words[switch].append(f"{port}@{end}")
        mtus = [host.mtu for host in hosts.values()] + [link.mtu for link in self.topology.links.values()]
        self._namespace = NetworkNamespace(pairs, max(mtus))
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
        return {"NETSUM_DESCRIPTOR": str(file)}

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
