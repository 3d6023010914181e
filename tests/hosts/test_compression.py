"""Compressed sums: what one call loses is bounded, many calls together lose nothing, and all ranks hold the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.compression import Rotated, TopBlocks, _hadamard
from netsum.errors import Aborted, NotFinite, Unsupported

from tests.hosts.calls import Array, data, good, on_each, ranks
from tests.hosts.combiners import combiner  # noqa: F401 - each test by a switch and without

COMPRESSORS: list[Any] = [
    lambda comm: Rotated(comm, 8),
    lambda comm: Rotated(comm, 4),
    lambda comm: TopBlocks(comm, 0.1),
]


def repeated(make: Any, arrays: list[Array], steps: int, op: str = "sum") -> list[Array]:
    """The results of so many calls with the same arrays."""
    with ranks(len(arrays)) as communicators:
        compressors = [make(comm) for comm in communicators]
        return [
            good(on_each(communicators, lambda comm: compressors[comm.rank].allreduce(arrays[comm.rank], op)))
            for _ in range(steps)
        ]


def test_the_transform_is_its_own_inverse_and_keeps_lengths() -> None:
    rows = data("float32", (3, 64), 1, 1)[0]
    there = _hadamard(rows)
    np.testing.assert_allclose(np.linalg.norm(there, axis=1), np.linalg.norm(rows, axis=1), rtol=1e-5)
    np.testing.assert_allclose(_hadamard(there), rows, atol=1e-5)
    np.testing.assert_allclose(
        _hadamard(np.eye(2, dtype=np.float32)), np.array([[1, 1], [1, -1]]) / np.sqrt(2), rtol=1e-6
    )


@pytest.mark.parametrize("make", COMPRESSORS, ids=["8 bits", "4 bits", "top blocks"])
@pytest.mark.parametrize("op", ["mean", pytest.param("sum", marks=pytest.mark.full)])
def test_over_many_calls_nothing_is_lost(make: Any, op: str) -> None:
    """Their mean approaches the exact one as the number of calls grows: what is left over stays bounded."""
    arrays = [np.ldexp(each, 3 * rank) for rank, each in enumerate(data("float32", (17, 41), 2, 3))]
    exact = np.sum(arrays, axis=0) / (3 if op == "mean" else 1)
    results = repeated(make, arrays, 64, op)
    errors = [np.linalg.norm(np.mean(results[:steps], axis=0) - exact) for steps in (4, 64)]
    assert errors[1] < errors[0] / 4
    assert errors[1] < 0.1 * np.linalg.norm(exact)


@given(st.sampled_from([4, 8]), st.integers(1, 7), st.integers(1, 3000), st.integers(0, 100))
def test_one_call_is_within_its_levels(bits: int, workers: int, size: int, seed: int) -> None:
    """A whole number of levels arrives, the sum of all ranks' roundings: without a carry, at most n L."""
    arrays = data("float32", (size,), seed, workers)
    exact = np.sum(arrays, axis=0)
    (result,) = repeated(lambda comm: Rotated(comm, bits, error_feedback=False, seed=seed), arrays, 1)
    levels = (2**bits - 1) // (2 * workers)
    loss = np.linalg.norm(result - exact)
    # Each rank is off by less than a level, of at most the largest clip / L, and by what clipping takes.
    assert loss <= sum(np.linalg.norm(each) for each in arrays) * (1 + np.sqrt(2 * np.log(4 * levels)) / levels * 2)
    assert bits == 4 or loss <= 0.35 * np.sqrt(workers) * max(np.linalg.norm(each) for each in arrays)


def test_top_blocks_sends_the_marked_ones_whole() -> None:
    arrays = [np.zeros(160, np.float32), np.ones(160, np.float32)]
    arrays[0][32:48], arrays[1][80:96] = 5, -7
    (result,) = repeated(lambda comm: TopBlocks(comm, 0.1), arrays, 1)
    expected = np.zeros(160, np.float32)
    expected[32:48], expected[80:96] = 6, -7
    np.testing.assert_array_equal(result, expected)


def test_what_cannot_be_compressed() -> None:
    with ranks(2) as (comm, _):
        for words, call in (
            ("bits is 5", lambda: Rotated(comm, 5)),
            ("share is 0", lambda: TopBlocks(comm, 0)),
            ("a sum or mean, not 'max'", lambda: Rotated(comm).allreduce(np.ones(3), "max")),
        ):
            with pytest.raises(Unsupported, match=words):
                call()
    with ranks(8) as communicators, pytest.raises(Unsupported, match="8 ranks are too many for a sum in 4 bits"):
        Rotated(communicators[0], 4)


@pytest.mark.parametrize("make", COMPRESSORS, ids=["8 bits", "4 bits", "top blocks"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_ends_the_call_and_is_not_kept(make: Any, bad: float) -> None:
    arrays = data("float32", (300,), 3, 2)
    with ranks(2) as communicators:
        compressors = [make(comm) for comm in communicators]
        spoilt = [np.where(np.arange(300) == 7, bad, arrays[0]), arrays[1]]
        got = on_each(communicators, lambda comm: compressors[comm.rank].allreduce(spoilt[comm.rank]))
        assert [type(each) for each in got] == [NotFinite, Aborted]
        assert np.isfinite(
            good(on_each(communicators, lambda comm: compressors[comm.rank].allreduce(arrays[comm.rank])))
        ).all()
