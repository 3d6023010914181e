# SPDX-License-Identifier: MIT
"""Fewer bytes: sums in 8 or 16 bit lanes, blocks of zeros that are not sent, and compressed sums, of which one call loses a
bounded part and many calls together nothing."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum import AbortedError, Communicator, MismatchError, NotFiniteError, UnsupportedError
from netsum.compression import Rotated, TopBlocks, _hadamard
from netsum.wire.schema import HEADER_BYTES
from netsum_testbed.verify.reference import bias

from tests.hosts.calls import Array, data, good, on_each, ranks
from tests.hosts.combiners import combiner, make_network  # noqa: F401 - each test by a switch and without
from tests.hosts.patience import patient_ranks
from tests.hosts.test_predicted import block_exponents
from tests.threads import together


@given(
    st.integers(1, 9),
    st.sampled_from([8, 16]),
    st.sampled_from(["sum", "mean"]),
    st.sampled_from(["nearest", "stochastic"]),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from([1, 511, 513, 4000]),
    st.integers(0, 1000),
)
def test_the_error_is_within_the_bound(workers: int, bits: int, op: str, rounding: str, dtype: str, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    spread = np.exp2(rng.integers(-20, 20, -(-size // 300)).repeat(300)[:size].astype(np.float64))
    arrays = [(each * spread).astype(dtype) for each in data("float64", (size,), seed, workers)]
    with ranks(workers) as communicators:
        result = good(on_each(communicators, lambda comm: comm.allreduce(arrays[comm.rank], op, bits=bits, rounding=rounding)))
    true = np.sum(np.stack(arrays).astype(np.float64), axis=0) / (workers if op == "mean" else 1)
    quanta = (workers if op == "sum" else 1) * (1.0 if rounding == "stochastic" else 0.5)
    # A quantum is 2^(e+1) / B at most, and 0 in a block of zeros.
    bound = quanta * np.exp2(block_exponents(arrays, 1024 * 8 // bits) + 1.0) / bias(bits, workers)
    assert np.all(np.abs(result - true) <= bound + np.abs(true) * 2.0**-23)


def test_sixteen_bits_of_a_whole_number_are_exact() -> None:
    given = np.arange(-100, 100, dtype=np.float16)
    with ranks(3) as communicators:
        result = good(on_each(communicators, lambda comm: comm.allreduce(given + np.float16(comm.rank), bits=16)))
    assert result.dtype == np.float16
    assert np.array_equal(result, 3 * given + 3)


@pytest.mark.full
def test_stochastic_rounding_is_right_on_average() -> None:
    # Values between two quanta; what nearest rounding does to them, it does in every call.
    values = np.concatenate([[1.0], np.linspace(0.001, 0.03, 255)]).astype(np.float32)
    calls = 400

    def run(comm: Communicator) -> tuple[Array, Array]:
        near, dithered = (
            np.mean([comm.allreduce(values, bits=8, rounding=rounding) for _ in range(number)], axis=0)
            for rounding, number in (("nearest", 2), ("stochastic", calls))
        )
        return near, dithered

    with ranks(2) as communicators:
        (near, dithered), other = on_each(communicators, run)
    assert np.array_equal(dithered, other[1])
    quantum = 2.0 ** (1 - 5)  # magnitudes below 2^1; B = 63, b = 5
    assert np.abs(near[1:] - 2 * values[1:]).max() > 0.9 * quantum
    # A rank's rounding is a coin of variance at most 1/4 quantum^2: two of them, `calls` times, six standard deviations.
    assert np.abs(dithered - 2 * values).max() < 6 * quantum * np.sqrt(2 / 4 / calls)
    # ... and over all values: no bias.
    assert abs(float(np.mean(dithered - 2 * values))) < 6 * quantum * np.sqrt(2 / 4 / calls / 255)


def test_stochastic_rounding_can_be_repeated_and_differs_from_call_to_call() -> None:
    values = data("float32", (500,), 1, 2)

    def run(comm: Communicator) -> list[Any]:
        return [comm.allreduce(values[comm.rank], bits=8, rounding="stochastic") for _ in range(2)]

    outcomes = []
    for _ in range(2):
        with ranks(2) as communicators:
            outcomes.append(on_each(communicators, run)[0])
    first, second = outcomes
    assert [each.tobytes() for each in first] == [each.tobytes() for each in second]
    assert first[0].tobytes() != first[1].tobytes()


@pytest.mark.parametrize(("dtype", "bits", "part"), [("float32", 16, 2), ("float32", 8, 4), ("float64", 16, 4)])
def test_bytes_are_halved_and_quartered(dtype: str, bits: int, part: int) -> None:
    given = np.ones(16 * 1024, dtype)

    def run(comm: Communicator, **options: Any) -> Array:
        before = comm.stats.bytes_sent, comm.stats.bytes_received
        comm.allreduce(given, **options)
        return np.array([comm.stats.bytes_sent - before[0], comm.stats.bytes_received - before[1]])

    with patient_ranks(2) as communicators:
        whole, _ = on_each(communicators, run)
        short, _ = on_each(communicators, lambda comm: run(comm, bits=bits))
    lanes = 16 * 1024 * np.dtype(dtype).itemsize
    assert np.all(whole >= lanes)
    assert np.all(short >= lanes // part)
    assert np.all(short <= lanes // part * 1.06)  # headers, and the agreement


def test_lanes_that_are_too_narrow_for_so_many_ranks() -> None:
    network = make_network(128)
    with (
        Communicator(network.descriptors[0], network.transports[0]) as comm,
        pytest.raises(UnsupportedError, match="128 ranks are too many"),
    ):
        comm.allreduce(np.ones(3), bits=8, timeout=0.05)


def sparse(workers: int, blocks: int, full: set[int], dtype: str, width: int) -> list[Array]:
    """Arrays of zeros except for some blocks, in each of which one rank has other values."""
    arrays = [np.zeros(blocks * width, dtype) for _ in range(workers)]
    for number in full:
        arrays[number % workers][number * width + number % width] = number + 1
    return arrays


@given(
    st.integers(1, 4),
    st.sets(st.integers(0, 149), max_size=12),
    st.sampled_from(["float16", "float32", "float64"]),
    st.sampled_from([None, 16]),
)
def test_blocks_of_zeros_are_skipped_and_counted(workers: int, full: set[int], dtype: str, bits: int | None) -> None:
    width = 1024 * 8 // (bits or (64 if dtype == "float64" else 32))
    arrays = sparse(workers, 150, full, dtype, width)  # more blocks than codes in the first block, and several groups
    with patient_ranks(workers) as communicators:
        result = good(on_each(communicators, lambda comm: comm.allreduce(arrays[comm.rank], bits=bits)))
        for comm in communicators:
            assert (comm.report.skipped, comm.report.blocks) == (150 - len(full), len(full))
            # The blocks that are not empty; one or two small ones; headers.
            assert comm.stats.bytes_sent == len(full) * (1024 + HEADER_BYTES) + (256 + HEADER_BYTES) * 2
    assert np.array_equal(result, sum(arrays))


def test_what_is_skipped_in_a_part_is_zero_there() -> None:
    with ranks(2) as communicators:
        arrays = sparse(2, 8, {2, 5}, "float32", 256)
        got = on_each(communicators, lambda comm: comm.reduce_scatter(arrays[comm.rank], counts=[700, 1348]))
        assert np.array_equal(np.concatenate(got), arrays[0] + arrays[1])
        assert communicators[0].report.skipped == 7  # of 3 + 6 blocks, two are not empty: 2 and 5 in parts of their own
        reduced = on_each(communicators, lambda comm: comm.reduce(arrays[comm.rank], op="mean", root=1))
        assert np.array_equal(reduced[1], (arrays[0] + arrays[1]) / 2)


def test_nothing_but_zeros_costs_the_agreement_alone() -> None:
    with patient_ranks(3) as communicators:
        result = good(on_each(communicators, lambda comm: comm.allreduce(np.full(1000, -0.0, np.float32))))
        assert not result.any()
        assert not np.signbit(result).any()
        assert {comm.stats.packets_sent for comm in communicators} == {1}


@pytest.mark.parametrize("scale", ["agreed", "predicted"])
def test_what_rounding_keeps_out_is_the_rest(scale: str) -> None:
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(700).astype(np.float32) * 10.0**rank for rank in range(3)]
    arrays[0][300:600] = arrays[1][300:600] = arrays[2][300:600] = 0
    rests = [np.full(700, 9.0, np.float32) for _ in range(3)]
    with ranks(3) as communicators:
        for step in range(3):
            values = [array * (step + 1) for array in arrays]
            sums = good(
                on_each(
                    communicators,
                    lambda comm: comm.allreduce(values[comm.rank], bits=8, scale=scale, residual=rests[comm.rank]),  # noqa: B023
                )
            )
            carried = np.sum(values, axis=0, dtype=np.float64) - np.sum(rests, axis=0, dtype=np.float64)
            assert np.allclose(sums, carried, rtol=1e-6, atol=1e-6)
            assert all(np.abs(rest).max() <= communicators[0].report.quantum / 2 for rest in rests)
        wrong = on_each(communicators, lambda comm: comm.allreduce(np.ones(3), residual=np.ones(4)))
        assert all("contiguous array of floats of shape (3,)" in str(each) for each in wrong)
        wrong = on_each(communicators, lambda comm: comm.allreduce(np.ones(3), "max", residual=np.ones(3)))
        assert all("op='max' of float64" in str(each) for each in wrong)


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
    np.testing.assert_allclose(_hadamard(np.eye(2, dtype=np.float32)), np.array([[1, 1], [1, -1]]) / np.sqrt(2), rtol=1e-6)


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
    with ranks(2) as communicators:
        for words, make in (
            ("bits is 5", lambda comm: Rotated(comm, 5)),
            ("share is 0", lambda comm: TopBlocks(comm, 0)),
        ):
            with pytest.raises(UnsupportedError, match=words):
                make(communicators[0])
        for error in on_each(communicators, lambda comm: Rotated(comm).allreduce(np.ones(3), "max")):
            assert isinstance(error, UnsupportedError)
            assert "a sum or mean, not 'max'" in str(error)
    with ranks(8) as communicators, pytest.raises(UnsupportedError, match="8 ranks are too many for a sum in 4 bits"):
        Rotated(communicators[0], 4)


@pytest.mark.parametrize("make", COMPRESSORS, ids=["8 bits", "4 bits", "top blocks"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_ends_the_call_and_is_not_kept(make: Any, bad: float) -> None:
    arrays = data("float32", (300,), 3, 2)
    with ranks(2) as communicators:
        compressors = [make(comm) for comm in communicators]
        spoilt = [np.where(np.arange(300) == 7, bad, arrays[0]), arrays[1]]
        got = on_each(communicators, lambda comm: compressors[comm.rank].allreduce(spoilt[comm.rank]))
        assert [type(each) for each in got] == [NotFiniteError, AbortedError]
        assert np.isfinite(good(on_each(communicators, lambda comm: compressors[comm.rank].allreduce(arrays[comm.rank])))).all()


DIFFERENT: dict[str, tuple[Any, Any]] = {
    "op": (
        lambda comm: Rotated(comm).allreduce(np.ones(1000), "sum"),
        lambda comm: Rotated(comm).allreduce(np.ones(1000)),
    ),
    "size, within a row": (
        lambda comm: Rotated(comm, 4).allreduce(np.ones(1000)),
        lambda comm: Rotated(comm, 4).allreduce(np.ones(1020)),
    ),
    "shape": (
        lambda comm: Rotated(comm).allreduce(np.ones((10, 100))),
        lambda comm: Rotated(comm).allreduce(np.ones((100, 10))),
    ),
    "type": (
        lambda comm: Rotated(comm).allreduce(np.ones(10)),
        lambda comm: Rotated(comm).allreduce(np.ones(10, np.float32)),
    ),
    "seed": (
        lambda comm: Rotated(comm, seed=1).allreduce(np.ones(9)),
        lambda comm: Rotated(comm, seed=2).allreduce(np.ones(9)),
    ),
    "bits": (lambda comm: Rotated(comm, 8).allreduce(np.ones(9)), lambda comm: Rotated(comm, 4).allreduce(np.ones(9))),
    "op of top blocks": (
        lambda comm: TopBlocks(comm, 0.5).allreduce(np.ones(1000), "sum"),
        lambda comm: TopBlocks(comm, 0.5).allreduce(np.ones(1000), "mean"),
    ),
    "size, within a block": (
        lambda comm: TopBlocks(comm, 0.5).allreduce(np.ones(1001)),
        lambda comm: TopBlocks(comm, 0.5).allreduce(np.ones(1002)),
    ),
    "share": (
        lambda comm: TopBlocks(comm, 0.5).allreduce(np.ones(99)),
        lambda comm: TopBlocks(comm, 0.25).allreduce(np.ones(99)),
    ),
    "block": (
        lambda comm: TopBlocks(comm, 0.5, block=8).allreduce(np.ones(99)),
        lambda comm: TopBlocks(comm, 0.5, block=9).allreduce(np.ones(99)),
    ),
    "compressor": (
        lambda comm: TopBlocks(comm, 0.5).allreduce(np.ones(99)),
        lambda comm: Rotated(comm).allreduce(np.ones(99)),
    ),
    "no compressor": (lambda comm: comm.allreduce(np.ones(99)), lambda comm: Rotated(comm).allreduce(np.ones(99))),
}


@pytest.mark.parametrize(("mine", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_calls_that_differ_are_compared(mine: Any, other: Any) -> None:
    with ranks(3) as communicators:
        got = on_each(communicators, lambda comm: (other if comm.rank == 1 else mine)(comm))
    assert [type(each) for each in got] == [MismatchError] * 3, got


@pytest.mark.parametrize("make", COMPRESSORS, ids=["8 bits", "4 bits", "top blocks"])
def test_the_ranks_are_told_what_is_wrong_on_one_and_go_on(make: Any) -> None:
    """Before anything else is sent, so that no rank waits; the next calls rotate alike on all ranks."""
    bad: list[Any] = [(np.ones(9), "max"), (np.ones(9, np.complex64), "mean"), (np.ma.ones(9), "mean")]
    with ranks(2) as communicators:
        compressors = [make(comm) for comm in communicators]
        for wrong in bad:
            calls = [partial(compressors[0].allreduce, np.ones(9)), partial(compressors[1].allreduce, *wrong)]
            assert [type(each) for each in together(calls)] == [AbortedError, UnsupportedError]
        mean = good(on_each(communicators, lambda comm: compressors[comm.rank].allreduce(np.ones(9))))
        assert mean.shape == (9,)


@pytest.mark.parametrize("make", COMPRESSORS, ids=["8 bits", "4 bits", "top blocks"])
@pytest.mark.parametrize("shape", [(0,), (3, 0), ()])
def test_arrays_of_no_or_one_element_can_be_compressed(make: Any, shape: tuple[int, ...]) -> None:
    (result,) = repeated(make, [np.ones(shape)] * 2, 1)
    assert result.shape == shape
    assert np.allclose(result, 2.0, atol=1.5)


def test_values_too_large_to_be_rotated_are_refused() -> None:
    arrays = [np.full(2000, value, np.float32) for value in (1.0, 1e37)]
    with ranks(2) as communicators:
        got = on_each(communicators, lambda comm: Rotated(comm).allreduce(arrays[comm.rank]))
        assert [type(each) for each in got] == [AbortedError, NotFiniteError]
        arrays[1] /= np.float32(1e7)
        result = good(on_each(communicators, lambda comm: Rotated(comm).allreduce(arrays[comm.rank])))
        np.testing.assert_allclose(result.mean(), 0.5e30, rtol=0.1)
