"""Codes and signatures."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from netsum import exponents

magnitudes = st.integers(0, 1 << 63) | st.integers(0, 64)


@given(magnitudes)
def test_integer_bound_is_at_most_a_sixteenth_too_large(magnitude: int) -> None:
    bound = exponents.integer_bound(exponents.integer_code(magnitude))
    assert magnitude <= bound <= magnitude + magnitude // 16
    assert exponents.integer_code(magnitude) < 1 << 16


@given(magnitudes, magnitudes)
def test_integer_codes_keep_the_order(a: int, b: int) -> None:
    low, high = sorted((a, b))
    assert exponents.integer_code(low) <= exponents.integer_code(high)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_float_code_is_the_exponent_of_the_largest(values: list[float]) -> None:
    code = exponents.float_codes(np.array([values]))
    largest = max(map(abs, values))
    if largest == 0:
        assert code[0] == exponents.ZERO_CODE
        return
    e = int(exponents.float_exponents(code)[0])
    # 2^1024 is no float: compare one lower.
    assert np.ldexp(largest, -e) < 1
    assert np.ldexp(largest, -e) >= 0.5


def test_largest_magnitude_of_the_most_negative_value() -> None:
    assert exponents.largest_magnitude(np.array([3, -(2**63)], np.int64)) == 2**63
    assert exponents.largest_magnitude(np.array([-128, 127], np.int8)) == 128
    assert exponents.largest_magnitude(np.zeros(0, np.int8)) == 0


parts = st.tuples(st.sampled_from(["sum", "max"]), st.sampled_from(["int8", "float32"]), st.integers(0, 5))


@given(st.lists(parts, min_size=1, max_size=5))
def test_maximum_of_signatures_tells_whether_all_are_equal(calls: list[tuple[Any, ...]]) -> None:
    lanes = np.max([exponents.signature_lanes(*call) for call in calls], axis=0)
    assert exponents.signatures_agree(lanes) == (len(set(calls)) == 1)
