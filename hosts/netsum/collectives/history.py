"""What a communicator remembers from one call to the next of the same kind: predicted exponents, and gradients that came
too late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from netsum.fixed_point import Array

KINDS: Final = 1024
"""How many kinds of calls predictions are kept for."""

Signature = tuple[object, ...]
"""What must be equal on all ranks for their calls to be the same; calls of one kind have one signature."""


@dataclass
class Predictions:
    """Exponents for the next call of the same kind, by signature. They are made from results, so every rank holds the same."""

    exponents: dict[Signature, NDArray[np.int64]] = field(default_factory=dict)

    def learn(self, signature: Signature, following: NDArray[np.int64]) -> None:
        """Remember the exponents for the next call. When there are too many kinds, the one learnt longest ago is forgotten."""
        self.exponents.pop(signature, None)
        self.exponents[signature] = following
        if len(self.exponents) > KINDS:
            del self.exponents[next(iter(self.exponents))]


@dataclass
class Carried:
    """Gradients that came too late for their sum, by signature. They go into the next sum of the same kind (error feedback;
    Seide et al., Interspeech 2014, carry what quantisation left over)."""

    rest: dict[Signature, Array] = field(default_factory=dict)

    def pop(self, signature: Signature) -> Array | None:
        """What earlier calls have left over. It belongs to the caller from here on."""
        return self.rest.pop(signature, None)

    def leave(self, signature: Signature, rest: Array) -> None:
        """Remember what a call could not contribute. Calls may overlap, so there may be something already. If the two
        together are no longer finite, the next call says so."""
        before = self.rest.get(signature)
        with np.errstate(over="ignore"):
            self.rest[signature] = rest if before is None else before + rest


@dataclass
class History:
    """A communicator's memory. ``count_redone(blocks)`` is told how many blocks a wrong prediction has cost."""

    count_redone: Callable[[int], None]
    predictions: Predictions = field(default_factory=Predictions)
    carried: Carried = field(default_factory=Carried)
