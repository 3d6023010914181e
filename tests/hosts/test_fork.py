# SPDX-License-Identifier: MIT
"""A forked child holds its parent's communicator: it may use nothing of it, and disturbs no rank. (DataLoader workers fork.)"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import netsum
import numpy as np
import pytest
from netsum.communicator import Communicator
from netsum.frames import FrameFormat
from netsum.transports.loopback import Inbox, LoopbackWire
from netsum.transports.sockets import SocketBatch

from tests.hosts.calls import good, on_each
from tests.hosts.forking import in_child, outcome
from tests.hosts.network import MemoryNetwork, descriptor
from tests.hosts.peers import peer_descriptor
from tests.hosts.test_transports import free_ports
from tests.threads import PATIENCE

CALLS: dict[str, Callable[[Communicator], Any]] = {
    "allreduce": lambda comm: comm.allreduce(np.full(3, 1000.0)).tolist(),
    "allreduce_async": lambda comm: comm.allreduce_async(np.full(3, 1000.0)).wait().tolist(),
    "a bad call": lambda comm: comm.allreduce(np.ones(3), op="median").tolist(),
    "broadcast": lambda comm: comm.broadcast(np.ones(3)).tolist(),
    "barrier": Communicator.barrier,
    "lag": Communicator.lag,
    "split": lambda comm: comm.split(0),
    "resync": lambda comm: comm.resync(timeout=1.0),
}


@pytest.fixture
def pair() -> Iterator[list[Communicator]]:
    """Two ranks over real sockets that combine themselves."""
    peers = tuple(f"127.0.0.1:{port}" for port in free_ports(2))
    communicators = [netsum.join(descriptor=peer_descriptor(rank, 2, peers=peers), call_timeout=PATIENCE) for rank in (0, 1)]
    yield communicators
    on_each(communicators, Communicator.close)


def sums(communicators: list[Communicator]) -> list[float]:
    total: list[float] = good(on_each(communicators, lambda comm: comm.allreduce(np.full(3, comm.rank + 1.0)))).tolist()
    return total


def test_every_call_is_refused_in_a_child_and_the_parents_go_on(pair: list[Communicator]) -> None:
    assert sums(pair) == [3.0] * 3
    refused = in_child(lambda: {name: outcome(partial(call, pair[0])) for name, call in CALLS.items()})
    for name in CALLS:
        kind, words = refused[name]
        assert kind == ("UnsupportedError" if name == "a bad call" else "ClosedError"), name
        assert kind == "UnsupportedError" or f"belongs to process {os.getpid()}" in words
    assert sums(pair) == [3.0] * 3


def test_a_call_under_way_is_the_parents(pair: list[Communicator]) -> None:
    work = pair[0].allreduce_async(np.ones(3))
    assert in_child(work.wait)[0] == "ClosedError"
    assert good([pair[1].allreduce(np.ones(3)), work.wait()]).tolist() == [2.0] * 3


def test_a_child_holds_none_of_its_parents_sockets(pair: list[Communicator]) -> None:
    """It would take the parent's packets, and keep the port when the parent is gone."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    batch = SocketBatch(sock)
    of_child = in_child(lambda: [comm._session._transport.fileno() for comm in pair] + [batch.fileno()])
    assert all(number in (None, -1) for number in of_child)
    assert batch.fileno() > 0
    batch.close()
    assert sums(pair) == [3.0] * 3


def test_a_child_does_not_share_its_parents_wire() -> None:
    local, remote = ("127.0.0.1", free_ports(1)[0]), ("127.0.0.1", 9)
    inbox = Inbox(FrameFormat.of(descriptor(0, 2)))
    wire = LoopbackWire.attach(local, remote, inbox)
    kind, words = in_child(lambda: LoopbackWire.attach(local, remote, inbox) and None)
    assert (kind, "in use" in words) == ("OSError", True)
    wire.detach(inbox)


def test_leaving_a_with_block_in_a_child_signs_no_rank_off() -> None:
    """Neither close(), which explains itself, nor the child's end disturbs the parent."""
    read, write = os.pipe()
    network = MemoryNetwork(1)

    def signs_off() -> None:
        os.write(write, b"left")

    comm = Communicator(network.descriptors[0], network.transports[0], leave=signs_off)

    def leave() -> str:
        with comm:
            pass
        comm.close()
        return "gone"

    assert in_child(leave) == "gone"
    os.set_blocking(read, False)
    with pytest.raises(BlockingIOError):
        os.read(read, 100)
    assert comm.allreduce(np.ones(2)).tolist() == [1.0] * 2
    comm.close()
    assert os.read(read, 100) == b"left"
    os.close(read)
    os.close(write)
