"""What the machine itself can do: the same generator and frames, but in the switch's place a process that only passes them on."""

from __future__ import annotations

import select
import socket
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Final

import numpy as np
from netsum.transports.messages import MessageArray

from netsum_testbed.bench.blast import Blaster
from netsum_testbed.bench.loads import FRAME_BYTES, HOSTS, raw_load
from netsum_testbed.bench.switches import Plan
from netsum_testbed.errors import TestbedError
from netsum_testbed.netns import NetworkNamespace
from netsum_testbed.processes import Child

_BATCH: Final = 32
_SOL_PACKET: Final = 263  # linux/socket.h and linux/if_packet.h; Python has no names for these two
_IGNORE_OUTGOING: Final = 23
_ETH_P_ALL: Final = 3


def host_links(hosts: int = HOSTS) -> list[tuple[str, str]]:
    """The names of both ends of each host's link: the switch's, the host's."""
    return [(f"s{number}", f"h{number}") for number in range(1, hosts + 1)]


@contextmanager
def passing_on() -> Iterator[tuple[Blaster, int]]:
    """A generator, and the number of the process that sends what comes from a host to the next one. Needs root."""
    with ExitStack() as undo:
        namespace = undo.enter_context(closing(NetworkNamespace(host_links(), 9500)))
        inside = ["ip", "netns", "exec", namespace.name]
        process = Child([*inside, sys.executable, "-m", __name__, *(switch for switch, _ in host_links())], output=None)
        undo.callback(process.stop)
        if process.stdout.readline() != "ready\n":
            raise TestbedError(f"the process that passes frames on did not start: {process.stdout.read()}")
        blaster = namespace.call(lambda: Blaster([host for _, host in host_links()]))
        yield undo.enter_context(closing(blaster)), process.pid


def measure_floor(plan: Plan) -> float:
    """Frames a second through a process that sends what comes from a host to the next one. Needs root."""
    load = raw_load("floor", FRAME_BYTES)
    with passing_on() as (blaster, pid):
        blaster.run(load, plan.warm_up, plan.window, first_block=0, switch_pid=pid)
        runs = [
            blaster.run(load, plan.rounds, plan.window, first_block=0, switch_pid=pid) for _ in range(plan.repetitions)
        ]
    return statistics.median(run.pps for run in runs)


def pass_on(*interfaces: str) -> None:
    """Send what comes in at an interface, frames of `FRAME_BYTES` at most, out of the next one, for ever. What comes at once
    is of one size."""
    sockets, poll = [], select.poll()
    for interface in interfaces:
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sock.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.bind((interface, _ETH_P_ALL))
        sockets.append(sock)
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
                sent.show(rows[:, :size])
            sent.send_all(there, count)


if __name__ == "__main__":
    pass_on(*sys.argv[1:])
