# SPDX-License-Identifier: MIT
"""Chooses the algorithm by the number of ranks and bytes: whichever was fastest when it was measured.

Tables are measured (docs/performance.md). The one that ships, ``selection.json`` beside this file, comes from one machine and its
loopback: a starting point that other networks need not confirm. :meth:`netsum.Communicator.tune` takes a better one: that of
:data:`PLACE_TABLE` in the user's state folder, which ``netsum bench algorithms`` writes, or what it measures itself.
``NETSUM_ALGORITHM`` or ``netsum.join(algorithm=...)`` overrides them all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

from netsum.settings import Table, read_table

TABLE_FILE: Final = Path(__file__).with_name("selection.json")
PLACE_TABLE: Final = "algorithms.json"


def choose(workers: int, nbytes: int, table: Table | None = None) -> str:
    """The algorithm for a batch of ``nbytes``: that of the nearest number of ranks and the nearest size that were measured.
    Without a table, by the one that ships."""
    table = table or measured()
    row = table[_nearest(workers, table)]
    return row[_nearest(nbytes, row)]


def _nearest(number: int, measured_ones: Iterable[int]) -> int:
    """The measured number with the smallest ratio to ``number``; if two tie, the smaller."""
    number = max(number, 1)
    return min(sorted(measured_ones), key=lambda one: max(one, number) / min(one, number))


@lru_cache(maxsize=1)
def measured() -> Table:
    """The table that ships."""
    return read_table(json.loads(TABLE_FILE.read_text("utf-8"))["fastest"])
