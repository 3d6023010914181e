"""The arithmetic: every sum within its bound, every integer exact, every order kept."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from netsum import exponents, fixed_point
from netsum.wire.schema import Lane
from numpy.typing import NDArray

FLOATS = ("float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64")
workers = st.integers(1, 255)


def wire_sum(contributions: list[NDArray[Any]], lane: Lane) -> NDArray[Any]:
    """What a switch that adds whole payloads as one integer makes of the contributions: (1, lanes)."""
    total = sum(int.from_bytes(each.tobytes(), "big") for each in contributions)
    size = contributions[0].nbytes
    assert total < 1 << (8 * size), "a carry left the payload"
    return np.frombuffer(total.to_bytes(size, "big"), fixed_point.WIRE_LANES[lane]).reshape(1, -1)


def finite(dtype: str) -> st.SearchStrategy[Any]:
    """Finite floats of all magnitudes, denormal and huge ones included."""
    return st.floats(width=32 if dtype == "float32" else 64, allow_nan=False, allow_infinity=False)


@st.composite
def float_blocks(draw: st.DrawFn) -> list[NDArray[Any]]:
    """Some members' (1, lanes) blocks."""
    dtype = draw(st.sampled_from(FLOATS))
    lanes, members = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    return [draw(arrays.arrays(dtype, (1, lanes), elements=finite(dtype))) for _ in range(members)]


@given(float_blocks(), workers)
def test_float_sum_is_within_its_bound(blocks: list[NDArray[Any]], job: int) -> None:
    count = max(len(blocks), job)  # the others contribute nothing
    dtype = blocks[0].dtype
    lane = fixed_point.float_lane(dtype)
    codes = np.max([exponents.float_codes(each) for each in blocks], axis=0)
    powers = exponents.float_exponents(codes)
    lanes = wire_sum([fixed_point.encode_floats(each, powers, lane, count) for each in blocks], lane)
    got = fixed_point.decode_floats(lanes, powers, np.array([len(blocks)]), lane, count, dtype)

    e = int(powers[0])
    quantum = Fraction(2) ** (e - fixed_point.scale_bits(lane, count))
    assert quantum <= Fraction(2) ** (e + 1) / fixed_point.bias(lane, count)
    for column in range(blocks[0].shape[1]):
        exact = sum((Fraction(float(each[0, column])) for each in blocks), Fraction(0))
        assert all(abs(Fraction(float(each[0, column]))) < Fraction(2) ** e or codes[0] == 0 for each in blocks)
        if not np.isfinite(got[0, column]):
            assert abs(exact) + len(blocks) * quantum > float(np.finfo(dtype).max)
            continue
        # The result is rounded to its type once (float64: and once from a 63-bit integer).
        info = np.finfo(dtype)
        rounding = abs(exact) * Fraction(float(info.eps)) + Fraction(float(info.smallest_subnormal)) / 2
        assert abs(Fraction(float(got[0, column])) - exact) <= len(blocks) * quantum / 2 + rounding


@given(st.sampled_from(FLOATS), st.data())
def test_denormals_of_a_small_block_are_exact(dtype: str, data: st.DataObject) -> None:
    tiny = float(np.finfo(dtype).smallest_subnormal)
    block = np.array([[data.draw(st.integers(-1000, 1000)) * tiny for _ in range(4)]], dtype)
    powers = exponents.float_exponents(exponents.float_codes(block))
    lane = fixed_point.float_lane(block.dtype)
    lanes = wire_sum([fixed_point.encode_floats(block, powers, lane, 2)] * 2, lane)
    got = fixed_point.decode_floats(lanes, powers, np.array([2]), lane, 2, block.dtype)
    assert (got == 2 * block).all()


@given(st.sampled_from(list(Lane)), workers, st.data())
def test_integer_sums_are_exact_up_to_the_bias(lane: Lane, job: int, data: st.DataObject) -> None:
    limit = fixed_point.bias(lane, job)
    values = st.lists(st.integers(-limit, limit) | st.sampled_from([-limit, limit]), min_size=3, max_size=3)
    rows = [np.array([data.draw(values)], np.int64) for _ in range(data.draw(st.integers(1, min(job, 5))))]
    rows += [np.full((1, 3), limit, np.int64)] * (job - len(rows))  # the worst the others can do
    lanes = wire_sum([fixed_point.encode_integers(row, lane, job) for row in rows], lane)
    got = fixed_point.decode_integers(lanes, np.array([job]), lane, job)
    assert got[0].tolist() == [sum(int(row[0, column]) for row in rows) for column in range(3)]


@pytest.mark.parametrize("lane", list(Lane))
@pytest.mark.parametrize("job", [1, 2, 3, 4, 7, 128, 254, 255])
def test_all_members_at_the_bias_do_not_carry(lane: Lane, job: int) -> None:
    limit = fixed_point.bias(lane, job)
    assert job * 2 * limit < 1 << lane.bits
    assert job * limit <= (1 << (lane.bits - 1)) - 1  # the sum fits a signed lane
    if limit:  # 8-bit lanes of 128 and more members carry zeros only
        assert 1 << fixed_point.scale_bits(lane, job) <= limit < 2 << fixed_point.scale_bits(lane, job)


@pytest.mark.parametrize("dtype", [*INTEGERS, "float16", "float32", "float64"])
@given(data=st.data())
def test_order_of_lanes_is_the_order_of_values(dtype: str, data: st.DataObject) -> None:
    elements = None
    if dtype.startswith("float"):
        elements = st.floats(width=int(dtype[5:]), allow_nan=False)  # type: ignore[arg-type]
    values = data.draw(arrays.arrays(dtype, (1, 12), elements=elements))
    lanes = fixed_point.encode_order(values)
    assert fixed_point.decode_order(lanes, np.dtype(dtype)).tobytes() == values.tobytes()
    order = np.argsort(lanes[0].astype(np.uint64), kind="stable")
    ordered = values[0][order]
    assert (ordered[:-1] <= ordered[1:]).all()


def test_minus_zero_is_below_zero_and_nothing_is_lost_at_the_ends() -> None:
    lanes = fixed_point.encode_order(np.array([[-np.inf, -1.0, -0.0, 0.0, 1.0, np.inf]], np.float32))
    assert (np.diff(lanes[0].astype(np.int64)) > 0).all()
    ends = np.array([[-128, -1, 0, 127]], np.int8)
    assert fixed_point.encode_order(ends).tolist() == [[0, 127, 128, 255]]
