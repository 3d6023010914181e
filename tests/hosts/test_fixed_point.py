# SPDX-License-Identifier: MIT
"""The arithmetic, checked with integers and fractions: exact where it claims to be, within the bound elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from netsum.numeric import exponents, fixed_point
from netsum.numeric.fixed_point import HOST_LANES, WIRE_LANES, Array
from netsum.wire.schema import Lane
from numpy.typing import NDArray

WORKERS = st.integers(1, 255)
FLOATS = {"float32": Lane.L32, "float64": Lane.L64}


def switch_sum(contributions: list[Array], lane: Lane) -> Array:
    """The switch's arithmetic: one addition of the whole payload as a number; a carry between lanes would show."""
    size = contributions[0].nbytes
    total = sum(int.from_bytes(each.astype(WIRE_LANES[lane]).tobytes(), "big") for each in contributions)
    lanes = np.frombuffer(total.to_bytes(size + 2, "big")[2:], WIRE_LANES[lane]).astype(HOST_LANES[lane])
    return lanes.reshape(contributions[0].shape)


@given(st.sampled_from(Lane), WORKERS)
def test_bias_leaves_no_carry_and_uses_the_lane(lane: Lane, workers: int) -> None:
    bias = fixed_point.bias(lane, workers)
    largest = (1 << lane.bits) - 1
    assert 2 * bias * workers <= largest < 2 * (bias + 1) * workers
    if bias:
        assert 1 << fixed_point.scale_bits(lane, workers) <= bias < 2 << fixed_point.scale_bits(lane, workers)


@given(st.sampled_from(Lane), st.integers(1, 12), st.data())
def test_integer_sums_are_exact_in_every_lane(lane: Lane, workers: int, data: st.DataObject) -> None:
    bias = fixed_point.bias(lane, workers)
    number = st.one_of(st.sampled_from([-bias, bias, 0]), st.integers(-bias, bias))
    rows = [data.draw(st.lists(number, min_size=4, max_size=4)) for _ in range(workers)]
    lanes = [fixed_point.encode_integers(np.array([row], f"i{lane.bytes}"), lane, workers) for row in rows]
    sums = fixed_point.decode_integers(switch_sum(lanes, lane), np.array([workers]), lane, workers)
    assert sums[0].tolist() == [sum(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("lane", Lane)
@pytest.mark.parametrize("sign", [-1, 1])
def test_most_workers_with_the_largest_values_do_not_overflow(lane: Lane, sign: int) -> None:
    workers = 255 if lane > Lane.L8 else 127
    value = sign * fixed_point.bias(lane, workers)
    one = fixed_point.encode_integers(np.full((1, 8), value, f"i{lane.bytes}"), lane, workers)
    sums = fixed_point.decode_integers(switch_sum([one] * workers, lane), np.array([workers]), lane, workers)
    assert set(sums[0].tolist()) == {workers * value}


def test_who_sent_nothing_is_not_taken_off() -> None:
    ours = fixed_point.encode_integers(np.array([[5, -6]], np.int32), Lane.L32, 9)
    sums = fixed_point.decode_integers(switch_sum([ours] * 3, Lane.L32), np.array([3]), Lane.L32, 9)
    assert sums.tolist() == [[15, -18]]


def quantized(rows: list[Array], powers: NDArray[np.int64], lane: Lane, workers: int, divisor: int = 1) -> Array:
    dtype = rows[0].dtype
    lanes = [fixed_point.encode_floats(row, powers, lane, workers) for row in rows]
    counts = np.full(len(powers), len(rows))
    divisors = np.full(len(rows[0]), divisor, np.int64)
    sums = fixed_point.decode_integers(switch_sum(lanes, lane), counts, lane, workers)
    return fixed_point.floats(sums, powers, lane, workers, dtype, divisors)


@given(
    st.sampled_from(["float32", "float64"]),
    st.booleans(),
    st.lists(
        st.tuples(st.sampled_from([-140, -98, -97, -3, 4, 127]), st.integers(1, 4), st.integers(0, 4)),
        min_size=1,
        max_size=3,
    ),
    st.integers(0, 2**32 - 1),
)
def test_what_a_row_means_depends_on_no_other_row(dtype: str, mean: bool, rows: list[tuple[int, int, int]], seed: int) -> None:
    """Rows that are alike are converted at once, in the caller's array."""
    powers, worker_cnt, data_cnt = np.array(rows, np.int64).T
    kind, numbers, lane = np.dtype(dtype), range(len(rows)), FLOATS[dtype]
    lanes = fixed_point.FloatLanes(lane, 4, kind, partial(fixed_point.pick, powers), mean)
    limit = fixed_point.bias(lane, 4)
    signed = np.random.default_rng(seed).integers(-limit, limit + 1, (len(rows), 5)) * data_cnt[:, None]
    sums = signed.astype(HOST_LANES[lane]) + (data_cnt * limit).astype(HOST_LANES[lane])[:, None]
    out = np.empty(sums.shape, kind)
    got = lanes.decode(sums.copy(), numbers, data_cnt, worker_cnt, out)
    for row in numbers:
        one = [sums[row : row + 1].copy(), np.array([row]), data_cnt[row : row + 1], worker_cnt[row : row + 1]]
        assert np.array_equal(lanes.decode(*one), got[row : row + 1])
        doubles = signed[row].astype(np.float64) / (worker_cnt[row] if mean else 1)
        with np.errstate(over="ignore", under="ignore"):
            exact = np.ldexp(doubles, powers[row] - fixed_point.scale_bits(lane, 4)).astype(kind)
        assert np.array_equal(got[row], exact)


def half_step(value: float, dtype: str) -> Fraction:
    """Half a unit in the last place of a result: what rounding it to the type may add."""
    return Fraction(float(np.spacing(np.abs(np.dtype(dtype).type(value))))) / 2


@st.composite
def float_columns(draw: st.DrawFn, dtype: str) -> tuple[list[Array], int]:
    """Up to 5 ranks' rows of 6 numbers of one magnitude, denormal to near the largest, and how many workers there are."""
    present = draw(st.integers(1, 5))
    workers = draw(st.integers(present, 255))
    width = 32 if dtype == "float32" else 64
    # Not so large that the sum itself leaves the type.
    top = float(np.finfo(dtype).max) / 512
    limit = draw(st.sampled_from([top, 1.0, 3e-5, float(np.finfo(dtype).tiny) * 8, float(np.finfo(dtype).tiny)]))
    if dtype == "float32":
        limit = float(np.float32(limit))
    number = st.floats(-limit, limit, width=width, allow_nan=False)  # type: ignore[arg-type]
    rows = [draw(st.lists(number, min_size=6, max_size=6)) for _ in range(present)]
    return [np.array([row], dtype) for row in rows], workers


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mean", [False, True], ids=["sum", "mean"])
@given(data=st.data())
def test_float_sums_keep_the_documented_bound(dtype: str, mean: bool, data: st.DataObject) -> None:
    rows, workers = data.draw(float_columns(dtype))
    lane = FLOATS[dtype]
    codes = np.max([exponents.float_codes(exponents.magnitudes([row])) for row in rows], axis=0)
    power = int(exponents.float_exponents(codes)[0])
    divisor = workers if mean else 1
    got = quantized(rows, np.array([power]), lane, workers, divisor)[0]
    # n/2 quanta, a quantum at most 2^(e+1) / B; half a quantum a contribution is what is really needed.
    bound = Fraction(len(rows), 2) * Fraction(2) ** (power + 1) / fixed_point.bias(lane, workers) / divisor
    for column, value in enumerate(got.tolist()):
        true = sum((Fraction(float(row[0, column])) for row in rows), Fraction(0)) / divisor
        # The integer sum becomes a float64, is divided, becomes the type: three roundings at most.
        rounding = 2 * half_step(value, dtype) + abs(true) * 3 / 2**53
        assert abs(Fraction(value) - true) <= bound + rounding


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_block_has_a_scale_of_its_own(dtype: str) -> None:
    """Blocks a thousand powers of two apart are each as exact as alone."""
    scales = np.array([[1.0], [2.0**-100], [2.0**100]], dtype)
    row = np.array([[1.0, -0.75, 0.5]] * 3, dtype) * scales
    powers = exponents.float_exponents(exponents.float_codes(exponents.magnitudes([row])))
    assert len(set(powers.tolist())) == 3
    assert quantized([row, -row, row], powers, FLOATS[dtype], 3).tolist() == row.tolist()


@pytest.mark.parametrize("dtype", FLOATS)
def test_denormals_alone_in_a_block_are_exact(dtype: str) -> None:
    tiny = np.finfo(dtype).smallest_subnormal
    row = np.array([[1, 2, -3, 1000, 0]], dtype) * tiny
    powers = exponents.float_exponents(exponents.float_codes(exponents.magnitudes([row])))
    assert quantized([row, row], powers, FLOATS[dtype], 2).tolist() == (row + row).tolist()


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_sum_beyond_the_type_is_an_infinity_as_in_numpy(dtype: str) -> None:
    row = np.array([[1, -1]], dtype) * np.finfo(dtype).max
    powers = exponents.float_exponents(exponents.float_codes(exponents.magnitudes([row])))
    assert quantized([row, row], powers, FLOATS[dtype], 2).tolist() == [[np.inf, -np.inf]]
    # Their mean is in range, and is not lost on the way to it.
    assert quantized([row, row], powers, FLOATS[dtype], 2, 2)[0, 0] == pytest.approx(np.finfo(dtype).max, rel=1e-6)


def test_callers_who_trap_underflow_are_not_trapped() -> None:
    row = np.array([[1e30, 1e-30]], np.float32)
    with np.errstate(all="raise"):
        got = quantized([row], np.array([200]), Lane.L32, 1)
    assert got[0, 1] == 0


ORDERED: dict[str, Any] = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float16": st.floats(width=16, allow_nan=False),
    "float32": st.floats(width=32, allow_nan=False),
    "float64": st.floats(allow_nan=False),
}


@pytest.mark.parametrize("dtype", ORDERED)
@given(data=st.data())
@example(data=None).via("zeros of both signs")
def test_order_map_keeps_the_order_and_the_bits(dtype: str, data: st.DataObject | None) -> None:
    pair = [0.0, -0.0] if data is None else data.draw(st.lists(ORDERED[dtype], min_size=2, max_size=2))
    values = np.array([pair], dtype)
    lanes = fixed_point.encode_order(values)
    assert fixed_point.decode_order(lanes, values.dtype).tobytes() == values.tobytes()
    first, second = values[0]
    if first != second:
        assert (first < second) == bool(lanes[0, 0] < lanes[0, 1])
    elif values.dtype.kind == "f" and np.signbit(first) != np.signbit(second):
        assert (lanes[0, 0] > lanes[0, 1]) == bool(np.signbit(second)), "+0 is the larger zero"
    else:
        assert lanes[0, 0] == lanes[0, 1]


def test_a_lane_holds_the_value_and_the_bias() -> None:
    one = fixed_point.encode_integers(np.array([[1]], np.int32), Lane.L32, 1)
    assert one.tolist() == [[fixed_point.bias(Lane.L32, 1) + 1]]


@pytest.mark.parametrize("encode", [fixed_point.encode_bits, fixed_point.encode_order])
def test_a_bool_is_one_whatever_it_is_in_memory(encode: Callable[[Array], Array]) -> None:
    odd = np.frombuffer(bytes([0, 1, 2, 128, 255]), np.bool_)[None]
    assert encode(odd).tolist() == [[0, 1, 1, 1, 1]]


@pytest.mark.parametrize("rest", [0.5, -0.5, 0.25, -0.75])
def test_stochastic_rounding_has_no_bias_where_floats_have_few_bits_of_fraction(rest: float) -> None:
    """A dither that is added is itself rounded there: 2^51 + 1/2 came out as 2^51 + 1 three times of four."""
    whole, workers, tries = 2.0**50, 2, 4000
    exponents = np.array([fixed_point.scale_bits(Lane.L64, workers)])  # a quantum of 1
    values = np.full((1, tries), np.copysign(whole, rest) + rest)
    rng = np.random.default_rng(1)
    lanes = fixed_point.encode_floats(values, exponents, Lane.L64, workers, rng)
    got = fixed_point.decode_integers(lanes, np.ones(1, np.int64), Lane.L64, workers) - int(np.copysign(whole, rest))
    deviation = np.sqrt(abs(rest) * (1 - abs(rest)) / tries)
    assert abs(float(got.mean()) - rest) < 5 * deviation
