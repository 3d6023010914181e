# SPDX-License-Identifier: MIT
"""nonfinite="propagate": a NaN or an infinity becomes what IEEE arithmetic gives, and nothing else changes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from netsum import AbortedError, Communicator, MismatchError, NotFiniteError, UnsupportedError

from tests.hosts.calls import Array, allreduce, good, on_each, ranks
from tests.hosts.combiners import combiner

assert combiner
RANKS = 3
SPECIAL = np.array([np.nan, np.inf, -np.inf])
LANES = 256  # float32 of a block of 1024 bytes


def special(seed: int, dtype: Any, shape: tuple[int, ...], share: float) -> tuple[list[Array], list[Array]]:
    """Arrays of all ranks with a share of values that are not finite, and the same with zeros in their place. Magnitudes differ
    from rank to rank, and some blocks are zeros apart from them."""
    rng = np.random.default_rng(seed)
    plain = [(rng.standard_normal(shape) * 4.0 ** (rank - 1)).astype(dtype) for rank in range(RANKS)]
    for array in plain:
        array.reshape(-1)[LANES : 3 * LANES] = 0
    given = [array.copy() for array in plain]
    for rank, array in enumerate(given):
        where = rng.random(shape) < share
        array[where] = rng.choice(SPECIAL, int(where.sum())).astype(dtype)
        plain[rank][where] = 0
    return given, plain


def ieee_sum(arrays: list[Array]) -> tuple[Array, Array]:
    """The sum, and where an array is not finite."""
    with np.errstate(invalid="ignore"):
        total = np.asarray(np.sum([array.astype(np.float64) for array in arrays], axis=0))
    return total, np.any([~np.isfinite(array) for array in arrays], axis=0)


def check(results: Array, expected: Array, clean: Array, bad: Array) -> None:
    """``results`` where an input was not finite are as ``expected``, elsewhere bit for bit ``clean``."""
    assert np.array_equal(results[bad], expected[bad], equal_nan=True)
    assert results[~bad].tobytes() == clean[~bad].tobytes()


@pytest.mark.parametrize(
    ("dtype", "size", "share"),
    [
        (np.float16, 1500, 0.5),
        (ml_dtypes.bfloat16, 1500, 0.01),
        (np.float64, 1500, 0.01),
        (np.float32, 1500, 0.0),
        (np.float32, 70 * LANES + 9, 0.0005),  # more blocks than the first has room for codes
    ],
)
def test_sums_are_ieee_where_a_value_is_not_finite_and_exact_elsewhere(dtype: Any, size: int, share: float) -> None:
    given, plain = special(1, dtype, (size,), share)
    expected, bad = ieee_sum(given)
    with ranks(RANKS) as communicators:
        for op, divisor in (("sum", 1), ("mean", RANKS)):
            clean = good(allreduce(communicators, plain, op=op))
            got = good(allreduce(communicators, given, op=op, nonfinite="propagate"))
            check(got, (expected / divisor).astype(dtype), clean, bad)
        blocks = communicators[0].report.blocks
        allreduce(communicators, plain, op="mean", nonfinite="propagate")
        assert communicators[0].report.blocks <= blocks


def test_predicted_scales_find_values_that_are_not_finite_afterwards() -> None:
    with ranks(RANKS) as communicators:
        for seed, share in enumerate((0.0, 0.001, 0.0, 0.3, 0.001)):
            given, plain = special(seed, np.float32, (2000,), share)
            expected, bad = ieee_sum(given)
            got = good(allreduce(communicators, given, scale="predicted", nonfinite="propagate"))
            assert np.array_equal(got[bad], expected[bad], equal_nan=True)
            exact = np.asarray(np.sum(plain, axis=0, dtype=np.float64))
            quantum = communicators[0].report.quantum
            assert np.abs(got[~bad] - exact[~bad]).max() <= RANKS / 2 * quantum + np.abs(exact).max() * 2.0**-23


def test_reduce_and_reduce_scatter() -> None:
    given, plain = special(2, np.float32, (9, 200), 0.01)
    expected, bad = ieee_sum(given)

    def call(comm: Communicator) -> list[Array | None]:
        mine, zeros = given[comm.rank], plain[comm.rank]
        reduced = comm.reduce(mine, 1, nonfinite="propagate"), comm.reduce(zeros, 1)
        return [*reduced, comm.reduce_scatter(mine, nonfinite="propagate"), comm.reduce_scatter(zeros)]

    with ranks(RANKS) as communicators:
        outcomes = on_each(communicators, call)
    scattered, clean = (np.concatenate([outcome[index] for outcome in outcomes]) for index in (2, 3))
    check(scattered, expected, clean, bad)
    assert [outcome[0] is None for outcome in outcomes] == [True, False, True]
    check(outcomes[1][0], expected, outcomes[1][1], bad)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_minimum_maximum_and_product(dtype: Any) -> None:
    given, _ = special(3, dtype, (1000,), 0.05)
    given[0][7] = -np.array(np.nan, dtype)
    wide = np.array(given, np.float64)
    with ranks(RANKS) as communicators, np.errstate(invalid="ignore"):
        for op, function in (("min", np.min), ("max", np.max), ("product", np.prod)):
            got = good(allreduce(communicators, given, op=op, nonfinite="propagate"))
            assert np.array_equal(got, function(wide, axis=0).astype(dtype), equal_nan=True), op


def test_what_is_said_of_calls_that_cannot_be() -> None:
    values = [np.array([1.0, np.inf]), np.array([1.0, 2.0])]
    with ranks(2) as communicators:
        assert [type(each) for each in allreduce(communicators, values)] == [NotFiniteError, AbortedError]
        wrong = allreduce(communicators, values, nonfinite="perhaps")
        assert all("nonfinite 'perhaps' is not one of raise, propagate" in str(each) for each in wrong)
        # Integers have no such values.
        assert good(allreduce(communicators, [np.ones(2, int)] * 2, nonfinite="propagate")).tolist() == [2, 2]
        differ = on_each(communicators, lambda comm: comm.allreduce(np.ones(3), nonfinite=["raise", "propagate"][comm.rank]))
        assert [type(each) for each in differ] == [MismatchError, MismatchError]
    with ranks(2, block_exp_ms=1000.0, quorum=1) as communicators:
        refused = allreduce(communicators, values, nonfinite="propagate")
        assert all(isinstance(each, UnsupportedError) and "on_late='wait'" in str(each) for each in refused)
        both = good(allreduce(communicators, values, nonfinite="propagate", on_late="wait"))
        assert both.tolist() == [2.0, np.inf]
