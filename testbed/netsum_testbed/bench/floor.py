"""What the machine itself can do: the same generator and frames, but in the switch's place a process that only passes them on."""

from __future__ import annotations

import select
import socket
import statistics
import sys
from contextlib import ExitStack, closing
from typing import Final

import numpy as np
from netsum.transports.messages import MessageArray

from netsum_testbed.bench.blast import Blaster, Load
from netsum_testbed.bench.switches import Plan
from netsum_testbed.errors import TestbedError
from netsum_testbed.netns import NetworkNamespace
from netsum_testbed.processes import Child

HOSTS: Final = 4
FRAME_BYTES: Final = 4154
"""Of a contribution of 4096 bytes."""

_BATCH: Final = 32
_SOL_PACKET: Final = 263  # linux/socket.h and linux/if_packet.h; Python has no names for these two
_IGNORE_OUTGOING: Final = 23
_ETH_P_ALL: Final = 3


def measure_floor(plan: Plan) -> float:
    """Frames a second through a process that sends what comes from a host to the next one. Needs root."""
    pairs = [(f"s{number}", f"h{number}") for number in range(1, HOSTS + 1)]
    header = bytes.fromhex("020000000001 020000000002 0800")
    frames = [bytearray(header + bytes([number]) * (FRAME_BYTES - len(header))) for number in range(HOSTS)]
    load = Load("floor", tuple(frames), bytes(frames[-1][-64:]))
    with ExitStack() as undo:
        namespace = undo.enter_context(closing(NetworkNamespace(pairs, 9500)))
        inside = ["ip", "netns", "exec", namespace.name]
        process = Child([*inside, sys.executable, "-m", __name__, *(switch for switch, _ in pairs)], output=None)
        undo.callback(process.stop)
        if process.stdout.readline() != "ready\n":
            raise TestbedError(f"the process that passes frames on did not start: {process.stdout.read()}")
        return namespace.call(lambda: _measure(load, [host for _, host in pairs], process.pid, plan))


def _measure(load: Load, interfaces: list[str], pid: int, plan: Plan) -> float:
    with closing(Blaster(interfaces)) as blaster:
        blaster.run(load, plan.warm_up, plan.window, first_block=0, switch_pid=pid)
        runs = [
            blaster.run(load, plan.rounds, plan.window, first_block=0, switch_pid=pid) for _ in range(plan.repetitions)
        ]
    return statistics.median(run.pps for run in runs)


def pass_on(*interfaces: str) -> None:
    """Send what comes in at an interface, frames of `FRAME_BYTES`, out of the next one, for ever."""
    sockets, poll = [], select.poll()
    for interface in interfaces:
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sock.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.bind((interface, _ETH_P_ALL))
        sockets.append(sock)
        poll.register(sock, select.POLLIN)
    following = {sock.fileno(): (sock, sockets[at + 1 - len(sockets)]) for at, sock in enumerate(sockets)}
    messages = MessageArray(np.zeros((_BATCH, FRAME_BYTES), np.uint8))
    print("ready", flush=True)
    while True:
        for descriptor, _ in poll.poll():
            here, there = following[descriptor]
            messages.send_all(there, messages.receive(here, socket.MSG_DONTWAIT))


if __name__ == "__main__":
    pass_on(*sys.argv[1:])
