"""``exact=True``: the true sum, rounded once, whatever the values, the ranks and their order; with a switch and without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from netsum.errors import AbortedError, UnsupportedError

from tests.hosts.calls import allreduce, good, on_each, ranks
from tests.hosts.combiners import combiner  # noqa: F401 - each test by a switch and without
from tests.hosts.nearest import FORMATS, expected


@pytest.mark.parametrize("dtype", FORMATS)
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


def test_what_is_not_finite_is_added_as_ieee_754_does() -> None:
    inf, nan = np.inf, np.nan
    columns = [[inf, 1, 1], [inf, -inf, 1], [1, nan, 1], [-inf, -inf, 1], [1, 2, 3], [nan, inf, inf]]
    arrays = [np.array(row, np.float32) for row in np.array(columns).T]
    with ranks(3) as communicators:
        got = good(allreduce(communicators, arrays, exact=True))
    np.testing.assert_array_equal(got, np.array([inf, nan, nan, -inf, 6, nan], np.float32))


def test_integers_and_orders_are_exact_anyway() -> None:
    arrays = [np.arange(5), np.arange(5)]
    with ranks(2) as communicators:
        np.testing.assert_array_equal(good(allreduce(communicators, arrays, exact=True)), 2 * np.arange(5))
        halves = [each / 2 for each in arrays]
        np.testing.assert_array_equal(good(allreduce(communicators, halves, op="max", exact=True)), halves[0])


@pytest.mark.parametrize(
    ("dtype", "options", "complaint"),
    [
        ("float64", {}, "of float16 and float32, not for op='sum' of float64"),
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
