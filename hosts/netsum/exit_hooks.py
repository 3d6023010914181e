# SPDX-License-Identifier: MIT
"""Closes what a program has not closed when its interpreter ends, while threads still run: other ranks may wait for it."""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Callable
from itertools import count
from typing import Final, Protocol
from weakref import WeakValueDictionary

from netsum.fork_guard import in_child

log = logging.getLogger("netsum.exit")


class Closable(Protocol):
    """What can be closed, once or several times, within a few seconds."""

    def close(self) -> None: ...


_numbers: Final = count()
_open: Final[WeakValueDictionary[int, Closable]] = WeakValueDictionary()
_registered: Final[list[Callable[[], None]]] = []


def close_at_exit(opened: Closable) -> None:
    """Close this at the end of the process, unless it is gone by then; what was opened last is closed first."""
    _open[next(_numbers)] = opened
    if not _registered:
        atexit.register(_close_all)
        _registered.append(_close_all)
        if util := sys.modules.get("multiprocessing.util"):
            util.Finalize(None, _close_all, exitpriority=0)  # a process of multiprocessing may end without atexit


def still_open() -> list[Closable]:
    """Return what is to be closed at the end of the process."""
    return [opened for reference in _open.valuerefs() if (opened := reference()) is not None]


def _close_all() -> None:
    for number in sorted(_open, reverse=True):
        if (opened := _open.pop(number, None)) is not None:
            try:
                opened.close()
            except Exception as error:
                log.warning("what the program had not closed could not be closed at its end: %s", error)


in_child(_registered.clear)
in_child(_open.clear)
