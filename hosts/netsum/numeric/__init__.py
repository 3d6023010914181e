# SPDX-License-Identifier: MIT
"""Arithmetic on arrays: fixed point, its exponents, and exact sums. It knows no packet."""
