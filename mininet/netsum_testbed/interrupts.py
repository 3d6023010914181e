# SPDX-License-Identifier: MIT
"""Ctrl-C, SIGTERM and SIGHUP: how they end a command, and when they wait. One that was ignored when the command began (as nohup
does with SIGHUP) stays ignored, here and in child processes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNALED: Final = 128
"""A process that a signal has ended counts as failed with this plus the signal's number, as in a shell."""
Handler = Callable[[int, FrameType | None], object] | signal.Handlers
_came: list[int] = []


def interrupted_code() -> int:
    """The exit code of a command that was interrupted, as a shell shows it: 143 after SIGTERM, 129 after SIGHUP, else 130."""
    return SIGNALED + (_came[-1] if _came else signal.SIGINT)


class EndedBySignal(KeyboardInterrupt):
    """Raised for each of these signals; ``exit_code`` is the command's."""

    def __init__(self) -> None:
        self.exit_code = interrupted_code()


def end_on_signals() -> None:
    """All three raise :class:`EndedBySignal`, so that SIGTERM and SIGHUP clean up as Ctrl-C does."""
    _came.clear()
    for number in _not_ignored(_ENDING):
        signal.signal(number, _interrupt)


def _not_ignored(numbers: Sequence[signal.Signals]) -> list[signal.Signals]:
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def _interrupt(number: int, _frame: FrameType | None) -> None:
    _came.append(number)
    raise EndedBySignal


def raise_if_interrupted() -> None:
    """Raise an interrupt that a library has swallowed (as an extension module's import may); for loops that wait long."""
    if _came:
        raise EndedBySignal


@contextmanager
def handled_by(handler: Handler, numbers: Sequence[signal.Signals]) -> Iterator[None]:
    """Handle these signals, unless they are ignored; has no effect in a thread other than the main one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Not a signal mask: another thread would take the signal, and Python's handler runs in this one all the same.
    before = {number: signal.signal(number, handler) for number in _not_ignored(numbers)}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ignore signals, so that a second one does not interrupt the cleanup after the first."""
    with handled_by(signal.SIG_IGN, _ENDING):
        yield


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defer signals to the end. Interrupted gRPC calls leave locks taken, for which the cleanup would wait forever. Only for
    what takes about a second."""
    came: list[int] = []
    with handled_by(lambda number, _frame: came.append(number), _ENDING):
        yield
    if came:
        signal.raise_signal(came[0])
