"""TCP throughput between two hosts of a fabric, by plain sockets: ``iperf`` at the testbed's prompt.

Mininet's own ``iperf`` needs the programs iperf and telnet, and waits for ever with iperf 2.1, which prints nothing about the
connection by which Mininet finds out that the server listens.
"""

from __future__ import annotations

import socket
import sys
import time
from contextlib import ExitStack
from typing import Final

from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.interrupts import interrupts_held
from netsum_testbed.processes import Child

SECONDS: Final = 5.0
"""How long one host sends."""
PATIENCE: Final = 30.0
"""Seconds to connect, and for the other side to move on."""
BUFFER: Final = 1 << 16


def tcp_throughput(fabric: Fabric, one: str, other: str) -> float:
    """Bits per second of payload that arrive at host ``other`` from host ``one``. Raises :class:`TestbedError`."""
    with ExitStack() as stack:

        def start(host: str, *arguments: str) -> Child:
            command = [*fabric.prefix(host), sys.executable, "-m", "netsum_testbed.throughput", *arguments]
            child = Child(command, output=None)
            stack.callback(stop_held, child)
            return child

        sink = start(other)
        port = sink.stdout.readline().strip()
        source = start(one, str(fabric.topology.hosts[other].ip), port)
        if failure := source.stdout.read().strip():
            raise TestbedError(f"{one} cannot send to {other}: {failure}")
        return float(sink.stdout.readline())


def stop_held(child: Child) -> None:
    """End a process although Ctrl-C comes again."""
    with interrupts_held():
        child.stop()


def receive() -> None:
    """Print the port, then the bits per second of one connection."""
    with socket.create_server(("", 0)) as server:
        print(server.getsockname()[1], flush=True)
        server.settimeout(2 * PATIENCE)
        connection, _ = server.accept()
    connection.settimeout(PATIENCE)
    began, received, buffer = time.monotonic(), 0, bytearray(BUFFER)
    while count := connection.recv_into(buffer):
        received += count
    print(8 * received / (time.monotonic() - began), flush=True)


def send(address: str, port: int) -> None:
    """Send zeros for :data:`SECONDS`; print only what goes wrong."""
    try:
        with socket.create_connection((address, port), PATIENCE) as connection:
            data, ends = bytes(BUFFER), time.monotonic() + SECONDS
            while time.monotonic() < ends:
                connection.sendall(data)
    except OSError as error:
        print(error.strerror or error)


if __name__ == "__main__":
    if sys.argv[1:]:
        send(sys.argv[1], int(sys.argv[2]))
    else:
        receive()
