# SPDX-License-Identifier: MIT
"""Conversions of float32 and 32-bit lanes in one pass each, compiled by numba: the extra ``fast``. Import this module by
:func:`netsum.numeric.compiled.kernels_for` only. Arrays have a row for each block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit("void(float32[:, ::1], float32[::1], uint32, uint32[:, ::1])", cache=True, error_model="numpy")
def encode(values: Any, powers: Any, bias: Any, lanes: Any) -> None:
    """Store rint(values * powers) + bias."""
    for row in range(values.shape[0]):
        power = powers[row]
        for at in range(values.shape[1]):
            lanes[row, at] = np.uint32(np.int32(np.rint(values[row, at] * power))) + bias


@njit("void(int32[:, ::1], float32[::1], float32[:, ::1])", cache=True, error_model="numpy")
def decode(integers: Any, powers: Any, values: Any) -> None:
    """Store integers * powers."""
    for row in range(integers.shape[0]):
        power = powers[row]
        for at in range(integers.shape[1]):
            values[row, at] = np.float32(integers[row, at]) * power


@njit("void(uint32[:, ::1], uint32[::1])", cache=True, error_model="numpy")
def largest_float(bits: Any, largest: Any) -> None:
    """Store the bits of each row's largest magnitude: bits of magnitudes are in the order of the numbers, and those of what is
    not finite are above all."""
    for row in range(bits.shape[0]):
        most = np.uint32(0)
        for at in range(bits.shape[1]):
            most = max(most, bits[row, at] & np.uint32(0x7FFFFFFF))
        largest[row] = most


@njit("void(int32[:, ::1], int32[::1])", cache=True, error_model="numpy")
def largest_integer(numbers: Any, largest: Any) -> None:
    """Store each row's largest magnitude, which no row has of the most negative number."""
    for row in range(numbers.shape[0]):
        most = least = np.int32(0)
        for at in range(numbers.shape[1]):
            most, least = max(most, numbers[row, at]), min(least, numbers[row, at])
        largest[row] = max(most, -least)
