"""How often keys were used recently: TinyLFU's sketch (Einziger, Friedman, Manes, 2017), which admits rows to RAM."""

from __future__ import annotations

from typing import Final

import numpy as np
from netsum.memory.keys import Keys, mixed

_DEPTH: Final = 4
_MOST: Final = 15
_SAMPLE: Final = 10
"""Counters are halved after this many uses per row in RAM, so that old popularity fades."""
_SEEDS: Final = mixed(np.arange(1, _DEPTH + 1, dtype=np.uint64))[:, None]


class Frequency:
    """A count-min sketch with counters up to 15."""

    def __init__(self, capacity: int) -> None:
        """``capacity``: rows that fit."""
        width = 1 << max(6, (4 * capacity - 1).bit_length())
        self._mask = np.uint64(width - 1)
        self._counters = np.zeros((_DEPTH, width), np.uint8)
        self._rows = np.arange(_DEPTH)[:, None]
        self._sample, self._seen = _SAMPLE * capacity, 0

    def add(self, keys: Keys) -> None:
        """These keys are used once each."""
        places = self._places(keys)
        counters = self._counters[self._rows, places]
        self._counters[self._rows, places] = np.minimum(counters + np.uint8(1), _MOST)
        self._seen += keys.size
        if self._seen >= self._sample:
            self._counters >>= np.uint8(1)
            self._seen //= 2

    def of(self, keys: Keys) -> list[int]:
        """How often each key was used recently; collisions can only add to it."""
        counted: list[int] = self._counters[self._rows, self._places(keys)].min(axis=0).tolist()
        return counted

    def _places(self, keys: Keys) -> Keys:
        return mixed(keys[None, :] ^ _SEEDS) & self._mask
