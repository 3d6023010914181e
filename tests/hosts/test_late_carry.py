"""``late="carry"``: what came too late goes into the next call of the same kind, exactly once."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from netsum.communicator import Communicator
from netsum.errors import Aborted, NotFinite

from tests.hosts.calls import allreduce, good, on_each
from tests.hosts.stragglers import one_late, stragglers

WORKERS = 3


def share(rank: int, step: int, size: int) -> Any:
    rng = np.random.default_rng([rank, step])
    return rng.integers(-1000, 1000, size).astype(np.float32)


@settings(max_examples=15)
@given(
    st.lists(st.sampled_from([None, 0, 1, 2]), min_size=1, max_size=6),
    st.sampled_from([1, 256, 700]),
)
def test_nothing_is_lost_or_added_twice(late: list[int | None], size: int) -> None:
    """The sum over calls, the last of them whole, is the sum of all that all ranks gave."""
    with stragglers(WORKERS) as (network, communicators):
        total: Any = np.zeros(size, np.float64)
        for step, who in enumerate([*late, None]):

            def call(comm: Communicator, step: int = step) -> Any:
                return comm.allreduce(share(comm.rank, step, size), late="carry")

            outcomes = on_each(communicators, call) if who is None else one_late(network, communicators, who, call)
            total += good(outcomes)
        given_ = sum(share(rank, step, size) for rank in range(WORKERS) for step in range(len(late) + 1))
        np.testing.assert_array_equal(total, given_)


def test_calls_that_overlap_carry_exactly_once() -> None:
    """Two calls under way at once: what the first misses is known only when the second has begun."""
    size, rounds = 700, 3
    with stragglers(WORKERS) as (network, communicators):

        def pair(comm: Communicator, first: int) -> Any:
            works = [
                comm.allreduce_async(share(comm.rank, step, size), late="carry") for step in range(first, first + 2)
            ]
            return sum(work.wait().astype(np.float64) for work in works)

        total: Any = np.zeros(size, np.float64)
        for turn in range(rounds):
            total += good(one_late(network, communicators, turn % WORKERS, partial(pair, first=2 * turn)))
        total += good(allreduce(communicators, [share(rank, 99, size) for rank in range(WORKERS)], late="carry"))
        steps = [*range(2 * rounds), 99]
        given_ = sum(share(rank, step, size) for rank in range(WORKERS) for step in steps)
        np.testing.assert_array_equal(total, given_)


def test_calls_of_another_kind_are_left_alone() -> None:
    with stragglers(WORKERS) as (network, communicators):
        one_late(network, communicators, 1, lambda comm: comm.allreduce(share(comm.rank, 0, 10), late="carry"))
        for options in ({"late": "accept"}, {"late": "carry", "op": "mean"}):
            mine = [np.full(10, 3.0, np.float32)] * WORKERS
            sums = 3.0 if "op" in options else 9.0
            assert good(allreduce(communicators, mine, **options)).tolist() == [sums] * 10
        mine = [np.zeros(10, np.float32)] * WORKERS
        np.testing.assert_array_equal(good(allreduce(communicators, mine, late="carry")), share(1, 0, 10))


def test_a_call_that_is_given_up_keeps_what_it_took_along() -> None:
    with stragglers(WORKERS) as (network, communicators):
        one_late(network, communicators, 1, lambda comm: comm.allreduce(share(comm.rank, 0, 10), late="carry"))
        spoilt = [np.ones(10, np.float32), np.ones(10, np.float32), np.full(10, np.nan, np.float32)]
        outcomes = allreduce(communicators, spoilt, late="carry")
        assert [type(outcome) for outcome in outcomes] == [Aborted, Aborted, NotFinite]
        zeros = [np.zeros(10, np.float32)] * WORKERS
        np.testing.assert_array_equal(good(allreduce(communicators, zeros, late="carry")), share(1, 0, 10))
