"""The machine's limit: a process without memory that answers each instruction at once, with as many bytes as a device would."""

from __future__ import annotations

import select
import socket
from typing import Final

import numpy as np
from netsum.transports.mmsg import MessageArray
from netsum.transports.sockets import enlarge_buffers
from netsum.transports.udp import prepare_udp
from netsum.wire.memory import MAX_MESSAGE, MEMORY_DTYPE, MEMORY_HEADER_BYTES, Flag, Instruction

_BATCH: Final = 64
_REPLY: Final = int(Flag.REPLY)


def serve() -> None:
    """Print the port; answer whoever sends first, for ever."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    enlarge_buffers(sock)
    prepare_udp(sock)
    sock.bind(("127.0.0.1", 0))
    print(sock.getsockname()[1], flush=True)
    select.select([sock], [], [])
    sock.connect(sock.recvfrom(1, socket.MSG_PEEK)[1])
    rows = np.zeros((_BATCH, MAX_MESSAGE), np.uint8)
    received, sent = MessageArray(rows), MessageArray(rows)
    heads = rows[:, :MEMORY_HEADER_BYTES].view(MEMORY_DTYPE)[:, 0]
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    while poll.poll():
        count = received.receive(sock, socket.MSG_DONTWAIT)
        first = heads[0]  # what comes at once is alike
        length = int(first["length"]) if first["instruction"] == Instruction.READ else 0
        heads["flags"][:count] |= _REPLY
        heads["length"][:count] = length
        sent.show(rows[:, : MEMORY_HEADER_BYTES + length])
        sent.send_all(sock, count)


if __name__ == "__main__":
    serve()
