# SPDX-License-Identifier: MIT
"""Wires that delay every frame: ``python -m netsum_testbed.long_wires MICROSECONDS ONE:OTHER...``, in the namespace of the
interfaces, each pair of which becomes a wire. Needs root.

A process, because not every kernel has the queue that delays (netem). It uses part of a core, at high priority. Frames are lost
while a queue is full, as on any wire. It prints ``ready`` and runs until it is stopped.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time
from collections import deque
from typing import Final

from netsum.transports.sockets import enlarge_buffers

_ETH_P_ALL: Final = 3
_FRAME_BYTES: Final = 1 << 16
_TURN: Final = 64
"""Frames taken from an interface in a turn."""


def open_interface(name: str) -> socket.socket:
    """All frames that come in at an interface, and a way to send some."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    enlarge_buffers(sock)
    sock.bind((name, _ETH_P_ALL))
    sock.setblocking(False)
    return sock


class LongWires:
    """``seconds``: how long a frame is in flight. ``pairs``: sockets that exchange frames."""

    def __init__(self, seconds: float, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
        self._seconds = seconds
        self._other = {**dict(pairs), **{other: one for one, other in pairs}}
        self._held: deque[tuple[float, socket.socket, bytes]] = deque()  # until when, and for whom

    def turn(self) -> None:
        """Wait for something to do, and do it."""
        left = max(0.0, self._held[0][0] - time.monotonic()) if self._held else None
        readable, _, _ = select.select(self._other, (), (), left)  # unlike poll, not in whole milliseconds
        due = time.monotonic() + self._seconds
        for sock in readable:
            with contextlib.suppress(BlockingIOError):
                for _ in range(_TURN):
                    self._held.append((due, self._other[sock], sock.recv(_FRAME_BYTES)))
        now = time.monotonic()
        while self._held and self._held[0][0] <= now:
            _, sock, frame = self._held.popleft()
            with contextlib.suppress(OSError):  # the queue is full, or the other end is down
                sock.send(frame)


def main(microseconds: str, *pairs: str) -> None:
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    ends = [pair.split(":") for pair in pairs]
    wires = LongWires(int(microseconds) / 1e6, [(open_interface(one), open_interface(other)) for one, other in ends])
    print("ready", flush=True)
    while True:
        wires.turn()


if __name__ == "__main__":
    main(*sys.argv[1:])
