# SPDX-License-Identifier: MIT
"""Correctly rounded sums of floats, by rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

FORMATS = {"bfloat16": (8, -133), "float16": (11, -24), "float32": (24, -149)}
"""Of the types that the switch sums exactly: bits of the significand, exponent of the least number."""
ALL_FORMATS = {**FORMATS, "float64": (53, -1074)}


def finfo(dtype: str) -> Any:
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def nearest(value: Fraction, dtype: str) -> float:
    """The float of the type nearest to a number, ties to even, straight from IEEE 754."""
    bits, least = ALL_FORMATS[dtype]
    if not value:
        return 0.0
    exponent = max(least, value.numerator.bit_length() - value.denominator.bit_length() - bits - 1)
    while abs(value) / Fraction(2) ** exponent >= 2**bits:
        exponent += 1
    number = round(value / Fraction(2) ** exponent) * Fraction(2) ** exponent  # Python rounds to even
    largest = float(finfo(dtype).max)
    return float(number) if abs(number) <= largest else math.copysign(math.inf, number)


def expected(column: list[float], dtype: str, divisor: int) -> float:
    if not np.isfinite(column).all():
        special = [each for each in column if not np.isfinite(each)]
        return special[0] if len(set(special)) == 1 else np.nan
    return nearest(sum(map(Fraction, column), Fraction(0)) / divisor, dtype)
