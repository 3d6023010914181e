"""Ctrl-C, SIGTERM and SIGHUP: how they end a command, and when they wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_came = threading.Event()


def end_on_signals() -> None:
    """All three raise KeyboardInterrupt, so that SIGTERM and SIGHUP clean up as Ctrl-C does."""
    _came.clear()
    for number in _ENDING:
        signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    _came.set()
    raise KeyboardInterrupt


def raise_if_interrupted() -> None:
    """Raise an interrupt that a library has swallowed (as an extension module's import may); for loops that wait long."""
    if _came.is_set():
        raise KeyboardInterrupt


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Not a signal mask: another thread would take the signal, and Python's handler runs in this one all the same.
    before = {number: signal.signal(number, handler) for number in _ENDING}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ignore signals, so that a second one does not interrupt the cleanup after the first."""
    with _handled_by(signal.SIG_IGN):
        yield


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defer signals to the end. Interrupted gRPC calls leave locks taken, for which the cleanup would wait forever. Only for
    what takes about a second."""
    came: list[int] = []
    with _handled_by(lambda number, _frame: came.append(number)):
        yield
    if came:
        signal.raise_signal(came[0])
