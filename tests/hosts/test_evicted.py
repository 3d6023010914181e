# SPDX-License-Identifier: MIT
"""Calls after and during an eviction in place: they continue among the remaining ranks, alike on all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from netsum import AbortedError, CallError, Communicator, NotFiniteError

from tests.hosts.calls import good, on_each
from tests.hosts.network import MemoryNetwork
from tests.hosts.peers import PeerNetwork

WORKERS = 4
GONE = 2
LEFT = (0, 1, 3)


@pytest.fixture(params=["in place", "in place, degrade", "peers, a new epoch"])
def left(request: pytest.FixtureRequest) -> Any:
    """The communicators of the remaining ranks."""
    if request.param.startswith("peers"):
        addresses = tuple("" if rank == GONE else f"127.0.0.1:{rank + 1}" for rank in range(WORKERS))
        communicators = PeerNetwork(WORKERS, evicted=(GONE,), peers=addresses).communicators()
    else:
        late = {"block_exp_ms": 1000.0} if "degrade" in request.param else {}
        network = MemoryNetwork(WORKERS, **late)
        communicators = network.communicators()
        good(on_each(communicators, lambda comm: comm.all_gather(np.full(2, comm.rank))))
        with network.lock:
            network.evict(GONE)
    yield [communicators[rank] for rank in LEFT]
    for comm in communicators:
        comm.close()


def test_exchanges_bring_what_those_have_that_are_left(left: list[Communicator]) -> None:
    for _ in range(2):
        rows = good(on_each(left, lambda comm: comm.all_gather(np.full((2, 1), 10.0 + comm.rank))))
        assert rows.tolist() == [[10.0]] * 2 + [[11.0]] * 2 + [[13.0]] * 2
        assert [comm.report.evicted for comm in left] == [(GONE,)] * 3
        assert [comm.active_size for comm in left] == [3] * 3
        rows = good(on_each(left, lambda comm: comm.all_gather(np.full(comm.rank + 1, comm.rank), counts=[1, 2, 3, 4])))
        assert rows.tolist() == [0, 1, 1, 3, 3, 3, 3]
        gathered = on_each(left, lambda comm: comm.gather(np.array([comm.rank]), root=3))
        assert gathered[:2] == [None, None]
        assert gathered[2].tolist() == [0, 1, 3]
        swapped = on_each(left, lambda comm: comm.all_to_all(np.arange(8) + 10 * comm.rank))
        assert [each.tolist() for each in swapped] == [
            [10 * rank + 2 * own + part for rank in LEFT for part in (0, 1)] for own in LEFT
        ]
        told = on_each(left, lambda comm: comm.scatter(np.arange(8) if comm.rank == 1 else np.zeros(2, int), root=1))
        assert [each.tolist() for each in told] == [[0, 1], [2, 3], [6, 7]]
        assert good(on_each(left, lambda comm: comm.broadcast(np.full(3, comm.rank), root=3))).tolist() == [3] * 3
        assert good(on_each(left, lambda comm: comm.allreduce(np.ones(3), "mean"))).tolist() == [1.0] * 3
        assert good(on_each(left, lambda comm: comm.allreduce(np.ones(3)))).tolist() == [3.0] * 3


def test_a_product_is_of_those_that_are_left(left: list[Communicator]) -> None:
    for twos in (np.array([2, 3], np.float32), np.array([2, 3])):
        cubes = on_each(left, partial(Communicator.allreduce, x=twos, op="product"))
        assert good(cubes).tolist() == [8, 27]
    bad = on_each(left, lambda comm: comm.allreduce(np.array([1.0, np.nan if comm.rank == 3 else 1.0]), "product"))
    assert [type(each) for each in bad] == [AbortedError, AbortedError, NotFiniteError]
    assert "rank 3 aborted the call" in str(bad[0])
    assert (bad[2].rank, bad[2].index) == (3, (1,))


@pytest.mark.parametrize(
    "call",
    [
        lambda comm: comm.broadcast(np.ones(3), root=GONE),
        lambda comm: comm.scatter(np.ones(3), root=GONE),
        lambda comm: comm.gather(np.ones(3), root=GONE),
    ],
    ids=["broadcast", "scatter", "gather"],
)
def test_a_root_that_was_evicted_is_named(left: list[Communicator], call: Callable[[Communicator], Any]) -> None:
    for outcome in on_each(left, call):
        assert isinstance(outcome, AbortedError)
        assert str(outcome).startswith("rank 2 was evicted")
    assert good(on_each(left, lambda comm: comm.allreduce(np.ones(3)))).tolist() == [3.0] * 3


def test_nothing_is_put_where_there_is_room_for_all(left: list[Communicator]) -> None:
    """The evicted rank's array, which numpy would broadcast over all rows."""

    def call(comm: Communicator) -> Any:
        out = np.zeros((WORKERS, 2)) if comm.rank == 0 else None
        return comm.all_gather(np.full((1, 2), 1.0 + comm.rank), out)

    outcomes = on_each(left, call)
    assert isinstance(outcomes[0], CallError)
    assert "lacks the rows of rank 2" in str(outcomes[0])
    assert good(outcomes[1:]).tolist() == [[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]
    assert good(on_each(left, lambda comm: comm.allreduce(np.ones(3)))).tolist() == [3.0] * 3


class Groups:
    """A membership at a controller that makes groups."""

    open_transport = rejoin = join_anew = None

    def group(self, epoch: int, label: str, ranks: list[int], deadline: float) -> Any:  # noqa: ARG002
        return label, ranks


def test_groups_are_of_those_that_are_left(left: list[Communicator]) -> None:
    for comm in left:
        comm._membership = Groups()  # type: ignore[assignment]
    assert on_each(left, lambda comm: comm.split(0)) == [("0.0", [0, 1, 3])] * 3
    assert on_each(left, lambda comm: comm.split(comm.rank % 2, key=-comm.rank)) == [
        ("1.0", [0]),
        ("1.1", [3, 1]),
        ("1.1", [3, 1]),
    ]
    group = ("2.5", [0, 3])
    assert on_each(left, lambda comm: comm.split(None if comm.rank == 1 else 5)) == [group, None, group]


def test_in_the_moment_of_an_eviction_all_fare_alike() -> None:
    """Whichever packet it precedes, each call ends alike on all remaining ranks, and at most one is aborted."""
    kinds: set[object] = set()
    for moment in range(40):
        network = MemoryNetwork(WORKERS)
        communicators = network.communicators()
        passed = 0
        step = network.switch.step

        def counted(packet: Any, network: MemoryNetwork = network, step: Any = step, moment: int = moment) -> Any:
            nonlocal passed
            if passed == moment:
                network.evict(GONE)
            passed += 1
            return step(packet)

        network.switch.step = counted  # type: ignore[method-assign, assignment]

        def calls(comm: Communicator) -> list[Any]:
            outcomes: list[Any] = []
            for _ in range(3):
                try:
                    outcomes.append(comm.all_gather(np.full(600, comm.rank, np.float32)).tobytes())
                except AbortedError as error:
                    outcomes.append(str(error))
            return outcomes

        everyone = on_each(communicators, calls)
        first, *others = [everyone[rank] for rank in LEFT]
        assert others == [first] * 2, f"evicted before packet {moment}"
        rows = b"".join(np.full(600, rank, np.float32).tobytes() for rank in LEFT)
        assert first[-1] == rows or passed <= moment
        aborted = [each for each in first if isinstance(each, str)]
        assert len(aborted) <= 1
        assert all("rank 2 was evicted before it had sent" in each for each in aborted)
        kinds.add(len(aborted))
        for comm in communicators:
            comm.close()
    assert kinds == {0, 1}
