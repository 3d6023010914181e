# SPDX-License-Identifier: MIT
"""The machine's limit, as a process in place of the switch: ``python -m netsum_bench.baseline END...``.

It passes each host's frames on to the next host, and prints a line when it is ready. An end is an interface or
udp:HOST:PORT:PEER:PORT.
"""

from __future__ import annotations

import select
import socket
import sys
from typing import Final

import numpy as np
from netsum.transports.mmsg import MessageArray
from netsum_testbed.links import FRAME_BYTES

from netsum_bench.traffic_generator import open_wire

_BATCH: Final = 32


def pass_on(*ends: str) -> None:
    """Send what comes in at an end of a wire, frames of `FRAME_BYTES` at most, out of the next one, for ever. What comes at once
    is of one size."""
    sockets, poll = [open_wire(end) for end in ends], select.poll()
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
