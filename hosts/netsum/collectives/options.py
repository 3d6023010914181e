"""How to reduce: what a caller may ask for, and which types can do it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from netsum.errors import Unsupported
from netsum.fixed_point import Array

FLOATS: Final = frozenset({"float16", "float32", "float64"})
INTEGERS: Final = frozenset({"int8", "int16", "int32", "int64"})
OPERATIONS: Final = ("sum", "mean", "max")
SCALES: Final = ("agreed", "predicted")
LATE: Final = ("accept", "carry", "wait", "raise")


@dataclass(frozen=True)
class Options:
    """How to reduce. ``late``: what to do about ranks that come too late, in a job that degrades."""

    op: str
    scale: str
    late: str = "accept"

    @property
    def firm(self) -> bool:
        """Whether to wait for every rank."""
        return self.late == "wait"


def check(array: Array, op: str, scale: str, late: str = "accept", *, degrade: bool = False) -> Options:
    """The options, if this dtype can be reduced so; Unsupported otherwise, before anything is sent.

    A job that degrades does not predict scales: a block that does not fit would have to be done again by all, also by those
    who have not seen it fail.
    """
    name = array.dtype.name
    for what, value, known in (("op", op, OPERATIONS), ("scale", scale, SCALES), ("late", late, LATE)):
        if value not in known:
            raise Unsupported(f"{what} {value!r} is not one of {', '.join(known)}")
    if name not in FLOATS | INTEGERS or not array.dtype.isnative:
        raise Unsupported(
            f"dtype {array.dtype.str} cannot be reduced; use one of {', '.join(sorted(FLOATS | INTEGERS))}"
        )
    if op == "mean" and name in INTEGERS:
        raise Unsupported(f"the mean of {name} is not an integer; convert to a float first or use op='sum'")
    if late == "carry" and (op == "max" or name in INTEGERS):
        raise Unsupported(f"late='carry' adds to the next sum or mean of floats; this is op={op!r} of {name}")
    agreed = degrade or op == "max" or name in INTEGERS
    return Options(op, "agreed" if agreed else scale, late if degrade else "accept")
