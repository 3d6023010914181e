"""SIGUSR1: a rank prints the stacks of its threads and what its calls wait for, and goes on.

The handler is faulthandler's, in C, and a thread prints what the calls wait for: while the main thread waits in an extension,
as in DDP, it runs no handler of Python's. ``signal.getsignal`` does not show this one, so what sets its own only where there is
none, as PyTorch Lightning does, still sets it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import select
import signal
import threading
from typing import Final

from netsum.core.progress import ProgressEngine
from netsum.exit_hooks import still_open
from netsum.fork_guard import in_child

_STDERR: Final = 2
_MOST: Final = 1 << 20
"""Bytes of stacks that are kept until they are printed."""
_PAUSE: Final = 100
"""Milliseconds without another line after which all stacks are there."""
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
    stacks, handler = os.pipe()
    os.set_blocking(handler, False)  # the signal may come to a thread that has the interpreter, which the reader needs
    with contextlib.suppress(OSError):  # then they may be cut off after 64 KiB
        fcntl.fcntl(handler, fcntl.F_SETPIPE_SZ, _MOST)
    _registered.append(handler)
    threading.Thread(target=_print_each, args=(stacks,), name="netsum status", daemon=True).start()
    faulthandler.register(signal.SIGUSR1, handler)


def _print_each(stacks: int) -> None:
    more = select.poll()
    more.register(stacks, select.POLLIN)
    while text := os.read(stacks, _MOST):
        while more.poll(_PAUSE):
            text += os.read(stacks, _MOST)
        with contextlib.suppress(OSError):
            os.write(_STDERR, text)
        for engine in still_open():
            if isinstance(engine, ProgressEngine):
                engine.print_status()


def _print_directly() -> None:
    """A child process prints its own stacks: the pipe is its parent's."""
    if _registered:
        faulthandler.register(signal.SIGUSR1, _STDERR)


in_child(_print_directly)
