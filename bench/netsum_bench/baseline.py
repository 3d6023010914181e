"""The machine's limit: the same generator and frames, with a process that only passes them on in place of the switch."""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Final

import numpy as np
from netsum.transports.mmsg import MessageArray
from netsum.transports.sockets import enlarge_buffers, parse_address
from netsum_testbed.errors import TestbedError
from netsum_testbed.links import FRAME_BYTES
from netsum_testbed.processes import Child

from netsum_bench.traffic_generator import Blaster, bare_wires

_BATCH: Final = 32
_SOL_PACKET: Final = 263  # linux/socket.h and linux/if_packet.h; Python has no names for these two
_IGNORE_OUTGOING: Final = 23
_ETH_P_ALL: Final = 3


@contextmanager
def passing_on(rootless: bool = False) -> Iterator[tuple[Blaster, int]]:
    """A generator, and the id of the process that passes each host's frames on to the next host. Needs root, unless
    ``rootless``."""
    with ExitStack() as undo:
        wires = undo.enter_context(bare_wires(rootless))
        process = Child([*wires.prefix, sys.executable, "-m", __name__, *wires.ends], output=None)
        undo.callback(process.stop)
        if process.stdout.readline() != "ready\n":
            raise TestbedError(f"the process that passes frames on did not start: {process.stdout.read()}")
        yield undo.enter_context(closing(wires.blaster())), process.pid


def _open(end: str) -> socket.socket:
    """An interface, or udp:HOST:PORT:PEER:PORT."""
    if end.startswith("udp:"):
        _, host, port, *peer = end.split(":")
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        enlarge_buffers(sock)
        sock.bind((host, int(port)))
        sock.connect(parse_address(":".join(peer)))
        return sock
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    sock.bind((end, _ETH_P_ALL))
    return sock


def pass_on(*ends: str) -> None:
    """Send what comes in at an end of a wire, frames of `FRAME_BYTES` at most, out of the next one, for ever. What comes at once
    is of one size."""
    sockets, poll = [_open(end) for end in ends], select.poll()
    for sock in sockets:
        poll.register(sock, select.POLLIN)
    following = {sock.fileno(): (sock, sockets[at + 1 - len(sockets)]) for at, sock in enumerate(sockets)}
    rows = np.zeros((_BATCH, FRAME_BYTES), np.uint8)
    received, sent = MessageArray(rows), MessageArray(rows)
    print("ready", flush=True)
    while True:
        for descriptor, _ in poll.poll():
            here, there = following[descriptor]
            count = received.receive(here, socket.MSG_DONTWAIT)
            if (size := int(received.lengths[0])) != sent.rows.shape[1]:
                sent.set_rows(rows[:, :size])
            sent.send_all(there, count)


if __name__ == "__main__":
    pass_on(*sys.argv[1:])
