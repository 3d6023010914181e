# SPDX-License-Identifier: MIT
"""The memory of a communicator between calls of the same kind: predicted exponents, and gradients that came too late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from netsum.numeric.fixed_point import Array

KINDS: Final = 1024
"""The number of kinds of calls that predictions are kept for."""

Fingerprint = tuple[object, ...]
"""The values that must be equal on all ranks for their calls to be the same. Calls of one kind have the same fingerprint."""


@dataclass
class Predictions:
    """Exponents for the next call of the same kind, by fingerprint. They follow from results, so all ranks hold the same."""

    exponents: dict[Fingerprint, NDArray[np.int64]] = field(default_factory=dict)

    def learn(self, fingerprint: Fingerprint, following: NDArray[np.int64]) -> None:
        """Remember the exponents for the next call. If there are too many kinds, forget the one learnt longest ago."""
        self.exponents.pop(fingerprint, None)
        self.exponents[fingerprint] = following
        if len(self.exponents) > KINDS:
            del self.exponents[next(iter(self.exponents))]


@dataclass
class Carried:
    """Gradients that came too late for their sum, by fingerprint. They go into the next sum of the same kind (error feedback;
    Seide et al., Interspeech 2014, carry what quantization left over)."""

    residual: dict[Fingerprint, Array] = field(default_factory=dict)

    def pop(self, fingerprint: Fingerprint) -> Array | None:
        """Take what earlier calls have left over."""
        return self.residual.pop(fingerprint, None)

    def leave(self, fingerprint: Fingerprint, residual: Array) -> None:
        """Remember what a call could not contribute, in addition to what an overlapping call has left. If the sum is not finite,
        the next call says so."""
        before = self.residual.get(fingerprint)
        with np.errstate(over="ignore"):
            self.residual[fingerprint] = residual if before is None else before + residual


@dataclass
class History:
    """A communicator's memory. ``count_redone(blocks)`` is called with the number of blocks that a wrong prediction cost."""

    count_redone: Callable[[int], None]
    predictions: Predictions = field(default_factory=Predictions)
    carried: Carried = field(default_factory=Carried)
