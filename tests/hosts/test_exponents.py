# SPDX-License-Identifier: MIT
"""Agreement of the workers: codes keep the order of magnitudes, bounds are tight, fingerprints are compared by a maximum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.collectives import call_fingerprint
from netsum.numeric import exponents, fixed_point
from netsum.wire.schema import Lane

MAGNITUDES = st.one_of(st.integers(0, 64), st.integers(0, 2**63))


@given(MAGNITUDES, MAGNITUDES, st.integers(1, 255))
def test_a_maximum_of_lane_codes_is_the_lane_for_the_largest(one: int, other: int, workers: int) -> None:
    codes = [exponents.lane_code(magnitude, workers) for magnitude in (one, other)]
    lane = exponents.lane_of_code(max(codes))
    largest = max(one, other)
    if lane is None:
        assert largest > fixed_point.bias(Lane.L64, workers)
    else:
        assert largest <= fixed_point.bias(lane, workers)
        assert lane == Lane.L8 or largest > fixed_point.bias(Lane(lane - 1), workers), "no wider than it must be"


@pytest.mark.parametrize("workers", [1, 2, 3, 255])
def test_values_fit_up_to_the_bias_and_not_one_further(workers: int) -> None:
    for lane in Lane:
        largest = fixed_point.bias(lane, workers)
        assert exponents.lane_of_code(exponents.lane_code(largest, workers)) == lane or largest == 0
        assert exponents.lane_code(largest + 1, workers) == lane + 1


@pytest.mark.parametrize(("dtype", "largest"), [("int8", 2**7), ("int16", 2**15), ("int32", 2**31), ("int64", 2**63)])
def test_the_most_negative_integer_has_its_true_magnitude(dtype: str, largest: int) -> None:
    assert exponents.largest_magnitude(np.array([3, np.iinfo(dtype).min], dtype)) == largest
    assert exponents.largest_magnitude(np.zeros(0, dtype)) == 0


@pytest.mark.parametrize(("dtype", "width"), [("float32", 32), ("float64", 64)])
@given(data=st.data())
def test_float_exponents_are_the_smallest_that_hold_a_block(dtype: str, width: int, data: st.DataObject) -> None:
    finite = st.floats(width=width, allow_nan=False, allow_infinity=False)  # type: ignore[arg-type]
    block = np.array([data.draw(st.lists(finite, min_size=3, max_size=3))], dtype)
    codes = exponents.float_codes(exponents.magnitudes([block]))
    largest = np.abs(block).max()
    if largest == 0:
        assert codes.tolist() == [exponents.ZERO_CODE]
        return
    (exponent,) = exponents.float_exponents(codes).tolist()
    mantissa, own = np.frexp(np.float64(largest))
    assert 0.5 <= mantissa < 1
    assert exponent == own
    assert codes[0] > exponents.ZERO_CODE


@given(st.integers(-1073, 1024), st.integers(-1073, 1024))
def test_a_maximum_of_codes_is_the_code_of_the_maximum(one: int, other: int) -> None:
    smallest = np.ldexp(0.5, [[one], [other]])  # the smallest magnitudes with these exponents
    codes = exponents.float_codes(exponents.magnitudes([smallest]))
    assert exponents.float_exponents(codes).tolist() == [one, other]
    assert (codes[0] > codes[1]) == (one > other)
    assert codes.min() > exponents.ZERO_CODE, "a block of zeros never hides another's values"


def merged(*calls: tuple[object, ...]) -> bool:
    """True if the ranks that make these calls find that they agree; all of them or none."""
    own = [call_fingerprint.fingerprint_lanes(*call) for call in calls]
    (verdict,) = {bool(np.array_equal(np.max(own, axis=0), lanes)) for lanes in own}
    return verdict


@given(st.lists(st.tuples(st.text(), st.integers()), min_size=1, max_size=6))
def test_signatures_agree_only_if_all_calls_are_equal(calls: list[tuple[object, ...]]) -> None:
    assert merged(*calls) == (len(set(calls)) == 1)


def test_signature_lanes_fit_the_first_block_beside_codes() -> None:
    assert len(call_fingerprint.fingerprint_lanes("allreduce", (3, 4))) == call_fingerprint.FINGERPRINT_LANES
    assert call_fingerprint.FINGERPRINT_LANES + call_fingerprint.FIRST_CODES == call_fingerprint.FIRST_LANES
    assert not merged(("sum", "float32", (2, 3)), ("sum", "float32", (3, 2)))
    assert not merged(("sum", "float32", (6,)), ("sum", "float16", (6,)))


CALL = st.tuples(st.sampled_from(["sum", "gather"]), st.sampled_from(["int8", "float64"]), st.integers(0, 2**40))


@given(st.lists(CALL, min_size=2, max_size=5), st.integers(0, 4))
def test_what_the_others_called_is_known_where_there_are_two_calls(calls: list[tuple[Any, ...]], which: int) -> None:
    own = [call_fingerprint.fingerprint_lanes(*call) for call in calls]
    which %= len(calls)
    others = [call for call in calls if call != calls[which]]
    heard = call_fingerprint.other_call(np.max(own, axis=0), own[which])
    if len(set(others)) == 1:
        assert heard == call_fingerprint.call_text(*others[0])
    elif others:
        assert heard is None or heard in {call_fingerprint.call_text(*call) for call in others}
    late = call_fingerprint.other_call(own[0], own[which])  # in a job that degrades: the others have agreed without this one
    assert late == call_fingerprint.call_text(*calls[0])
