# SPDX-License-Identifier: MIT
"""A call that is sent at once and that one rank gives up, over the model of the switch."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from netsum.collectives import call_fingerprint
from netsum.communicator import Communicator
from netsum.core.endpoint import GROUP
from netsum.core.progress import Work
from netsum.errors import AbortedError, InvalidTimeoutError, MismatchError, UnsupportedError

from tests.hosts.calls import allreduce, closing_all, good, on_each, over_a_bad_network
from tests.hosts.forking import outcome
from tests.hosts.network import MemoryNetwork
from tests.hosts.patience import patient_ranks
from tests.hosts.test_wrong_call import KINDS, SHORT, WORKERS, WRONG, WRONG_RANK, one_wrong, still_works


def test_what_is_given_up_is_sent_no_further() -> None:
    """The others learn it from their first blocks, and the rest of theirs brings no values."""
    array = np.ones(256 * 10 * GROUP, np.float32)
    with patient_ranks(WORKERS) as communicators:
        good(allreduce(communicators, [array] * WORKERS, scale="predicted"))
        before = communicators[0].stats.bytes_sent
        right = partial(Communicator.allreduce, x=array, scale="predicted")
        outcomes = one_wrong(communicators, lambda comm: comm.allreduce(array, scale="predicted", timeout=-1), right)
        assert [type(each) for each in outcomes] == [AbortedError, InvalidTimeoutError, AbortedError]
        assert communicators[0].stats.bytes_sent - before < array.nbytes / 2
        still_works(communicators, right)


@pytest.mark.parametrize("seed", range(4))
def test_over_a_network_that_loses_and_reorders(seed: int) -> None:
    call, wrong = KINDS["predicted"], WRONG["operation"][0]
    with over_a_bad_network(MemoryNetwork(WORKERS), 0.1, seed) as communicators:
        good(on_each(communicators, call))
        for _ in range(2):
            outcomes = one_wrong(communicators, wrong, call)
            assert [type(each) for each in outcomes] == [AbortedError, UnsupportedError, AbortedError]
            still_works(communicators, call)


def test_calls_under_way_in_the_background_keep_their_order() -> None:
    """The wrong one is between others, all begun at once."""

    def begin(comm: Communicator, number: float) -> Work[Any]:
        return comm.allreduce_async(np.full(3000, number, np.float32), scale="predicted")

    def run(comm: Communicator) -> list[Any]:
        works = [begin(comm, 1.0)]
        if comm.rank == WRONG_RANK:
            with pytest.raises(UnsupportedError, match="median"):
                comm.allreduce_async(SHORT, "median")
        else:
            works.append(begin(comm, 2.0))
        works += [begin(comm, 3.0)]
        return [outcome(work.wait) for work in works]

    with closing_all(MemoryNetwork(WORKERS).communicators()) as communicators:
        good(on_each(communicators, lambda comm: begin(comm, 1.0).wait()))
        outcomes = on_each(communicators, run)
    for rank, (first, *given_up, last) in enumerate(outcomes):
        assert set(first.tolist()) == {3.0}
        assert set(last.tolist()) == {9.0}
        assert [name for name, _ in given_up] == ["AbortedError"] * (rank != WRONG_RANK)


def test_a_sum_of_more_blocks_than_can_be_counted_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_fingerprint, "_MOST", 3)
    with closing_all(MemoryNetwork(WORKERS).communicators()) as communicators:
        good(on_each(communicators, KINDS["predicted"]))
        outcomes = one_wrong(communicators, WRONG["type"][0], KINDS["predicted"])
        assert [type(each) for each in outcomes] == [MismatchError, UnsupportedError, MismatchError]


class Groups:
    """A controller, as far as groups go: each is known by its label."""

    rejoin = open_transport = lambda *_: None

    def group(self, _epoch: int, label: str, ranks: list[int], _deadline: float) -> Any:
        return label, ranks


@pytest.mark.parametrize("color", [-1, 1.5, "x", 2**31, [0]], ids=str)
def test_a_wrong_split_leaves_the_groups_of_the_next_alike(color: Any) -> None:
    """Also where the others have made another call in its place, or the split was theirs alone."""
    others = [lambda comm: comm.split(0), Communicator.barrier]
    with closing_all(MemoryNetwork(WORKERS).communicators(membership=Groups())) as communicators:
        for right in others:
            outcomes = one_wrong(communicators, lambda comm: comm.split(color), right)
            assert [type(each) for each in outcomes[::2]] == [AbortedError] * 2
            assert isinstance(outcomes[WRONG_RANK], TypeError | ValueError)
        outcomes = one_wrong(communicators, WRONG["type"][0], others[0])
        assert [type(each) for each in outcomes] == [AbortedError, UnsupportedError, AbortedError]
        groups = on_each(communicators, lambda comm: comm.split(comm.rank % 2))
        assert groups == [("0.0", [0, 2]), ("0.1", [1]), ("0.0", [0, 2])]
