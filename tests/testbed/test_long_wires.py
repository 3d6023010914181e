# SPDX-License-Identifier: MIT
"""A wire on which frames are in flight for so long, each way."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from netsum_testbed.long_wires import LongWires

SECONDS = 0.02
MANY = 2000
"""More frames than a socket holds."""

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def pairs() -> Iterator[tuple[Ends, Ends]]:
    """The hosts' ends of two wires, and the wires' own."""
    with ExitStack() as undo:
        made = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]
        for each in [end for pair in made for end in pair]:
            each.setblocking(False)
            undo.enter_context(each)
        (one, inner), (other, outer) = made
        yield (one, other), (inner, outer)


def carry(wires: LongWires, into: socket.socket) -> bytes:
    """The next frame that comes out there."""
    while True:
        try:
            return into.recv(100)
        except BlockingIOError:
            wires.turn()


def test_frames_arrive_in_order_and_never_early(pairs: tuple[Ends, Ends]) -> None:
    (one, other), wire = pairs
    wires, began = LongWires(SECONDS, [wire]), time.monotonic()
    one.send(b"first")
    wires.turn()
    one.send(b"second")
    assert [carry(wires, other), time.monotonic() - began >= SECONDS] == [b"first", True]
    assert carry(wires, other) == b"second"
    other.send(b"back")
    assert carry(wires, one) == b"back"


def test_what_finds_a_full_queue_is_lost_and_nothing_else(pairs: tuple[Ends, Ends]) -> None:
    (one, other), wire = pairs
    wires = LongWires(0.0, [wire])
    for number in range(MANY):
        one.send(b"%d" % number)
        wires.turn()
    received = []
    with contextlib.suppress(BlockingIOError):
        while True:
            received.append(int(other.recv(100)))
    assert received == list(range(len(received)))
    assert 0 < len(received) < MANY
    one.send(b"after")
    assert carry(wires, other) == b"after"
