"""Chooses the algorithm by the number of ranks and bytes: whichever was fastest when it was measured.

The table is ``choice.json`` beside this file, written by ``make algorithms`` (docs/measuring.md) on one machine over loopback:
a starting point that other networks need not confirm. ``NETSUM_ALGORITHM`` or ``netsum.join(algorithm=...)`` overrides it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

TABLE_FILE: Final = Path(__file__).with_name("choice.json")

Table = dict[int, dict[int, str]]
"""Number of ranks -> bytes of a batch -> the algorithm."""


def choose(workers: int, nbytes: int) -> str:
    """The algorithm for a batch of ``nbytes``: that of the nearest number of ranks and the nearest size that were measured."""
    table = measured()
    row = table[_nearest(workers, table)]
    return row[_nearest(nbytes, row)]


def _nearest(number: int, measured_ones: Iterable[int]) -> int:
    """The measured number with the smallest ratio to ``number``; if two tie, the smaller."""
    number = max(number, 1)
    return min(sorted(measured_ones), key=lambda one: max(one, number) / min(one, number))


@lru_cache(maxsize=1)
def measured() -> Table:
    data = json.loads(TABLE_FILE.read_text("utf-8"))
    return {
        int(workers): {int(size): str(name) for size, name in sizes.items()}
        for workers, sizes in data["fastest"].items()
    }
