"""A fabric in one network namespace: veth pairs, raw frames, either switch. Needs root."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from netsum.descriptor import Descriptor
from netsum.frames import FrameFormat
from netsum.transports.base import Transport
from netsum.transports.packet import PacketTransport
from netsum_controller.model import Job

from netsum_testbed.fabric import Fabric
from netsum_testbed.netns import NetworkNamespace
from netsum_testbed.switches import SwitchProcess

Result = TypeVar("Result")


class NamespaceFabric(Fabric):
    """Host ``h3`` on port 3 has the interface ``h3``, whose other end ``s3`` is the switch's."""

    def _start_switch(self) -> SwitchProcess:
        hosts = self.topology.hosts
        pairs = [(f"s{host.port}", self.interface(name)) for name, host in hosts.items()]
        mtu = max(host.mtu for host in hosts.values())
        self._namespace = NetworkNamespace(pairs, mtu)
        self._stack.callback(self._namespace.close)
        words = [f"{host.port}@s{host.port}" for host in hosts.values()]
        inside = ("ip", "netns", "exec", self._namespace.name)
        process = SwitchProcess(self.switch, words, self.directory, inside, tls=self._tls, more=self.switch_options)
        self._stack.callback(process.stop)
        process.wait_ready()
        name = next(iter(self.topology.switches))
        self.topology = self.topology.filled(switches={name: {"p4runtime": process.address}})
        return process

    def environment(self, job: Job, rank: int) -> dict[str, str]:
        """A descriptor file, good for one run, in place of the controller: its endpoint is outside of the namespace."""
        link = {"kind": "packet", "interface": self.interface(job.members[rank])}
        descriptor = self.controller.join(job.name, self.tokens[job.name], rank, secrets.token_hex(8), link)
        file = self.directory / f"{job.name}.{rank}.json"
        file.write_text(replace(descriptor, controller=None).to_json(), "utf-8")
        return {"NETSUM_DESCRIPTOR": str(file)}

    def prefix(self, host: str) -> Sequence[str]:  # noqa: ARG002 - they share a namespace
        return ("ip", "netns", "exec", self._namespace.name)

    def interface(self, host: str) -> str:
        """Name of a host's interface."""
        return f"h{self.topology.hosts[host].port}"

    def inside(self, function: Callable[[], Result]) -> Result:
        return self._namespace.call(function)

    def open_transport(self, descriptor: Descriptor, host: str) -> Transport:
        return PacketTransport(FrameFormat.of(descriptor), self.interface(host))
