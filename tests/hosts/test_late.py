# SPDX-License-Identifier: MIT
"""A rank is late in a job that degrades: what it and the others get, under each policy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum import AbortedError, Communicator, DegradedError, NotFiniteError, SumOverflowError, UnsupportedError

from tests.examples import one_in
from tests.hosts.calls import allreduce, good, on_each
from tests.hosts.stragglers import one_late, stragglers

WIDTH = 256
"""float32 elements in a block of these networks."""


def shares(workers: int, size: int = 3 * WIDTH + 5, seed: int = 0) -> list[Any]:
    """Whole numbers of a few bits: their sums are exact at any scale near theirs."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-100, 100, size).astype(np.float32) for _ in range(workers)]


@pytest.mark.parametrize("late", range(3))
@pytest.mark.parametrize("op", ["sum", "mean", "max"])
def test_all_get_the_same_partial_result_that_says_so(late: int, op: str) -> None:
    mine = shares(3)
    with stragglers(3) as (network, communicators):
        result = good(one_late(network, communicators, late, lambda comm: comm.allreduce(mine[comm.rank], op)))
        others = np.array([mine[rank] for rank in range(3) if rank != late])
        expected = {"sum": others.sum(0), "mean": others.mean(0), "max": others.max(0)}[op]
        np.testing.assert_array_equal(result, expected.astype(np.float32))
        for comm in communicators:
            report = comm.report
            assert (report.blocks, report.degraded, report.min_worker_cnt) == (4, 4, 2)
            assert (report.missed, report.lost) == (4 if comm.rank == late else 0, 0)
            assert report.overflowed == 0
            assert comm.stats.degraded >= 4
        # And none of it lasts.
        whole = good(allreduce(communicators, mine, op="sum"))
        np.testing.assert_array_equal(whole, sum(mine))
        assert all(comm.report.degraded == comm.report.missed == 0 for comm in communicators)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "float64", "float16"])
def test_partial_sums_of_every_width(dtype: str) -> None:
    mine = [np.arange(700).astype(dtype) % 7 + rank for rank in range(3)]
    with stragglers(3) as (network, communicators):
        result = good(one_late(network, communicators, 1, lambda comm: comm.allreduce(mine[comm.rank])))
        np.testing.assert_array_equal(result, mine[0] + mine[2])
        assert result.dtype == dtype


def test_a_partial_mean_of_integers_is_over_the_ranks_in_it() -> None:
    mine = [np.arange(-350, 350, dtype=np.int16) + rank for rank in range(3)]
    with stragglers(3) as (network, communicators):
        result = good(one_late(network, communicators, 1, lambda comm: comm.allreduce(mine[comm.rank], "integer_mean")))
        np.testing.assert_array_equal(result, np.arange(-349, 351, dtype=np.int16))


@pytest.mark.parametrize("op", ["sum", "mean"])
def test_partial_exact_sums(op: str) -> None:
    mine = [np.arange(700, dtype=np.float32) * np.float32(scale) for scale in (1e30, 1.0, -1e30)]
    with stragglers(3) as (network, communicators):
        call = partial(one_late, network, communicators)
        assert not good(call(1, lambda comm: comm.allreduce(mine[comm.rank], op, exact=True))).any()
        result = good(call(0, lambda comm: comm.allreduce(mine[comm.rank], op, exact=True)))
        np.testing.assert_array_equal(result, (mine[1] + mine[2]) / np.float32(2 if op == "mean" else 1))
        assert all(comm.report.degraded == comm.report.blocks for comm in communicators)


@pytest.mark.parametrize("op", ["sum", "mean"])
def test_values_beyond_the_scale_that_the_others_agreed_on_are_left_out_and_counted(op: str) -> None:
    """The agreement aged out without the late rank: values that do not fit it cannot be added; those that fit, in time, are."""
    mine = [np.ones(3 * WIDTH, np.float32) for _ in range(3)]
    mine[2][WIDTH : 2 * WIDTH] = 2.0**40
    with stragglers(3) as (network, communicators):
        first = communicators[0].descriptor.first_block_id
        # Only the first block, the agreement, ages out: rank 1's data is held up until the late rank comes.
        network.lost = lambda rank, header: rank == 1 and header.block_id != first
        works = [communicators[rank].allreduce_async(mine[rank], op, timeout=60.0) for rank in (0, 1)]
        while network.age() == 0:
            works[0].finished(0.001)
        works.append(communicators[2].allreduce_async(mine[2], op, timeout=60.0))
        while not works[2].finished(0.001) and communicators[2].stats.packets_sent < 4:
            pass
        network.lost = lambda _rank, _header: False
        result = good([work.wait() for work in works])
        both, all_three = (2.0, 3.0) if op == "sum" else (1.0, 1.0)
        assert set(result[:WIDTH].tolist()) == {all_three}
        assert set(result[WIDTH : 2 * WIDTH].tolist()) == {both}
        assert set(result[2 * WIDTH :].tolist()) == {all_three}
        report = communicators[2].report
        assert (report.overflowed, report.missed, report.degraded) == (1, 1, 1)
        assert [work.report.degraded for work in works] == [1, 1, 1]
        assert [work.report.overflowed for work in works] == [0, 0, 1]


def test_wait_waits_also_here() -> None:
    mine = shares(3)
    with stragglers(3) as (network, communicators):
        with network.aging():
            works = [comm.allreduce_async(mine[comm.rank], on_late="wait") for comm in communicators[:2]]
            assert not any(work.finished(0.3) for work in works)
            last = communicators[2].allreduce(mine[2], on_late="wait")
            result = good([work.wait() for work in works] + [last])
        np.testing.assert_array_equal(result, sum(mine))
        assert all(comm.report.degraded == 0 for comm in communicators)
        with network.aging():
            barriers = on_each(communicators, Communicator.barrier)
        assert barriers == [None] * 3


def test_raise_raises_on_every_rank_that_has_a_partial_result() -> None:
    mine = shares(3)
    with stragglers(3) as (network, communicators):
        outcomes = one_late(network, communicators, 0, lambda comm: comm.allreduce(mine[comm.rank], on_late="raise"))
        for outcome in outcomes:
            assert isinstance(outcome, DegradedError)
            assert (outcome.report.degraded, outcome.report.min_worker_cnt) == (4, 2)
            assert "4 of 4" in str(outcome)
        np.testing.assert_array_equal(good(allreduce(communicators, mine, on_late="raise")), sum(mine))


def test_not_a_number_on_a_late_rank_is_its_own_error_and_stays_out() -> None:
    mine = shares(3)
    spoilt = mine[1].copy()
    spoilt[7] = np.nan
    with stragglers(3) as (network, communicators):

        def call(comm: Communicator) -> Any:
            return comm.allreduce(spoilt if comm.rank == 1 else mine[comm.rank], on_late="carry")

        first, error, third = one_late(network, communicators, 1, call)
        assert isinstance(error, NotFiniteError)
        assert (error.rank, error.index) == (1, (7,))
        np.testing.assert_array_equal(first, mine[0] + mine[2])
        np.testing.assert_array_equal(first, third)
        # Nor is its part carried over.
        np.testing.assert_array_equal(good(allreduce(communicators, mine, on_late="carry")), sum(mine))


def test_taking_part_without_a_gradient() -> None:
    mine = shares(3)
    with stragglers(3) as (_, communicators):

        def call(comm: Communicator) -> Any:
            return comm.allreduce(mine[comm.rank], "mean", contribute=comm.rank != 2)

        result = good(on_each(communicators, call))
        np.testing.assert_array_equal(result, ((mine[0] + mine[1]) / 2).astype(np.float32))
        assert [comm.report.missed for comm in communicators] == [0, 0, 4]
        for outcome in on_each(communicators, lambda comm: comm.allreduce(mine[0], on_late="wait", contribute=False)):
            assert isinstance(outcome, UnsupportedError)
            assert "contribute=False is for" in str(outcome)


def test_an_integer_sum_that_does_not_fit_without_the_late_rank_is_an_error_for_it_too() -> None:
    with stragglers(3) as (network, communicators):
        outcomes = one_late(
            network, communicators, 2, lambda comm: comm.allreduce(np.array([1, [100, 100, 1][comm.rank]], np.int8))
        )
        assert [type(outcome) for outcome in outcomes] == [SumOverflowError] * 3


@pytest.mark.parametrize("op", ["max", "min"])
def test_what_cannot_be_carried_is_said(op: str) -> None:
    with stragglers(2) as (_, communicators):
        for outcome in on_each(communicators, lambda comm: comm.allreduce(np.ones(3), op, on_late="carry")):
            assert isinstance(outcome, UnsupportedError)
        for outcome in on_each(communicators, lambda comm: comm.allreduce(np.ones(3, np.int32), on_late="carry")):
            assert isinstance(outcome, UnsupportedError)
            assert "on_late='carry'" in str(outcome)


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
                return comm.allreduce(share(comm.rank, step, size), on_late="carry")

            outcomes = on_each(communicators, call) if who is None else one_late(network, communicators, who, call)
            total += good(outcomes)
        given_ = sum(share(rank, step, size) for rank in range(WORKERS) for step in range(len(late) + 1))
        np.testing.assert_array_equal(total, given_)


def test_calls_that_overlap_carry_exactly_once() -> None:
    """Two calls in progress at once: what the first misses is known only when the second has begun."""
    size, rounds = 700, 3
    with stragglers(WORKERS) as (network, communicators):

        def pair(comm: Communicator, first: int) -> Any:
            works = [comm.allreduce_async(share(comm.rank, step, size), on_late="carry") for step in range(first, first + 2)]
            return sum(work.wait().astype(np.float64) for work in works)

        total: Any = np.zeros(size, np.float64)
        for turn in range(rounds):
            total += good(one_late(network, communicators, turn % WORKERS, partial(pair, first=2 * turn)))
        total += good(allreduce(communicators, [share(rank, 99, size) for rank in range(WORKERS)], on_late="carry"))
        steps = [*range(2 * rounds), 99]
        given_ = sum(share(rank, step, size) for rank in range(WORKERS) for step in steps)
        np.testing.assert_array_equal(total, given_)


def test_calls_of_another_kind_are_left_alone() -> None:
    with stragglers(WORKERS) as (network, communicators):
        one_late(network, communicators, 1, lambda comm: comm.allreduce(share(comm.rank, 0, 10), on_late="carry"))
        for options in ({"on_late": "accept"}, {"on_late": "carry", "op": "mean"}):
            mine = [np.full(10, 3.0, np.float32)] * WORKERS
            sums = 3.0 if "op" in options else 9.0
            assert good(allreduce(communicators, mine, **options)).tolist() == [sums] * 10
        mine = [np.zeros(10, np.float32)] * WORKERS
        np.testing.assert_array_equal(good(allreduce(communicators, mine, on_late="carry")), share(1, 0, 10))


def test_a_call_that_is_given_up_keeps_what_it_took_along() -> None:
    with stragglers(WORKERS) as (network, communicators):
        one_late(network, communicators, 1, lambda comm: comm.allreduce(share(comm.rank, 0, 10), on_late="carry"))
        spoilt = [np.ones(10, np.float32), np.ones(10, np.float32), np.full(10, np.nan, np.float32)]
        outcomes = allreduce(communicators, spoilt, on_late="carry")
        assert [type(outcome) for outcome in outcomes] == [AbortedError, AbortedError, NotFiniteError]
        zeros = [np.zeros(10, np.float32)] * WORKERS
        np.testing.assert_array_equal(good(allreduce(communicators, zeros, on_late="carry")), share(1, 0, 10))


LARGE = np.array([3e38, -3e38], np.float32)


def zeros(communicators: list[Communicator]) -> Any:
    return good(allreduce(communicators, [np.zeros(2, np.float32)] * WORKERS, on_late="carry")).tolist()


def test_what_overflows_with_what_was_carried_is_not_finite() -> None:
    """Each alone is finite, what would be sent is not; what was carried waits for a call that has room for it."""
    with stragglers(WORKERS) as (network, communicators):
        one_late(network, communicators, 1, lambda comm: comm.allreduce(LARGE * (comm.rank == 1), on_late="carry"))
        given_ = [np.ones(2, np.float32), LARGE, np.ones(2, np.float32)]
        outcomes = allreduce(communicators, given_, on_late="carry")
        assert [type(outcome) for outcome in outcomes] == [AbortedError, NotFiniteError, AbortedError]
        assert (outcomes[1].rank, outcomes[1].index) == (1, (0,))
        assert "carried" in str(outcomes[1])
        assert zeros(communicators) == LARGE.tolist()
        assert zeros(communicators) == [0.0, 0.0]


def test_a_late_rank_whose_carry_overflows_keeps_only_what_it_had() -> None:
    with stragglers(WORKERS) as (network, communicators):

        def late() -> list[type]:
            given_ = [LARGE * (rank == 1) for rank in range(WORKERS)]
            outcomes = one_late(network, communicators, 1, lambda comm: comm.allreduce(given_[comm.rank], on_late="carry"))
            return [type(outcome) for outcome in outcomes]

        assert late() == [np.ndarray] * 3
        assert late() == [np.ndarray, NotFiniteError, np.ndarray]
        assert zeros(communicators) == LARGE.tolist()


def test_carries_of_calls_that_overlap_and_overflow_are_an_error_once() -> None:
    """Their sum is not a number that any call could send."""
    with stragglers(WORKERS) as (network, communicators):

        def pair(comm: Communicator) -> Any:
            with comm._engine.lock:  # no rank drives the first to its end before the second begins
                works = [comm.allreduce_async(LARGE * (comm.rank == 1), on_late="carry") for _ in range(2)]
            return [work.wait() for work in works]

        one_late(network, communicators, 1, pair)
        outcomes = allreduce(communicators, [np.zeros(2, np.float32)] * WORKERS, on_late="carry")
        assert [type(outcome) for outcome in outcomes] == [AbortedError, NotFiniteError, AbortedError]
        assert zeros(communicators) == [0.0, 0.0]
