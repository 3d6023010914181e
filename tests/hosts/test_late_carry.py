"""``late="carry"``: what came too late goes into the next call of the same kind, exactly once."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from netsum.communicator import Communicator
from netsum.errors import Aborted, NotFinite

from tests.examples import one_in
from tests.hosts.calls import allreduce, good, on_each
from tests.hosts.stragglers import one_late, stragglers

WORKERS = 3


def share(rank: int, step: int, size: int) -> Any:
    rng = np.random.default_rng([rank, step])
    return rng.integers(-1000, 1000, size).astype(np.float32)


@one_in(4)  # each is several calls, in which one rank is waited for
@given(st.lists(st.sampled_from([None, 0, 1, 2]), min_size=1, max_size=6), st.sampled_from([1, 256, 700]))
def test_nothing_is_lost_or_added_twice(late: list[int | None], size: int) -> None:
    """The sum over all calls, the last of which is whole, is the sum of everything that all ranks gave."""
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


LARGE = np.array([3e38, -3e38], np.float32)


def zeros(communicators: list[Communicator]) -> Any:
    return good(allreduce(communicators, [np.zeros(2, np.float32)] * WORKERS, late="carry")).tolist()


def test_what_overflows_with_what_was_carried_is_not_finite() -> None:
    """Each alone is finite, what would be sent is not; what was carried waits for a call that has room for it."""
    with stragglers(WORKERS) as (network, communicators):
        one_late(network, communicators, 1, lambda comm: comm.allreduce(LARGE * (comm.rank == 1), late="carry"))
        given_ = [np.ones(2, np.float32), LARGE, np.ones(2, np.float32)]
        outcomes = allreduce(communicators, given_, late="carry")
        assert [type(outcome) for outcome in outcomes] == [Aborted, NotFinite, Aborted]
        assert (outcomes[1].rank, outcomes[1].index) == (1, (0,))
        assert "carried" in str(outcomes[1])
        assert zeros(communicators) == LARGE.tolist()
        assert zeros(communicators) == [0.0, 0.0]


def test_a_late_rank_whose_carry_overflows_keeps_only_what_it_had() -> None:
    with stragglers(WORKERS) as (network, communicators):

        def late() -> list[type]:
            given_ = [LARGE * (rank == 1) for rank in range(WORKERS)]
            outcomes = one_late(network, communicators, 1, lambda comm: comm.allreduce(given_[comm.rank], late="carry"))
            return [type(outcome) for outcome in outcomes]

        assert late() == [np.ndarray] * 3
        assert late() == [np.ndarray, NotFinite, np.ndarray]
        assert zeros(communicators) == LARGE.tolist()


def test_carries_of_calls_that_overlap_and_overflow_are_an_error_once() -> None:
    """Their sum is not a number that any call could send."""
    with stragglers(WORKERS) as (network, communicators):

        def pair(comm: Communicator) -> Any:
            with comm._engine._lock:  # nobody drives the first to its end before the second begins
                works = [comm.allreduce_async(LARGE * (comm.rank == 1), late="carry") for _ in range(2)]
            return [work.wait() for work in works]

        one_late(network, communicators, 1, pair)
        outcomes = allreduce(communicators, [np.zeros(2, np.float32)] * WORKERS, late="carry")
        assert [type(outcome) for outcome in outcomes] == [Aborted, NotFinite, Aborted]
        assert zeros(communicators) == [0.0, 0.0]
