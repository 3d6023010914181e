# SPDX-License-Identifier: MIT
"""A link is cut and healed, and a host loses what its receive buffer cannot take."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest
from netsum import AbortedError, CallTimeoutError, Communicator, DesynchronizedError, NotFiniteError, ResultLostError
from netsum.transports import ImpairedTransport, Impairment, Transport
from netsum_testbed.fabric import Fabric
from netsum_testbed.netns import run_command

from tests.full.calls import on_all, results
from tests.full.conftest import joined
from tests.full.trouble import Training
from tests.threads import PATIENCE, until

_SO_MEMINFO = 55  # nine words, of which the last counts what was dropped


def linked(fabric: Fabric, wrap: Callable[[Transport], Transport], **options: Any) -> AbstractContextManager[list[Communicator]]:
    """A job of three, which stays at its switch, ``wrap`` around the transport of rank 1."""
    return joined(fabric, 3, wraps={1: wrap}, window=16, algorithm="switch", **options)


class Link:
    """The link of host h2: an end of its wire, or, where hosts have no interfaces, what is around its transport."""

    def __init__(self, fabric: Fabric, end: str) -> None:
        self._prefix = fabric.prefix("h2")
        self._end = end
        self.transports: list[ImpairedTransport] = []

    def wrap(self, transport: Transport) -> Transport:
        if self._prefix:
            return transport
        self.transports.append(ImpairedTransport(transport, Impairment(), 1))
        return self.transports[-1]

    def cut(self, cut: bool) -> None:
        if self._prefix:
            interface = {"host": "h2", "switch": "s2"}[self._end]
            run_command("ip", "-n", self._prefix[-1], "link", "set", interface, "down" if cut else "up")
        else:
            self.transports[-1].cut = cut


@pytest.mark.parametrize("end", ["host", "switch"])
def test_calls_go_on_when_a_cut_link_is_healed(fragile: Fabric, end: str) -> None:
    link = Link(fragile, end)
    with linked(fragile, link.wrap) as communicators, Training(communicators) as training:
        training.on()
        link.cut(True)
        reached = max(training.steps)
        resent = communicators[0].stats.retransmissions
        until(lambda: communicators[0].stats.retransmissions > resent + 2, "it is waited for")
        assert max(training.steps) <= reached + 1, "a call ended without the rank that was cut off"
        link.cut(False)
        training.finish()


@pytest.mark.full
def test_all_time_out_when_it_is_not_healed_in_time(fragile: Fabric) -> None:
    """The rank that is cut off cannot know what is wrong; the others name it. All come back once the link is healed."""
    link = Link(fragile, "host")
    with linked(fragile, link.wrap) as communicators:
        with Training(communicators, timeout=5.0) as training:
            training.on()
            link.cut(True)
            training.join()
            assert training.kinds() == [CallTimeoutError] * 3
            for rank in (0, 2):
                error = training.errors[rank]
                assert isinstance(error, CallTimeoutError)
                assert error.missing == (1,)
        link.cut(False)
        with training.again() as after:
            after.finish()


def test_a_degrade_job_goes_on_without_the_one_that_is_cut_off(fragile: Fabric) -> None:
    link = Link(fragile, "host")
    options: dict[str, Any] = {"late": "degrade", "block_exp": 50.0, "quorum": 1}
    with (
        linked(fragile, link.wrap, **options) as communicators,
        Training(communicators, check=False, resync=(ResultLostError, DesynchronizedError)) as training,
    ):
        training.on()
        link.cut(True)
        degraded = communicators[0].stats.degraded
        until(lambda: communicators[0].stats.degraded > degraded + 200, "the others go on, far ahead")
        link.cut(False)
        training.finish()
        assert training.came_back[1]


def test_who_was_cut_off_when_a_call_was_aborted_adds_nothing_to_the_next(fragile: Fabric) -> None:
    """The call took one block where the one that is cut off would count ten; its link comes back in the middle of the next."""
    link, rows, width = Link(fragile, "host"), 600, 1024
    numbers = [np.repeat(np.arange(rows, dtype=np.int32) + 1000 * (rank != 1), width) for rank in range(3)]
    spoilt = np.ones(10 * width, np.float32)
    spoilt[3] = np.nan
    with linked(fragile, link.wrap, late="degrade", block_exp=50.0, quorum=2) as communicators:
        on_all(communicators, Communicator.barrier)
        link.cut(True)
        aborted = [comm.allreduce_async(spoilt if comm.rank == 0 else np.ones_like(spoilt)) for comm in communicators]
        works = [comm.allreduce_async(numbers[comm.rank], "min", timeout=PATIENCE) for comm in communicators]
        while communicators[0].stats.blocks < rows // 3 and not works[0].finished(0.001):
            pass
        link.cut(False)
        got = results(on_all([communicators[0], communicators[2]], lambda comm: works[comm.rank].wait()))
        assert got[0].tobytes() == got[1].tobytes()
        assert set(np.unique(got[0] - numbers[0]).tolist()) <= {
            0,
            -1000,
        }  # with rank 1's row of the same number, or without
        for rank, kind in ((0, NotFiniteError), (1, DesynchronizedError), (2, AbortedError)):
            with pytest.raises(kind):
                aborted[rank].wait()
        with pytest.raises(DesynchronizedError):
            works[1].wait()


@contextmanager
def socket_of(transport: Transport) -> Iterator[socket.socket]:
    number = transport.fileno()
    assert number is not None
    with socket.socket(fileno=os.dup(number)) as sock:
        yield sock


@pytest.mark.parametrize("late", ["wait", "degrade"])
def test_a_receive_buffer_that_overflows_costs_time_and_no_sum(fragile: Fabric, late: str) -> None:
    """Room for one packet or two, of which the member does not know: most results of a window are lost, and come when they are
    asked for again."""
    opened: list[Transport] = []

    def wrap(transport: Transport) -> Transport:
        opened.append(transport)
        return transport

    # A slow rank is not late here: a block waits for half a minute.
    options: dict[str, Any] = {"late": late}
    if late == "degrade":
        options |= {"block_exp": 30_000.0, "quorum": 3}
    with linked(fragile, wrap, **options) as communicators:
        with socket_of(opened[-1]) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        drops = 0
        with Training(communicators, size=100_000) as training:
            for _ in range(20):  # a large frame fits, and is lost only if another one is there
                training.on(5)
                with socket_of(opened[-1]) as sock:
                    *_, drops = struct.unpack("9I", sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 36))
                if drops:
                    break
            training.stop(3)
            training.check_equal()
        assert drops > 0
        assert communicators[1].stats.retransmissions > 0
