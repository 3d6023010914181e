"""Ctrl-C, SIGTERM and SIGHUP: how a command is ended, and when not."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_came = threading.Event()


def end_on_signals() -> None:
    """All three raise KeyboardInterrupt, so that SIGTERM and SIGHUP clear up as Ctrl-C does."""
    for number in _ENDING:
        signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    _came.set()
    raise KeyboardInterrupt


def raise_if_interrupted() -> None:
    """For loops that wait long: raise what a library has swallowed (an extension module's import may)."""
    if _came.is_set():
        raise KeyboardInterrupt


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Signals are ignored: a second one must not break off the clearing up after the first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Not a signal mask: another thread would take the signal, and Python's handler runs in this one all the same.
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Signals take effect at the end: gRPC's calls leave locks taken when they are broken off, and whoever clears up would
    wait for them for ever. For what takes a second."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: came.append(number)) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])
