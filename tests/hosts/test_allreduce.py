# SPDX-License-Identifier: MIT
"""Calls from end to end, over the model of the switch in memory: results, the same bits on every rank. That sums of integers are
exact is shown in ``test_collectives.py``."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum import Communicator, wait_all
from netsum.wire.schema import Outcome

from tests.hosts.calls import FLOATS, INTEGERS, Array, allreduce, data, good, on_each, over_a_bad_network, ranks
from tests.hosts.combiners import combiner, make_network  # noqa: F401 - each test by a switch and without
from tests.hosts.network import MemoryNetwork
from tests.threads import returned


@given(
    st.integers(1, 4),
    st.sampled_from(FLOATS),
    st.sampled_from(["sum", "mean", "max"]),
    st.sampled_from([(), (0,), (1,), (17, 5), (512,), (3000,)]),
    st.integers(0, 1000),
)
def test_floats_are_within_the_bound(workers: int, dtype: str, op: str, shape: tuple[int, ...], seed: int) -> None:
    arrays = data(dtype, shape, seed, workers)
    stacked = np.stack(arrays).astype(np.float64)
    expected = {"sum": stacked.sum(axis=0), "mean": stacked.mean(axis=0), "max": stacked.max(axis=0, initial=-np.inf)}
    with ranks(workers) as communicators:
        result = good(allreduce(communicators, arrays, op=op))
    assert result.dtype == dtype
    assert result.shape == shape
    if op == "max":
        assert np.array_equal(result, expected["max"])
    else:
        # Quanta of 2^-28 and less below magnitudes of 8, and the rounding to the result's type.
        rounding = {"float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-50}[dtype]
        quanta = 0.0 if dtype == "float64" else workers * 2.0**-26
        assert np.all(np.abs(result.astype(np.float64) - expected[op]) <= np.abs(expected[op]) * 2 * rounding + quanta + 1e-14)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_in_place_into_an_array_and_from_a_view(dtype: str) -> None:
    arrays = data(dtype, (40, 30), 1, 2)
    expected = sum(each.astype(np.float64) for each in arrays)
    with ranks(2) as communicators:
        out = [np.zeros_like(each) for each in arrays]
        results = on_each(communicators, lambda comm: comm.allreduce(arrays[comm.rank], out=out[comm.rank]))
        assert all(result is each for result, each in zip(results, out, strict=True))
        views = allreduce(communicators, [each.T[::2] for each in arrays])
        assert good(views).tobytes() == out[0].T[::2].tobytes()
        in_place = [each.copy() for each in arrays]
        on_each(communicators, lambda comm: comm.allreduce(in_place[comm.rank], out=in_place[comm.rank]))
        assert in_place[0].tobytes() == in_place[1].tobytes() == out[0].tobytes()
    assert np.allclose(out[0].astype(np.float64), expected, rtol=1e-2)


@pytest.mark.parametrize("seed", range(3))
def test_many_calls_over_a_bad_network(seed: int) -> None:
    network = make_network(3)
    arrays = data("int32", (3000,), seed, 3)
    floats = data("float32", (1500,), seed, 3)

    def run(comm: Communicator) -> list[Array]:
        results = []
        for turn in range(8):
            results.append(comm.allreduce(arrays[comm.rank] + turn))
            results.append(comm.allreduce(floats[comm.rank] * (1 + 100 * turn), op="mean", scale="predicted"))
            comm.barrier()
        return results

    with over_a_bad_network(network, 0.02, 10 * seed) as communicators:
        outcomes = returned([partial(run, comm) for comm in communicators])
        sums = [good(list(results)) for results in zip(*outcomes, strict=True)]
        for turn in range(8):
            assert np.array_equal(sums[2 * turn], sum(arrays) + 3 * turn)
        assert communicators[0].stats.redone > 0
        assert sum(comm.stats.retransmissions for comm in communicators) > 0
    if isinstance(network, MemoryNetwork):
        assert not {outcome for (_, outcome) in network.switch.outcomes if outcome >= Outcome.UNKNOWN_JOB}


def test_several_calls_under_way() -> None:
    arrays = [data("float32", (2000,), seed, 2) for seed in range(6)]

    def run(comm: Communicator) -> list[Array]:
        works = [comm.allreduce_async(each[comm.rank]) for each in arrays]
        comm.barrier()  # behind all of them
        assert all(work.done() for work in works)
        return wait_all(works)

    with ranks(2) as communicators:
        outcomes = on_each(communicators, run)
    for index, each in enumerate(arrays):
        result = good([outcome[index] for outcome in outcomes])
        assert np.allclose(result, each[0] + each[1], atol=1e-5)


def test_waiting_for_so_long_only_leaves_the_call_under_way() -> None:
    with ranks(2) as communicators:
        work = communicators[0].allreduce_async(np.arange(5))
        with pytest.raises(TimeoutError, match="still in progress"):
            work.wait(timeout=0.02)
        assert not work.done()
        other = communicators[1].allreduce(np.arange(5))
        assert np.array_equal(work.wait(), 2 * np.arange(5))
        assert np.array_equal(other, 2 * np.arange(5))


def test_predicted_scales_skip_a_round_trip_and_follow_the_values() -> None:
    arrays = data("float32", (3000,), 3, 2)
    with ranks(2) as communicators:
        for factor in (1.0, 1.0, 1e6, 1e6, 1e-6, 1e-6, 0.0, 1.0):
            scaled = [(each * factor).astype(np.float32) for each in arrays]
            redone = communicators[0].stats.redone
            result = good(allreduce(communicators, scaled, scale="predicted"))
            if factor == 1e6:
                assert np.allclose(result, scaled[0] + scaled[1], atol=1.0)
            if factor == 1.0:
                assert np.allclose(result, scaled[0] + scaled[1], atol=1e-5)
            if factor == 1e6 and redone == 0:
                assert communicators[0].stats.redone > 0  # grew beyond the prediction
        # The scale has come down again: the small values were not all rounded away.
        small = [(each * 1e-3).astype(np.float32) for each in arrays]
        for _ in range(3):
            result = good(allreduce(communicators, small, scale="predicted"))
        assert np.allclose(result, small[0] + small[1], rtol=1e-3, atol=1e-8)
