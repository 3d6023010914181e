# SPDX-License-Identifier: MIT
"""One end of a TCP stream: ``python -m netsum_bench.stream ADDRESS`` accepts a connection there.

It prints a line when it listens and one when the first bytes have arrived. With the word ``send`` behind the address it connects,
and sends until SIGTERM. It imports nothing more, since `netsum bench links` starts hundreds of them.
"""

from __future__ import annotations

import signal
import socket
import sys
from typing import Final

PORT: Final = 5001
CONTROL: Final = "cubic"
"""Linux's own choice, whatever this machine's is."""


def send(address: str) -> None:
    """Send until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with socket.socket() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONTROL.encode())
        sock.connect((address, PORT))
        block = bytes(1 << 16)
        while True:
            sock.sendall(block)


def receive(address: str) -> None:
    """Receive from the first that connects."""
    with socket.create_server((address, PORT)) as server:
        print("listening", flush=True)
        connection, _ = server.accept()
    with connection:
        buffer = bytearray(1 << 16)
        connection.recv_into(buffer)
        print("arriving", flush=True)
        while connection.recv_into(buffer):
            pass


if __name__ == "__main__":
    (send if sys.argv[2:] == ["send"] else receive)(sys.argv[1])
