# SPDX-License-Identifier: MIT
"""Something on the way takes a rank's large packets, or what the switch sends it: the other ranks' errors say which. (Jobs that
may leave their switch go around a path that takes everything: ``tests/testbed/test_blocked_paths.py``.)"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from netsum import CallTimeoutError
from netsum.transports.base import Packet
from netsum_testbed.fabric import Fabric

from tests.full.calls import allreduce_whole, on_all, results
from tests.full.conftest import joined
from tests.hosts.network import Around

pytestmark = pytest.mark.full

TIMEOUT = 8.0
"""Seconds: the controller is asked well before they are over, when the silent rank has told it what it waits for."""


class Narrow(Around):
    """A link with a smaller MTU than the topology's, on which large packets vanish."""

    def send(self, packets: Sequence[Packet]) -> None:
        whole = [b"".join(bytes(part) for part in packet) for packet in packets]
        super().send([(packet,) for packet in whole if len(packet) <= 600])


class Walled(Around):
    """A link behind a firewall, which is there from some moment on."""

    closed = False

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        packets = super().recv(timeout)
        return [] if self.closed else packets


def test_large_packets_of_a_rank_do_not_arrive(fabric: Fabric) -> None:
    with joined(fabric, 3, chunks=5, algorithm="switch", wraps={1: Narrow}) as communicators:
        for outcome in on_all(communicators, lambda comm: comm.allreduce(np.ones(3000, np.float32), timeout=TIMEOUT)):
            assert isinstance(outcome.error, CallTimeoutError)
            assert outcome.error.missing == (1,)
            assert "(1320 bytes each), and none of these packets has come to port 2 of switch s1" in str(outcome.error)
            assert "though smaller ones have: between h2 and there, every link must carry IP packets of 1348 bytes" in str(
                outcome.error
            )


def test_results_do_not_come_through_to_a_rank(fabric: Fabric) -> None:
    made: list[Walled] = []

    def walled(inner: object) -> Walled:
        made.append(Walled(inner))  # type: ignore[arg-type]
        return made[-1]

    with joined(fabric, 3, window=8, chunks=1, algorithm="switch", wraps={1: walled}) as communicators:
        results(on_all(communicators, lambda comm: allreduce_whole(comm, np.ones(30, np.float32))))
        made[0].closed = True
        told = on_all(communicators, lambda comm: comm.allreduce(np.ones(30000, np.float32), timeout=TIMEOUT))
        for outcome in (told[0], told[2]):
            assert isinstance(outcome.error, CallTimeoutError)
            assert outcome.error.missing == (1,)
            assert "have come), and does not get the result of block" in str(outcome.error)
            assert "Look for a firewall on h2" in str(outcome.error)
        assert isinstance(told[1].error, CallTimeoutError)
        assert "its result has not reached this rank: does a firewall here" in str(told[1].error)
