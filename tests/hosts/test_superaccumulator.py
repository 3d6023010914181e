# SPDX-License-Identifier: MIT
"""Sums through lanes that are wide enough for the whole range of a type are the true ones, rounded once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.collectives.options import ReductionOptions
from netsum.errors import UnsupportedError
from netsum.numeric.superaccumulator import MOST_RANKS, ExactLanes

from tests.hosts.calls import Array
from tests.hosts.nearest import FORMATS, expected, finfo

WORKERS = st.one_of(st.integers(1, 9), st.sampled_from([16, 127, 128, 129, 255]))


def floats(dtype: str) -> st.SearchStrategy[float]:
    width = 16 if dtype == "float16" else 32
    return st.floats(width=width)  # type: ignore[arg-type]


MANY = 60
"""Blocks whose numbers are not decoded one by one."""


def summed(values: Array, mean: bool = False) -> Array:
    """The sum of ``(workers, numbers)`` through lanes added as integers, as the switch does."""
    workers, numbers = values.shape
    lanes = ExactLanes(workers, values.dtype, mean)
    width = -(-numbers // lanes.per_chunk) * lanes.per_chunk
    total: Array = np.zeros(0, np.uint64)
    for mine in values:
        row = np.zeros((1, width), values.dtype)
        row[0, :numbers] = mine
        sent = lanes.encode(row, range(1)).astype(np.uint64)
        total = sent if not total.size else total + sent
    count = np.array([workers])
    few: Array = lanes.decode(total, range(1), count, count)[:, :numbers]
    counts = np.repeat(count, MANY)
    many = lanes.decode(np.repeat(total, MANY, axis=0), range(MANY), counts, counts)[:, :numbers]
    np.testing.assert_array_equal(
        many.astype(float), np.repeat(few, MANY, axis=0).astype(float), "few numbers are decoded as many are"
    )
    found: Array = few[0]
    return found


@given(st.data(), WORKERS, st.sampled_from(list(FORMATS)), st.booleans())
def test_sums_and_means_are_correctly_rounded(data: st.DataObject, workers: int, dtype: str, mean: bool) -> None:
    few = data.draw(st.lists(st.lists(floats(dtype), min_size=7, max_size=7), min_size=1, max_size=min(workers, 6)))
    values = np.array([few[rank % len(few)] for rank in range(workers)], dtype)
    for column, got in zip(values.T.tolist(), summed(values, mean).tolist(), strict=True):
        want = expected(column, dtype, workers if mean else 1)
        assert got == want or (np.isnan(got) and np.isnan(want)), (column, got, want)


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 128, 255])
@pytest.mark.parametrize("dtype", FORMATS)
def test_the_largest_numbers_do_not_carry(workers: int, dtype: str) -> None:
    ends = finfo(dtype)
    column = [float(ends.max), float(-ends.max), float(ends.smallest_subnormal), -0.0, float("inf"), float("nan")]
    values = np.array([column] * workers, dtype)
    with np.errstate(over="ignore"):
        want = [expected(each, dtype, 1) for each in values.T.tolist()]
    np.testing.assert_array_equal(summed(values).astype(float), want)
    alternating = values[:, :4] * np.where(np.arange(workers) % 2, -1, 1).astype(dtype)[:, None]
    want = [expected(each, dtype, 1) for each in alternating.T.tolist()]
    np.testing.assert_array_equal(summed(alternating).astype(float), want)


def test_more_ranks_than_a_counter_can_count_are_refused() -> None:
    options, array = ReductionOptions(exact=True), np.ones(4, np.float32)
    assert options.check(array, workers=MOST_RANKS, degrade=False).exact
    with pytest.raises(UnsupportedError, match="255 ranks at most, and the job has 256"):
        options.check(array, workers=MOST_RANKS + 1, degrade=False)
