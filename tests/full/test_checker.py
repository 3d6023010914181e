# SPDX-License-Identifier: MIT
"""The checker of `netsum verify` finds errors: a check that cannot fail proves nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from netsum_testbed.verify import reference
from netsum_testbed.verify.cells import CallKind, Cell
from netsum_testbed.verify.check import Checker, reduced
from netsum_testbed.verify.data import Array, contribution
from netsum_testbed.verify.run import DTYPES, FLOATS, make_round

WORKERS = 3


BLOCK = 512


def a_call(dtype: str, op: str = "sum", shape: tuple[int, ...] = (700,), scale: str = "agreed") -> Cell:
    kind = CallKind("allreduce", op, dtype)
    return Cell((5, 0, 0), 0, kind, WORKERS, math.prod(shape), shape=shape, scale=scale)


def right_result(call: Cell) -> Array:
    inputs = [contribution(call, rank) for rank in range(WORKERS)]
    dtype, op = call.kind.dtype, call.kind.op
    if op == "max" or dtype not in FLOATS:
        return reduced(op, inputs)
    block = reference.block_elements(dtype, BLOCK)
    sums = reference.quantized_sum(inputs, reference.largest_exponents(inputs, block), block)
    return reference.to_float(sums, dtype, WORKERS if op == "mean" else 1).reshape(call.form)


def complaints(call: Cell, *results: Array) -> list[str]:
    return Checker(BLOCK).complaints(call, results if len(results) > 1 else results * WORKERS)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["sum", "max"])
def test_the_right_result_passes_and_one_flipped_bit_does_not(dtype: str, op: str) -> None:
    call = a_call(dtype, op)
    right = right_result(call)
    assert complaints(call, right) == []
    wrong = right.copy()
    wrong.view(np.uint8).reshape(-1)[-wrong.itemsize] ^= 1
    found = complaints(call, wrong)[-1]
    assert found.startswith("ranks [0, 1, 2]: not the reference: 1 of 700 elements differ; element 699")


def test_ranks_that_differ_are_named() -> None:
    call = a_call("float32")
    right = right_result(call)
    wrong = right.copy()
    wrong[3] = np.nextafter(wrong[3], np.float32(9.0))
    assert complaints(call, right, right, wrong)[0].startswith("ranks [2]: not the reference: 1 of 700 elements")


def test_a_float_too_far_from_the_true_sum_is_found_also_with_predicted_scale() -> None:
    call = a_call("float32", scale="predicted")
    wrong = right_result(call)
    wrong[17] += np.float32(0.01)
    assert "element 17" in complaints(call, wrong)[0]
    wrong[17] = np.float32("nan")
    assert "1 element further" in complaints(call, wrong)[0]


def test_another_shape_or_dtype_is_found() -> None:
    call = a_call("int16", shape=(4, 5))
    right = right_result(call)
    assert complaints(call, right.reshape(20)) == [f"rank {rank}'s result is int16[20]" for rank in range(WORKERS)]
    assert complaints(call, right.astype(np.int32))[0] == "rank 0's result is int32[4, 5]"


def test_the_maximum_of_the_two_zeros_is_the_positive_one() -> None:
    zeros = [np.array([-0.0, -0.0, 0.0]), np.array([-0.0, 0.0, -0.0])]
    assert np.signbit(reduced("max", zeros)).tolist() == [True, False, False]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("workers", [1, 2, 7, 255])
def test_the_lanes_of_all_workers_never_overflow(dtype: str, workers: int) -> None:
    bits = reference.LANE_BITS[dtype]
    assert workers * 2 * reference.bias(bits, workers) < 1 << bits


def test_a_round_is_the_same_each_time_and_the_rounds_of_two_seeds_are_not() -> None:
    assert make_round(7, 3, calls=20) == make_round(7, 3, calls=20)
    assert make_round(7, 3, calls=20).calls != make_round(8, 3, calls=20).calls
    assert make_round(7, 3, calls=5).calls == make_round(7, 3, calls=20).calls[:5]


def test_the_cases_reach_every_dtype_operation_and_size() -> None:
    rounds = [make_round(1, index, calls=40) for index in range(60)]
    calls = [call for round_ in rounds for call in round_.calls]
    assert {round_.workers for round_ in rounds} == set(range(1, 9))
    assert {call.kind.dtype for call in calls} == set(DTYPES)
    assert {call.kind.op for call in calls} == {"sum", "mean", "max"}
    assert {call.scale for call in calls} == {"agreed", "predicted"}
    assert min(call.size for call in calls) == 0
    assert max(call.size for call in calls) == 1 << 20
    assert {len(call.form) for call in calls} == {0, 1, 2, 3}
