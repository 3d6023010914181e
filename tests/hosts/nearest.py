"""Correctly rounded sums of floats, by rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

FORMATS = {"float16": (11, -24), "float32": (24, -149)}


def nearest(value: Fraction, dtype: str) -> float:
    """The float of the type nearest to a number, ties to even, straight from IEEE 754."""
    bits, least = FORMATS[dtype]
    if not value:
        return 0.0
    exponent = least
    while abs(value) / Fraction(2) ** exponent >= 2**bits:
        exponent += 1
    number = round(value / Fraction(2) ** exponent) * Fraction(2) ** exponent  # Python rounds to even
    largest = float(np.finfo(dtype).max)
    return float(number) if abs(number) <= largest else math.copysign(math.inf, number)


def expected(column: list[float], dtype: str, divisor: int) -> float:
    if not np.isfinite(column).all():
        special = [each for each in column if not np.isfinite(each)]
        return special[0] if len(set(special)) == 1 else np.nan
    return nearest(sum(map(Fraction, column), Fraction(0)) / divisor, dtype)
