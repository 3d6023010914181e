"""The hosts' ends of a switch's wires: veths in a namespace, or UDP sockets on the loopback."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from netsum_switch.ports import Port
from netsum_switch.ports.packet import PacketPort
from netsum_switch.ports.udp import UdpPort
from netsum_testbed.netns import NetworkNamespace
from netsum_testbed.switches import SwitchProcess

from netsum_trials.strangers.site import PORTS

_MTU: Final = 9000


def start_on_veths(kind: str, directory: Path, stack: ExitStack) -> tuple[SwitchProcess, dict[int, Port]]:
    """A switch whose ports are veths, ready, and the other ends. Needs root."""
    namespace = NetworkNamespace([(f"s{port}", f"h{port}") for port in PORTS], _MTU)
    stack.callback(namespace.close)
    inside = ("ip", "netns", "exec", namespace.name)
    process = SwitchProcess(kind, [f"{port}@s{port}" for port in PORTS], directory, inside)
    stack.callback(process.stop)
    process.wait_ready()
    ends: dict[int, Port] = {port: namespace.call(lambda port=port: PacketPort(port, f"h{port}")) for port in PORTS}  # type: ignore[misc]
    return process, _closed_with(stack, ends)


def start_on_datagrams(directory: Path, stack: ExitStack) -> tuple[SwitchProcess, dict[int, Port]]:
    """An embedded switch whose ports are UDP sockets, ready, and the other ends."""
    with ExitStack() as held:
        # All are held until all are known, so that no port is taken twice.
        pairs = {}
        for port in PORTS:
            ends = [held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2)]
            for end in ends:
                end.bind(("127.0.0.1", 0))
            pairs[port] = tuple(end.getsockname() for end in ends)
    words = [f"{port}@udp:127.0.0.1:{theirs[1]}:127.0.0.1:{ours[1]}" for port, (ours, theirs) in pairs.items()]
    process = SwitchProcess("embedded", words, directory)
    stack.callback(process.stop)
    process.wait_ready()
    wires: dict[int, Port] = {port: UdpPort(port, ours, theirs) for port, (ours, theirs) in pairs.items()}
    return process, _closed_with(stack, wires)


def _closed_with(stack: ExitStack, ends: dict[int, Port]) -> dict[int, Port]:
    for end in ends.values():
        stack.callback(end.close)
    return ends
