# SPDX-License-Identifier: MIT
"""The jobs in which a host implementation is tested."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.conformance import host_network
from tests.conformance.host_network import Network


class Call(NamedTuple):
    """An allreduce of one rank. A NaN is None, which is JSON's null."""

    op: str
    type: str
    values: tuple[float | None, ...]

    def as_json(self) -> dict[str, Any]:
        """The call as the command gets it."""
        return {"op": self.op, "type": self.type, "values": list(self.values)}


def array_of(call: Call) -> NDArray[Any]:
    """The call's values as an array."""
    return np.array([np.nan if value is None else value for value in call.values], call.type)


@dataclass(frozen=True)
class Run:
    """One job: the calls of its two ranks, of which those numbered in ``fails`` must fail. If results are wrong, ``rules`` are
    broken. ``comparable``: the host's contributions follow from the calls alone."""

    name: str
    rules: tuple[str, ...]
    calls: tuple[tuple[Call, ...], tuple[Call, ...]]
    network: Callable[[], Network] = Network
    fails: frozenset[int] = frozenset()
    comparable: bool = True
    window: int = 2
    block_bytes: int = 256


def _ranks(seed: int, op: str, dtype: str, count: int, largest: float, zeros: slice = slice(0)) -> tuple[Call, Call]:
    """A call of both ranks with random values."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(2):
        values = rng.uniform(-largest, largest, count).astype(dtype)
        values[zeros] = 0
        made.append(Call(op, dtype, tuple(values.tolist())))
    return made[0], made[1]


def _both(*calls: tuple[Call, Call]) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
    return tuple(call[0] for call in calls), tuple(call[1] for call in calls)


NARROW = _ranks(1, "sum", "int32", 700, 60)  # in lanes of 8 bits
WIDE = _ranks(2, "sum", "int32", 300, 1 << 29)
FLOATS = _ranks(3, "sum", "float32", 300, 1e3, slice(64, 128))  # a block of zeros, which is not sent
ORDER = _ranks(4, "max", "int32", 150, 1 << 30)
MEAN = _ranks(5, "mean", "float32", 100, 1e-3)
PLAIN = _both(NARROW, WIDE, FLOATS, ORDER, MEAN)
_NAN = Call("sum", "float32", (1.0, None))
_FINE = Call("sum", "float32", (1.0, 2.0))

RUNS: Final = (
    Run("no faults", ("H2", "H25"), PLAIN),
    Run("losses", ("H3",), PLAIN, host_network.Losing),
    Run("repeated replies", ("H9",), PLAIN, host_network.Repeating),
    Run("replies out of order", ("H3",), PLAIN, host_network.Reordering),
    Run("notices", ("H5",), PLAIN, host_network.Noticing),
    Run("stray results", ("H7", "H8"), PLAIN, host_network.Straying),
    Run("a busy switch", ("H14",), PLAIN, host_network.Busy),
    Run("calls differ", ("H15",), ((WIDE[0], ORDER[0]), (ORDER[1], ORDER[1])), fails=frozenset({0, 1}), comparable=False),
    Run("a block is refused", ("H17",), _both(WIDE, ORDER), host_network.Refusing, frozenset({0, 1}), comparable=False),
    Run("the other rank aborts", ("H18", "H19"), _both((_FINE, _NAN), WIDE), fails=frozenset({0})),
    Run("this rank aborts", ("H18", "H19"), _both((_NAN, _FINE), WIDE), fails=frozenset({0})),
)
