# SPDX-License-Identifier: MIT
"""Options of a reduction: the options that a caller may ask for, and with which types."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np

from netsum.errors import UnsupportedError
from netsum.numeric.fixed_point import FLOATS, INTEGERS, Array, bias, float_lane, type_name
from netsum.numeric.superaccumulator import MOST_RANKS
from netsum.wire.schema import COMBINING, Lane

ARITHMETIC: Final = ("sum", "mean")
INTEGER_MEAN: Final = "integer_mean"
ORDER: Final = tuple(op.name.lower() for op in COMBINING if op.values == "order")
BITS: Final = tuple(op.name.lower() for op in COMBINING if op.values == "bits")
OPERATIONS: Final = (*ARITHMETIC, INTEGER_MEAN, "product", *ORDER, *BITS)
SCALES: Final = ("agreed", "predicted", "float")
ROUNDINGS: Final = ("nearest", "stochastic")
LANES: Final = {8: Lane.L8, 16: Lane.L16, 32: Lane.L32}
NONFINITE: Final = ("raise", "propagate")
LATE: Final = ("accept", "carry", "wait", "raise")
ADDED: Final = frozenset({"float32", "float64"})
"""Floats that memory can add."""
_TYPES: Final = {"floats": FLOATS, "integers": INTEGERS, "bool": frozenset({"bool"})}
TYPES: Final = {
    "mean": FLOATS,
    INTEGER_MEAN: INTEGERS,
    "product": FLOATS | INTEGERS,
    **{op.name.lower(): frozenset().union(*(_TYPES[word] for word in op.types.split())) for op in COMBINING},
}
"""The types that each operation takes."""


@dataclass(frozen=True)
class ReductionOptions:
    """The keywords of a reduction; :meth:`netsum.Communicator.allreduce` says what they mean. Two are equal if the ranks' calls
    may be: ``residual`` does not count."""

    op: str = "sum"
    scale: str = "agreed"
    bits: int | None = None
    rounding: str = "nearest"
    exact: bool = False
    nonfinite: str = "raise"
    on_late: str = "accept"
    residual: Array | None = field(default=None, compare=False)

    @cached_property
    def agreed(self) -> tuple[object, ...]:
        """The options that must be the same on all ranks. The rounding is: it decides which blocks of a call with predicted
        exponents are in doubt, and so how many rounds that has."""
        unusual = [self.nonfinite] * self.propagates + [self.rounding] * (self.rounding != "nearest")
        scale = "exact" if self.exact else self.scale
        return self.op, scale, self.no_aging, self.bits and LANES[self.bits], *unusual

    @property
    def propagates(self) -> bool:
        """True if a NaN or an infinity is passed on, not refused."""
        return self.nonfinite == "propagate"

    def float_lane(self, dtype: np.dtype[Any]) -> Lane:
        """The lane of a sum of floats."""
        return float_lane(dtype) if self.bits is None else LANES[self.bits]

    def dither(self, rank: int, gen: int) -> np.random.Generator | None:
        """The generator for stochastic rounding. It repeats on every run, but differs between ranks and calls."""
        return np.random.default_rng([rank, gen]) if self.rounding == "stochastic" else None

    @property
    def no_aging(self) -> bool:
        """True if the caller should wait for every rank."""
        return self.on_late == "wait"

    def check(self, array: Array, *, workers: int, degrade: bool) -> ReductionOptions:
        """The options that hold for this array, if it can be reduced that way; otherwise UnsupportedError, before anything is
        sent. Those that change nothing for its type, or in a job that does not ``degrade``, have their defaults.

        A job that degrades does not predict scales: all ranks would have to repeat a block that does not fit, even those that did
        not see it fail.
        """
        given = self if self.residual is None else replace(self, residual=None)  # which the cache would keep
        try:
            options = _checked(given, array.dtype, workers, degrade)
        except TypeError:  # something that cannot be a key; the errors say what
            options = _check(given, array.dtype, workers, degrade)
        if self.residual is None:
            return options
        _check_residual(options, array, self.residual)
        return replace(options, residual=self.residual)


def _check(given: ReductionOptions, dtype: np.dtype[Any], workers: int, degrade: bool) -> ReductionOptions:
    op, scale, on_late, nonfinite, name = given.op, given.scale, given.on_late, given.nonfinite, type_name(dtype)
    known = {"op": OPERATIONS, "scale": SCALES, "on_late": LATE, "nonfinite": NONFINITE, "rounding": ROUNDINGS}
    for keyword, values in known.items():
        if (value := getattr(given, keyword)) not in values:
            raise UnsupportedError(f"{keyword} {value!r} is not one of {', '.join(values)}")
    if name not in TYPES[op]:
        raise UnsupportedError(_why(dtype, op))
    if on_late == "carry" and (op not in ARITHMETIC or name in INTEGERS):
        raise UnsupportedError(f"on_late='carry' adds to the next sum or mean of floats; this is op={op!r} of {name}")
    if nonfinite == "propagate" and degrade and on_late != "wait":
        raise UnsupportedError("nonfinite='propagate' needs every rank: in a job that degrades, give on_late='wait' too")
    if name not in FLOATS or op in BITS:
        nonfinite = "raise"  # there is nothing to pass on
    agreed = op not in ARITHMETIC or name in INTEGERS or (degrade and scale != "float")
    if scale == "float" and not agreed and name not in ADDED:
        raise UnsupportedError(f"scale='float' adds {' and '.join(sorted(ADDED))} as they are; this is {name}")
    options = replace(
        given,
        scale="agreed" if agreed else scale,
        on_late=on_late if degrade else "accept",
        nonfinite=nonfinite,
        exact=given.exact and name in FLOATS and op not in (*ORDER, *BITS),  # all others are exact already
    )
    _check_lanes(options, dtype, workers)
    if options.exact:
        _check_exact(given, options, dtype, workers)
    return options


_checked: Final = lru_cache(maxsize=256)(_check)  # training makes the same calls again and again


def _why(dtype: np.dtype[Any], op: str) -> str:
    if op == "mean" and dtype.name in INTEGERS:
        return f"the mean of {dtype.name} is not an integer; convert to a float first, or use op='sum' or {INTEGER_MEAN!r}"
    return f"dtype {dtype.str} cannot be reduced with op={op!r}; use one of {', '.join(sorted(TYPES[op]))}"


def _check_lanes(options: ReductionOptions, dtype: np.dtype[Any], workers: int) -> None:
    bits = options.bits
    if bits is None and options.rounding == "nearest":
        return
    if options.op not in ARITHMETIC or dtype.name not in FLOATS or options.scale == "float":
        raise UnsupportedError("bits and rounding are for sums and means of floats that have a common scale")
    if bits is None:
        return
    if bits not in LANES:
        raise UnsupportedError(f"bits is {bits!r}, not one of {', '.join(map(str, LANES))}")
    if bias(LANES[bits], workers) < 1:
        raise UnsupportedError(f"{workers} ranks are too many for a sum in lanes of {bits} bits")


def _check_exact(given: ReductionOptions, options: ReductionOptions, dtype: np.dtype[Any], workers: int) -> None:
    if options.op not in ARITHMETIC:
        raise UnsupportedError(
            f"exact=True is for sums and means of {' and '.join(sorted(FLOATS))}, not for op={options.op!r} of {dtype.name}"
        )
    others = {
        "scale": given.scale != "agreed",
        "bits": options.bits is not None,
        "rounding": options.rounding != "nearest",
        "on_late": options.on_late == "carry",
    }
    if wrong := [name for name, is_given in others.items() if is_given]:
        raise UnsupportedError(f"an exact sum is not rounded until its end: leave {', '.join(wrong)} out")
    if workers > MOST_RANKS:
        raise UnsupportedError(f"exact=True is for {MOST_RANKS} ranks at most, and the job has {workers}")


def _check_residual(options: ReductionOptions, array: Array, residual: Any) -> None:
    if options.op not in ARITHMETIC or array.dtype.name not in FLOATS or options.scale == "float":
        raise UnsupportedError(
            "only sums and means of floats at a common scale leave a residual; this is "
            f"op={options.op!r} of {array.dtype.name} at scale={options.scale!r}"
        )
    fits = isinstance(residual, np.ndarray) and residual.shape == array.shape and residual.dtype.kind == "f"
    if not fits or not residual.flags.c_contiguous or not residual.flags.writeable or np.shares_memory(residual, array):
        raise UnsupportedError(f"residual must be a contiguous array of floats of shape {array.shape}, and not x itself")
    if options.exact:
        raise UnsupportedError("an exact sum is not rounded until its end: leave residual out")
