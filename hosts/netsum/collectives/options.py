"""Options of a reduction: the options that a caller may ask for, and with which types."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np

from netsum.errors import UnsupportedError
from netsum.numeric.fixed_point import FLOATS, INTEGERS, Array, bias, float_lane, type_name
from netsum.numeric.superaccumulator import TYPES as EXACT
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
class Options:
    """Options of a reduction. ``late`` says what to do about late ranks in a job that degrades; ``lane`` is the lane of a sum
    of floats, if not that of their type; ``residual`` is where to leave what rounding keeps out of a sum."""

    op: str
    scale: str = "agreed"
    on_late: str = "accept"
    lane: Lane | None = None
    rounding: str = "nearest"
    nonfinite: str = "raise"
    residual: Array | None = None

    @cached_property
    def agreed(self) -> tuple[object, ...]:
        """The options that must be the same on all ranks. The rounding is: it decides which blocks of a call with predicted
        exponents are in doubt, and so how many rounds that has."""
        unusual = [self.nonfinite] * self.propagates + [self.rounding] * (self.rounding != "nearest")
        return self.op, self.scale, self.no_aging, self.lane, *unusual

    @property
    def propagates(self) -> bool:
        """True if a NaN or an infinity is passed on, not refused."""
        return self.nonfinite == "propagate"

    def float_lane(self, dtype: np.dtype[Any]) -> Lane:
        return float_lane(dtype) if self.lane is None else self.lane

    def dither(self, rank: int, gen: int) -> np.random.Generator | None:
        """The generator for stochastic rounding. It repeats on every run, but differs between ranks and calls."""
        return np.random.default_rng([rank, gen]) if self.rounding == "stochastic" else None

    @property
    def no_aging(self) -> bool:
        """True if the caller should wait for every rank."""
        return self.on_late == "wait"


def check_options(
    dtype: np.dtype[Any],
    op: str,
    scale: str = "agreed",
    on_late: str = "accept",
    nonfinite: str = "raise",
    bits: int | None = None,
    rounding: str = "nearest",
    *,
    workers: int,
    degrade: bool,
) -> Options:
    """The options, if values of this type can be reduced that way; otherwise UnsupportedError, before anything is sent. Sums
    of floats are in lanes of so many ``bits`` (None: the type's own).

    A job that degrades does not predict scales: all ranks would have to repeat a block that does not fit, even those that did
    not see it fail.
    """
    try:
        return _checked(dtype, op, scale, on_late, nonfinite, bits, rounding, workers, degrade)
    except TypeError:  # something that cannot be a key; the errors say what
        return _check(dtype, op, scale, on_late, nonfinite, bits, rounding, workers, degrade)


def _check(
    dtype: np.dtype[Any],
    op: str,
    scale: str,
    on_late: str,
    nonfinite: str,
    bits: int | None,
    rounding: str,
    workers: int,
    degrade: bool,
) -> Options:
    name = type_name(dtype)
    given = {
        "op": (op, OPERATIONS),
        "scale": (scale, SCALES),
        "on_late": (on_late, LATE),
        "nonfinite": (nonfinite, NONFINITE),
    }
    for what, (value, known) in given.items():
        if value not in known:
            raise UnsupportedError(f"{what} {value!r} is not one of {', '.join(known)}")
    if name not in TYPES[op]:
        raise UnsupportedError(_why(dtype, op))
    if on_late == "carry" and (op not in ARITHMETIC or name in INTEGERS):
        raise UnsupportedError(f"on_late='carry' adds to the next sum or mean of floats; this is op={op!r} of {name}")
    if nonfinite == "propagate" and degrade and on_late != "wait":
        raise UnsupportedError(
            "nonfinite='propagate' needs every rank: in a job that degrades, give on_late='wait' too"
        )
    if name not in FLOATS or op in BITS:
        nonfinite = "raise"  # there is nothing to pass on
    agreed = op not in ARITHMETIC or name in INTEGERS or (degrade and scale != "float")
    if scale == "float" and not agreed and name not in ADDED:
        raise UnsupportedError(f"scale='float' adds {' and '.join(sorted(ADDED))} as they are; this is {name}")
    options = Options(op, "agreed" if agreed else scale, on_late if degrade else "accept", nonfinite=nonfinite)
    return _compressed(options, dtype, bits, rounding, workers)


_checked: Final = lru_cache(maxsize=256)(_check)  # training makes the same calls again and again


def _why(dtype: np.dtype[Any], op: str) -> str:
    if op == "mean" and dtype.name in INTEGERS:
        return (
            f"the mean of {dtype.name} is not an integer; convert to a float first, or use op='sum' or {INTEGER_MEAN!r}"
        )
    return f"dtype {dtype.str} cannot be reduced with op={op!r}; use one of {', '.join(sorted(TYPES[op]))}"


def _compressed(options: Options, dtype: np.dtype[Any], bits: int | None, rounding: str, workers: int) -> Options:
    if rounding not in ROUNDINGS:
        raise UnsupportedError(f"rounding {rounding!r} is not one of {', '.join(ROUNDINGS)}")
    if bits is None and rounding == "nearest":
        return options
    if options.op not in ARITHMETIC or dtype.name not in FLOATS or options.scale == "float":
        raise UnsupportedError("bits and rounding are for sums and means of floats that have a common scale")
    if bits is None:
        return replace(options, rounding=rounding)
    if bits not in LANES:
        raise UnsupportedError(f"bits is {bits!r}, not one of {', '.join(map(str, LANES))}")
    if bias(LANES[bits], workers) < 1:
        raise UnsupportedError(f"{workers} ranks are too many for a sum in lanes of {bits} bits")
    return replace(options, lane=LANES[bits], rounding=rounding)


def made_exact(options: Options, dtype: np.dtype[Any], scale: str) -> Options:
    """The options for an exact sum or mean; UnsupportedError if there is none. All operations on integers are exact already,
    and so are those that combine values bit by bit or in their order."""
    if dtype.name not in FLOATS or options.op in (*ORDER, *BITS):
        return options
    if options.op not in ARITHMETIC or dtype.name not in EXACT:
        raise UnsupportedError(
            f"exact=True is for sums and means of {' and '.join(sorted(EXACT))}, not for op={options.op!r} of {dtype.name}"
        )
    others = {
        "scale": scale != "agreed",
        "bits": options.lane is not None,
        "rounding": options.rounding != "nearest",
        "residual": options.residual is not None,
        "on_late": options.on_late == "carry",
    }
    if wrong := [name for name, given in others.items() if given]:
        raise UnsupportedError(f"an exact sum is not rounded until its end: leave {', '.join(wrong)} out")
    return replace(options, scale="exact")
