"""One end of a TCP stream: ``python -m netsum_bench.stream ADDRESS`` accepts a connection there and, until it ends, prints what
has arrived as lines of JSON, [seconds of the machine's monotonic clock, bytes]; with the word ``send`` behind the address it
connects, and sends until SIGTERM. It imports nothing more, since `netsum bench links` starts hundreds of them."""

from __future__ import annotations

import json
import signal
import socket
import sys
import time
from typing import Final

PORT: Final = 5001
CONTROL: Final = "cubic"
"""Linux's own choice, whatever this machine's is."""
_INTERVAL: Final = 0.1
_PATIENCE: Final = 60.0


def send(address: str) -> None:
    """Send until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    deadline = time.monotonic() + _PATIENCE
    with socket.socket() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONTROL.encode())
        while sock.connect_ex((address, PORT)):
            if time.monotonic() > deadline:
                sys.exit(f"no process accepts a connection at {address}")
            time.sleep(_INTERVAL)
        block = bytes(1 << 16)
        while True:
            sock.sendall(block)


def receive(address: str) -> None:
    """Receive from the first that connects."""
    with socket.create_server((address, PORT)) as server:
        print("begun", flush=True)
        connection, _ = server.accept()
    with connection:
        total, reported, buffer = 0, 0.0, bytearray(1 << 16)
        while number := connection.recv_into(buffer):
            total += number
            if (now := time.monotonic()) - reported >= _INTERVAL:
                reported = now
                print(json.dumps([now, total]), flush=True)


if __name__ == "__main__":
    (send if sys.argv[2:] == ["send"] else receive)(sys.argv[1])
