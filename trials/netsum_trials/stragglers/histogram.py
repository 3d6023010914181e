"""A histogram of times in units of ``block_exp``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

WIDTH: Final = 0.1
FIRST, LAST = 0.9, 2.4
"""Bins of ``WIDTH`` from FIRST to LAST; what is below or beyond has a bin of its own."""


@dataclass(frozen=True)
class Histogram:
    """``shares`` of the values in the bins between ``edges``: the first bin is what is below the first edge, the last what
    is not below the last. ``within``: the share in [1, 2]."""

    edges: tuple[float, ...]
    shares: tuple[float, ...]
    within: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Histogram:
        """Of at least one value."""
        units = np.asarray(values, np.float64)
        edges = np.round(np.arange(FIRST, LAST + WIDTH / 2, WIDTH), 3)
        counts = np.bincount(np.searchsorted(edges, units, "right"), minlength=len(edges) + 1)
        within = float(((units >= 1) & (units <= 2)).mean())
        return cls(tuple(edges.tolist()), tuple((counts / len(units)).tolist()), within)

    def labels(self) -> list[str]:
        """What each bin is, in words."""
        inner = [f"{low:.1f} - {high:.1f}" for low, high in zip(self.edges, self.edges[1:], strict=False)]
        return [f"below {self.edges[0]:.1f}", *inner, f"{self.edges[-1]:.1f} and more"]
