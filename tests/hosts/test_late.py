"""A rank is late in a job that degrades: what it and the others get, under each policy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from netsum.communicator import Communicator
from netsum.errors import Degraded, DoesNotFit, NotFinite, Unsupported

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
            assert (report.blocks, report.degraded, report.src_cnt_min) == (4, 4, 2)
            assert (report.missed, report.lost) == (4 if comm.rank == late else 0, 0)
            assert report.unfit == 0
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
        works = [communicators[rank].allreduce_async(mine[rank], op, timeout=10.0) for rank in (0, 1)]
        while network.age() == 0:
            works[0].finished(0.001)
        works.append(communicators[2].allreduce_async(mine[2], op, timeout=10.0))
        while not works[2].finished(0.001) and communicators[2].stats.packets_sent < 4:
            pass
        network.lost = lambda _rank, _header: False
        result = good([work.wait() for work in works])
        both, all_three = (2.0, 3.0) if op == "sum" else (1.0, 1.0)
        assert set(result[:WIDTH].tolist()) == {all_three}
        assert set(result[WIDTH : 2 * WIDTH].tolist()) == {both}
        assert set(result[2 * WIDTH :].tolist()) == {all_three}
        report = communicators[2].report
        assert (report.unfit, report.missed, report.degraded) == (1, 1, 1)
        assert [work.report.degraded for work in works] == [1, 1, 1]
        assert [work.report.unfit for work in works] == [0, 0, 1]


def test_wait_waits_also_here() -> None:
    mine = shares(3)
    with stragglers(3) as (network, communicators):
        with network.ageing():
            works = [comm.allreduce_async(mine[comm.rank], late="wait") for comm in communicators[:2]]
            assert not any(work.finished(0.3) for work in works)
            last = communicators[2].allreduce(mine[2], late="wait")
            result = good([work.wait() for work in works] + [last])
        np.testing.assert_array_equal(result, sum(mine))
        assert all(comm.report.degraded == 0 for comm in communicators)
        with network.ageing():
            barriers = on_each(communicators, Communicator.barrier)
        assert barriers == [None] * 3


def test_raise_raises_on_every_rank_that_has_a_partial_result() -> None:
    mine = shares(3)
    with stragglers(3) as (network, communicators):
        outcomes = one_late(network, communicators, 0, lambda comm: comm.allreduce(mine[comm.rank], late="raise"))
        for outcome in outcomes:
            assert isinstance(outcome, Degraded)
            assert (outcome.report.degraded, outcome.report.src_cnt_min) == (4, 2)
            assert "4 of 4" in str(outcome)
        np.testing.assert_array_equal(good(allreduce(communicators, mine, late="raise")), sum(mine))


def test_not_a_number_on_a_late_rank_is_its_own_error_and_stays_out() -> None:
    mine = shares(3)
    spoilt = mine[1].copy()
    spoilt[7] = np.nan
    with stragglers(3) as (network, communicators):

        def call(comm: Communicator) -> Any:
            return comm.allreduce(spoilt if comm.rank == 1 else mine[comm.rank], late="carry")

        first, error, third = one_late(network, communicators, 1, call)
        assert isinstance(error, NotFinite)
        assert (error.rank, error.index) == (1, (7,))
        np.testing.assert_array_equal(first, mine[0] + mine[2])
        np.testing.assert_array_equal(first, third)
        # Nor is its part carried over.
        np.testing.assert_array_equal(good(allreduce(communicators, mine, late="carry")), sum(mine))


def test_taking_part_without_a_gradient() -> None:
    mine = shares(3)
    with stragglers(3) as (_, communicators):

        def call(comm: Communicator) -> Any:
            return comm.allreduce(mine[comm.rank], "mean", give=comm.rank != 2)

        result = good(on_each(communicators, call))
        np.testing.assert_array_equal(result, ((mine[0] + mine[1]) / 2).astype(np.float32))
        assert [comm.report.missed for comm in communicators] == [0, 0, 4]
        for outcome in on_each(communicators, lambda comm: comm.allreduce(mine[0], late="wait", give=False)):
            assert isinstance(outcome, Unsupported)
            assert "give=False is for" in str(outcome)


def test_an_integer_sum_that_does_not_fit_without_the_late_rank_is_an_error_for_it_too() -> None:
    with stragglers(3) as (network, communicators):
        outcomes = one_late(
            network, communicators, 2, lambda comm: comm.allreduce(np.array([1, [100, 100, 1][comm.rank]], np.int8))
        )
        assert [type(outcome) for outcome in outcomes] == [DoesNotFit] * 3


@pytest.mark.parametrize("op", ["max", "min"])
def test_what_cannot_be_carried_is_said(op: str) -> None:
    with stragglers(2) as (_, communicators):
        for outcome in on_each(communicators, lambda comm: comm.allreduce(np.ones(3), op, late="carry")):
            assert isinstance(outcome, Unsupported)
        for outcome in on_each(communicators, lambda comm: comm.allreduce(np.ones(3, np.int32), late="carry")):
            assert isinstance(outcome, Unsupported)
            assert "late='carry'" in str(outcome)
