# SPDX-License-Identifier: MIT
"""A rank was away for so long that results are gone: it is told, and by which error.

If it has not heard how a call opened it knows neither the call nor its length: it adds nothing to it, nor to any later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from netsum import AbortedError, ClosedError, Communicator, DesynchronizedError, NotFiniteError, ResultLostError
from netsum.transports.base import Packet

from tests.hosts.calls import closing_all, good, on_each
from tests.hosts.network import Around
from tests.hosts.stragglers import AgingNetwork, stragglers
from tests.threads import PATIENCE, together

ROWS = 400
"""Blocks of the long call: the slots, 64, go round six times."""
WIDTH = 256
"""4-byte elements in a block of these networks."""
LAST = 2


CALLS = [("min", "int32"), ("min", "float32"), ("max", "int32"), ("xor", "int32"), ("sum", "float32"), ("sum", "int32")]


class Link(Around):
    """A rank's transport; what it sends is lost while it is ``abstains``, what comes for it while it is ``deaf``."""

    abstains = deaf = False

    def send(self, packets: Sequence[Packet]) -> None:
        if not self.abstains:
            super().send(packets)

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        received = super().recv(timeout)
        return [] if self.deaf else received


@contextmanager
def linked(workers: int = 3) -> Iterator[tuple[AgingNetwork, list[Communicator], Link]]:
    """A network, its ranks, and the link of the last one, which may be cut."""
    network = AgingNetwork(workers)
    links = [Link(each) for each in network.transports]
    with closing_all(network.communicators(lambda _, rank: links[rank], timeout=PATIENCE)) as communicators:
        yield network, communicators, links[-1]


def wait_until(comm: Communicator, blocks: int, work: Any) -> None:
    """Wait until a call in the background has come so far."""
    while comm.stats.blocks < blocks and not work.finished(0.001):
        pass


def long_array(rank: int, dtype: str, rows: int = ROWS) -> Any:
    """Rows whose values tell the rank and the row."""
    number = np.repeat(np.arange(rows), WIDTH) + (1 if rank == LAST else 4096 * (rank + 1))
    return number.astype(dtype)


REDUCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "sum": lambda arrays: np.sum(arrays, axis=0),
    "min": lambda arrays: np.min(arrays, axis=0),
    "max": lambda arrays: np.max(arrays, axis=0),
    "xor": np.bitwise_xor.reduce,
}


def wrong_rows(result: Any, op: str, dtype: str) -> int:
    """Rows of a result that no quorum of the ranks' :func:`long_array` makes."""
    arrays = [long_array(rank, dtype) for rank in range(3)]
    quorums = [chosen for count in (2, 3) for chosen in combinations(arrays, count)]
    right = [(result == REDUCTIONS[op](list(chosen))).reshape(ROWS, WIDTH).all(axis=1) for chosen in quorums]
    return int((~np.any(right, axis=0)).sum())


@pytest.mark.parametrize(("op", "dtype"), CALLS)
def test_an_abort_that_a_rank_did_not_hear_shifts_none_of_its_rows(op: str, dtype: str) -> None:
    """Call 0 is aborted while rank 2's link is down, so it takes one id and not ten; the link returns in the middle of call 1."""
    spoilt = np.ones(10 * WIDTH, np.float32)
    spoilt[3] = np.nan
    with linked() as (network, communicators, link):
        link.abstains = link.deaf = True
        works = []
        for comm in communicators:
            first = comm.allreduce_async(spoilt if comm.rank == 0 else np.ones(10 * WIDTH, np.float32), "min")
            works.append((first, comm.allreduce_async(long_array(comm.rank, dtype), op)))
        with network.aging():
            wait_until(communicators[0], 200, works[0][1])
            link.abstains = link.deaf = False
            got = on_each(communicators, lambda comm: together([partial(work.wait, PATIENCE) for work in works[comm.rank]]))
        assert isinstance(got[0][0], NotFiniteError)
        assert isinstance(got[1][0], AbortedError)
        result = good([got[0][1], got[1][1]])
        assert wrong_rows(result, op, dtype) == 0
        assert [type(outcome) for outcome in got[LAST]] == [DesynchronizedError] * 2


ONES = np.ones(3, np.float32)
GOING_ON: dict[str, Callable[[Communicator], Any]] = {
    "sum": lambda comm: comm.allreduce(ONES),
    "give nothing": lambda comm: comm.allreduce(ONES, contribute=False),
    "integers": lambda comm: comm.allreduce(np.ones(3, np.int16)),
    "min": lambda comm: comm.allreduce(ONES, "min"),
    "nothing": lambda comm: comm.allreduce(ONES[:0]),
    "reduce": lambda comm: comm.reduce(ONES, op="max"),
    "barrier": lambda comm: comm.barrier(),
    "broadcast": lambda comm: comm.broadcast(ONES),
    "all_gather": lambda comm: comm.all_gather(ONES),
    "product": lambda comm: comm.allreduce(ONES, "product"),
}


@pytest.mark.parametrize("name", GOING_ON)
def test_who_goes_on_after_a_lost_opening_does_not(name: str) -> None:
    """Rank 2 hears nothing of 60 calls; it cannot tell its next call from those that the others have made."""
    with linked() as (network, communicators, link), network.aging():
        link.abstains = link.deaf = True
        on_each(communicators[:LAST], lambda comm: [comm.allreduce(np.full(300, step, "f")) for step in range(60)])
        link.abstains = link.deaf = False
        last = communicators[LAST]
        with pytest.raises(DesynchronizedError, match=r"resync\(\)"):
            GOING_ON[name](last)
        with pytest.raises(ClosedError):
            last.allreduce(np.ones(3))
        # And the others do not notice.
        assert good(on_each(communicators[:LAST], lambda comm: comm.allreduce(np.ones(3)))).tolist() == [2.0] * 3


@pytest.mark.parametrize(("op", "dtype"), CALLS)
def test_who_has_heard_the_opening_and_lost_data_is_behind_and_in_step(op: str, dtype: str) -> None:
    """It knows the call, and so how many ids it took."""
    with linked() as (network, communicators, link):
        works = [comm.allreduce_async(long_array(comm.rank, dtype), op) for comm in communicators]
        wait_until(communicators[LAST], 20, works[LAST])
        link.abstains = link.deaf = True
        with network.aging():
            result = good([work.wait() for work in works[:LAST]])
        link.abstains = link.deaf = False
        assert wrong_rows(result, op, dtype) == 0
        with pytest.raises(ResultLostError) as caught:
            works[LAST].wait()
        assert 0 < caught.value.report.lost < caught.value.report.blocks
        whole = good(on_each(communicators, lambda comm: comm.allreduce(long_array(comm.rank, dtype, 30), op)))
        np.testing.assert_array_equal(whole, REDUCTIONS[op]([long_array(rank, dtype, 30) for rank in range(3)]))
        assert all(comm.report.degraded == 0 for comm in communicators)


def test_giving_nothing_while_behind_is_cheap() -> None:
    """Everything that it slept through is still there: it catches up without computing."""
    size, calls = 200, 20
    with stragglers(3) as (network, communicators):
        last, step = communicators[LAST], 0
        with network.aging():
            theirs, _ = on_each(
                communicators[:LAST],
                lambda comm: [comm.allreduce(np.full(size, comm.rank + step, "f")) for step in range(calls)],
            )
        while last.lag():
            got = last.allreduce(np.zeros(size, np.float32), contribute=False)
            assert last.report.missed == last.report.blocks == 1
            assert got.tobytes() == theirs[step].tobytes()
            step += 1
        assert step == calls
        # It has caught up, and the sums are whole again.
        assert good(on_each(communicators, lambda comm: comm.allreduce(np.ones(3)))).tolist() == [3.0] * 3
        assert all(comm.report.degraded == 0 for comm in communicators)


EXCHANGES: dict[str, Callable[[Communicator], Any]] = {
    "broadcast": lambda comm: comm.broadcast_async(np.full(5 * WIDTH, comm.rank, np.float32)),
    "all_gather": lambda comm: comm.all_gather_async(np.full(WIDTH, comm.rank, np.float32)),
    "all_to_all": lambda comm: comm.all_to_all_async(np.full(3 * WIDTH, comm.rank, np.float32)),
    "product": lambda comm: comm.allreduce_async(np.full(WIDTH, comm.rank, np.float32), "product"),
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_what_an_exchange_lost_on_the_way_back_is_no_eviction(name: str) -> None:
    """The others waited for rank 2, and it answered; but the results did not reach it, and the others went on."""
    with linked() as (network, communicators, link):
        opened = communicators[0].descriptor.first_block_id
        # Rank 0's data is held up until rank 2 has sent its own, and hears nothing.
        network.lost = lambda rank, header: rank == 0 and header.block_id > opened
        works = [EXCHANGES[name](comm) for comm in communicators]
        wait_until(communicators[LAST], 2, works[LAST])
        link.deaf = True
        network.lost = lambda _rank, _header: False
        with network.aging():
            for work in works[:LAST]:
                work.wait()
            on_each(communicators[:LAST], lambda comm: [comm.allreduce(np.ones(300)) for _ in range(60)])
        link.deaf = False
        with pytest.raises(ResultLostError) as caught:
            works[LAST].wait()
        assert 0 < caught.value.report.lost <= caught.value.report.blocks
