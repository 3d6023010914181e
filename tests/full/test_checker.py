"""The checker of `netsum verify` finds what is wrong: a check that cannot fail shows nothing."""

from __future__ import annotations

import numpy as np
import pytest
from netsum_testbed.verify import reference
from netsum_testbed.verify.cases import DTYPES, FLOATS, Call, Round, make_round
from netsum_testbed.verify.check import Checker
from netsum_testbed.verify.data import Array, contribution

WORKERS = 3


def a_call(dtype: str, op: str = "sum", shape: tuple[int, ...] = (700,), fill: str = "", scale: str = "agreed") -> Call:
    fill = fill or ("normal" if dtype in FLOATS else "full")
    return Call(0, dtype, op, shape, fill, scale, False, False, False, (0.0,) * WORKERS)


def a_round(call: Call) -> Round:
    return Round(seed=5, index=0, workers=WORKERS, window=4, chunks=2, calls=(call,))


def right_result(round_: Round, call: Call) -> Array:
    inputs = [contribution(round_, call, rank) for rank in range(round_.workers)]
    if call.op == "max":
        return reference.exact_max(inputs)
    if call.dtype not in FLOATS:
        return reference.exact_integer_sum(inputs)
    block = reference.block_elements(call.dtype, round_.chunks * 256)
    sums = reference.quantised_sum(inputs, reference.largest_exponents(inputs, block), block)
    divisor = round_.workers if call.op == "mean" else 1
    return reference.to_float(sums, call.dtype, divisor).reshape(call.shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["sum", "max"])
def test_the_right_result_passes_and_one_flipped_bit_does_not(dtype: str, op: str) -> None:
    call = a_call(dtype, op)
    round_ = a_round(call)
    right = right_result(round_, call)
    assert Checker(round_).complaints(call, [right] * WORKERS) == []
    wrong = right.copy()
    wrong.view(np.uint8).reshape(-1)[-wrong.itemsize] ^= 1
    assert "1 of 700 elements differ; element 699" in Checker(round_).complaints(call, [wrong] * WORKERS)[-1]


def test_ranks_that_differ_are_named() -> None:
    call = a_call("float32")
    round_ = a_round(call)
    right = right_result(round_, call)
    wrong = right.copy()
    wrong[3] = np.nextafter(wrong[3], np.float32(9.0))
    assert (
        Checker(round_)
        .complaints(call, [right, right, wrong])[0]
        .startswith("ranks [2] have another result than rank 0")
    )


def test_a_float_too_far_from_the_true_sum_is_found_also_with_predicted_scale() -> None:
    call = a_call("float32", scale="predicted")
    round_ = a_round(call)
    wrong = right_result(round_, call)
    wrong[17] += np.float32(0.01)
    assert "element 17" in Checker(round_).complaints(call, [wrong] * WORKERS)[0]
    wrong[17] = np.float32("nan")
    assert "1 elements are further" in Checker(round_).complaints(call, [wrong] * WORKERS)[0]


def test_another_shape_or_dtype_is_found() -> None:
    call = a_call("int16", shape=(4, 5))
    round_ = a_round(call)
    right = right_result(round_, call)
    assert Checker(round_).complaints(call, [right.reshape(20)] * WORKERS) == ["the result is int16[20]"]
    assert Checker(round_).complaints(call, [right.astype(np.int32)] * WORKERS) == ["the result is int32[4, 5]"]


def test_the_maximum_of_the_two_zeros_is_the_positive_one() -> None:
    zeros = [np.array([-0.0, -0.0, 0.0]), np.array([-0.0, 0.0, -0.0])]
    assert np.signbit(reference.exact_max(zeros)).tolist() == [True, False, False]


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
    assert {call.dtype for call in calls} == set(DTYPES)
    assert {call.op for call in calls} == {"sum", "mean", "max"}
    assert {call.scale for call in calls} == {"agreed", "predicted"}
    assert min(call.elements for call in calls) == 0
    assert max(call.elements for call in calls) == 1 << 20
    assert {len(call.shape) for call in calls} == {0, 1, 2, 3}
