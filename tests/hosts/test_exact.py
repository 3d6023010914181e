# SPDX-License-Identifier: MIT
"""``exact=True``: the true sum, rounded once, whatever the values, the ranks and their order; with a switch and without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from netsum.errors import AbortedError, MismatchError, UnsupportedError

from tests.hosts.calls import allreduce, good, on_each, ranks
from tests.hosts.combiners import combiner  # noqa: F401 - each test by a switch and without
from tests.hosts.nearest import ALL_FORMATS, expected


@pytest.mark.parametrize("dtype", ALL_FORMATS)
@pytest.mark.parametrize("op", ["sum", pytest.param("mean", marks=pytest.mark.full)])
@pytest.mark.parametrize("size", [1, 5, 6, 7, 1000])
def test_by_calls(dtype: str, op: str, size: int) -> None:
    """Values that an ordinary sum would lose too: tiny numbers beside huge ones that cancel out."""
    rng = np.random.default_rng(size)
    top = 12.0 if dtype == "float16" else 100.0
    arrays = [(rng.normal(size=size) * 2.0 ** rng.uniform(-top, top, size)).astype(dtype) for _ in range(2)]
    arrays += [-arrays[0], (rng.normal(size=size) * 1e-3).astype(dtype)]
    with ranks(4, block_bytes=1024, window=4) as communicators:
        got = good(allreduce(communicators, arrays, op=op, exact=True))
        again = good(allreduce(communicators, arrays[::-1], op=op, exact=True))
        assert communicators[0].report.quantum == 0.0
    want = [expected(each, dtype, 4 if op == "mean" else 1) for each in np.stack(arrays).T.tolist()]
    assert got.tobytes() == again.tobytes() == (np.array(want, dtype) + 0).tobytes()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_what_is_not_finite_is_added_as_ieee_754_does(dtype: str) -> None:
    inf, nan = np.inf, np.nan
    columns = [[inf, 1, 1], [inf, -inf, 1], [1, nan, 1], [-inf, -inf, 1], [1, 2, 3], [nan, inf, inf]]
    arrays = [np.array(row, dtype) for row in np.array(columns).T]
    with ranks(3) as communicators:
        got = good(allreduce(communicators, arrays, exact=True))
    np.testing.assert_array_equal(got.astype(float), [inf, nan, nan, -inf, 6, nan])


def test_an_intermediate_sum_that_overflows_is_not_the_end() -> None:
    column = [1.5e308, 1.5e308, -1.5e308]
    with ranks(3) as communicators:
        assert good(allreduce(communicators, [np.array([each]) for each in column], exact=True)).tolist() == [1.5e308]
        big = good(allreduce(communicators, [np.full(1, sign * 1.5e308) for sign in (1, 1, 0)], exact=True))
        assert big.tolist() == [np.inf]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_part_for_each_rank_or_all_for_one(dtype: str) -> None:
    arrays = [np.array([2.0**60, 1.0, 2.0**-40, 3.0, 5.0], dtype), np.array([-(2.0**60), 2.0**-30, 1.0, 4.0, 6.0], dtype)]
    want = [0.0, 1 + 2.0**-30, 1 + 2.0**-40, 7.0, 11.0]
    if dtype == "float32":
        want[1:3] = [1.0, 1.0]
    with ranks(2) as communicators:
        first, second = on_each(communicators, lambda comm: comm.reduce_scatter(arrays[comm.rank], counts=[2, 3], exact=True))
        assert [*first, *second] == want
        nothing, all_of_it = on_each(communicators, lambda comm: comm.reduce(arrays[comm.rank], root=1, exact=True))
        assert nothing is None
        assert all_of_it.tolist() == want
        outcomes = on_each(communicators, lambda comm: comm.reduce(arrays[0], root=comm.rank, exact=True))
        assert {type(outcome) for outcome in outcomes} == {MismatchError}


def test_integers_and_orders_are_exact_anyway() -> None:
    arrays = [np.arange(5), np.arange(5)]
    with ranks(2) as communicators:
        np.testing.assert_array_equal(good(allreduce(communicators, arrays, exact=True)), 2 * np.arange(5))
        halves = [each / 2 for each in arrays]
        np.testing.assert_array_equal(good(allreduce(communicators, halves, op="max", exact=True)), halves[0])


@pytest.mark.parametrize(
    ("dtype", "options", "complaint"),
    [
        ("float32", {"op": "product"}, "not for op='product'"),
        ("float32", {"bits": 8, "scale": "predicted"}, "leave scale, bits out"),
        ("float32", {"rounding": "stochastic"}, "leave rounding out"),
    ],
)
def test_what_cannot_be_exact(dtype: str, options: dict[str, Any], complaint: str) -> None:
    with ranks(2) as communicators:
        for outcome in allreduce(communicators, [np.ones(3, dtype)] * 2, exact=True, **options):
            assert isinstance(outcome, UnsupportedError)
            assert complaint in str(outcome)


def test_a_rank_that_cannot_take_the_result_leaves_the_others_usable() -> None:
    with ranks(2) as communicators:
        arrays = [np.ones(3000, np.float32)] * 2
        out = [np.empty(1, np.float32), None]
        first, second = on_each(communicators, lambda comm: comm.allreduce(arrays[comm.rank], out=out[comm.rank], exact=True))
        assert isinstance(first, UnsupportedError)
        assert isinstance(second, AbortedError)
        assert good(allreduce(communicators, arrays, exact=True))[0] == 2
