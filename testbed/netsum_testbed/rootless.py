"""A fabric without root: the embedded switch as a process, each wire a pair of UDP sockets on the loopback."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from netsum.descriptor import Descriptor
from netsum.frames import FrameFormat
from netsum.transports.base import Transport
from netsum.transports.frames import FramesTransport
from netsum.transports.sockets import parse_address
from netsum_controller.topology import Topology

from netsum_testbed.fabric import Fabric
from netsum_testbed.switches import SwitchProcess


class RootlessFabric(Fabric):
    """A datagram carries a frame. A wire has one end, so a host takes part in one job at a time here."""

    def __init__(self, topology: Topology, switch: str = "embedded") -> None:
        if switch != "embedded":
            raise ValueError(f"without root there is only the embedded switch: {switch} needs network interfaces")
        super().__init__(topology, switch)

    def _start_switch(self) -> SwitchProcess:
        with ExitStack() as stack:
            # All are held until all are known, so that no port is handed out twice.
            hosts = {}
            for name in self.topology.hosts:
                ends = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2)]
                for end in ends:
                    end.bind(("127.0.0.1", 0))
                local, remote = (f"127.0.0.1:{end.getsockname()[1]}" for end in ends)
                hosts[name] = {"frames": local, "switch_frames": remote}
        self.topology = self.topology.filled(hosts=hosts)
        words = [f"{host.port}@udp:{host.switch_frames}:{host.frames}" for host in self.topology.hosts.values()]
        process = SwitchProcess(self.switch, words, self.directory, tls=self._tls, more=self.switch_options)
        self._stack.callback(process.stop)
        process.wait_ready()
        name = next(iter(self.topology.switches))
        self.topology = self.topology.filled(switches={name: {"p4runtime": process.address}})
        return process

    def open_transport(self, descriptor: Descriptor, host: str) -> Transport:
        link = self.topology.hosts[host]
        return FramesTransport(
            FrameFormat.of(descriptor), parse_address(link.frames or ""), parse_address(link.switch_frames or "")
        )
