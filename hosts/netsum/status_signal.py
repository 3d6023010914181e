# SPDX-License-Identifier: MIT
"""SIGUSR1: a rank prints the stacks of its threads and what its calls wait for, and goes on.

The handler is faulthandler's, in C, and a thread prints: the main thread runs no handler of Python's while it waits in an
extension, as it does in DDP. What the handler writes only wakes that thread, which prints the stacks while it has the
interpreter; to read those of threads that run meanwhile would crash. ``signal.getsignal`` does not show this handler, so what
sets its own only where there is none, as PyTorch Lightning does, still sets it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
import threading
from typing import Final

from netsum.core.progress import ProgressEngine
from netsum.exit_hooks import still_open
from netsum.fork_guard import in_child

_STDERR: Final = 2
_SOME: Final = 1 << 16
"""Bytes that are read at once."""
_PAUSE: Final = 100
"""Milliseconds without another byte after which the handler has written all."""
_registered: Final[list[int]] = []


def handles(pid: int, number: signal.Signals) -> bool:
    """True if the process has a handler for the signal. Where there is no ``/proc``, False."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, _, mask = line.partition(":")
            if name == "SigCgt":
                return bool(int(mask, 16) >> (number - 1) & 1)
    return False


def print_status_on_signal() -> None:
    """Print stacks and calls to standard error on SIGUSR1 from now on, unless the program handles or ignores that signal."""
    if signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL or handles(os.getpid(), signal.SIGUSR1):
        return
    wakes, handler = os.pipe()
    os.set_blocking(handler, False)  # the signal may come to a thread that has the interpreter, which the reader needs
    _registered.append(handler)
    threading.Thread(target=_print_each, args=(wakes,), name="netsum status", daemon=True).start()
    faulthandler.register(signal.SIGUSR1, handler, all_threads=False)


def _print_each(wakes: int) -> None:
    more = select.poll()
    more.register(wakes, select.POLLIN)
    while os.read(wakes, _SOME):
        while more.poll(_PAUSE):
            os.read(wakes, _SOME)
        with contextlib.suppress(OSError):
            faulthandler.dump_traceback(_STDERR)
        for engine in still_open():
            if isinstance(engine, ProgressEngine):
                engine.print_status()


def _print_directly() -> None:
    """A child process prints the stack of its main thread: the pipe is its parent's."""
    if _registered:
        faulthandler.register(signal.SIGUSR1, _STDERR, all_threads=False)


in_child(_print_directly)
