# SPDX-License-Identifier: MIT
"""The programs ``netsum``, ``netsum-switch`` and ``netsum-memory``: they start what an extra brings, or say how to get it.

They are beside the package ``netsum``, not in it: that imports numpy, and Ctrl-C is one line from the first moment on.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as in a shell."""


def run(program: str, module: str, extra: str = "controller") -> Any:
    """Start ``main`` of a module; returns the exit code, if that does not exit itself. While it is imported, and after it has
    ended, nothing needs to be cleaned up: an interrupt ends the process at once, since an extension module that is being imported
    may turn KeyboardInterrupt into another error."""

    def end(*_: object) -> None:
        os.write(sys.stderr.fileno(), f"{program}: interrupted\n".encode())
        os._exit(INTERRUPTED)

    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as nohup does, and a shell's `&` in a script
    if not ignored:
        signal.signal(signal.SIGINT, end)
    try:
        start = import_module(module).main
    except ModuleNotFoundError as error:
        from netsum.extras import advice  # noqa: PLC0415 - numpy comes with it

        print(f"{program}: {error.name} is not installed: {advice(extra)}", file=sys.stderr)
        return 1
    try:
        if not ignored:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return start()
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return INTERRUPTED
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        if not ignored:
            signal.signal(signal.SIGINT, end)


def netsum() -> Any:
    """``netsum``, and ``python -m netsum``."""
    return run("netsum", "netsum_controller.cli")


def netsum_switch() -> Any:
    """``netsum-switch``."""
    return run("netsum-switch", "netsum_switch.cli")


def netsum_memory() -> Any:
    """``netsum-memory``."""
    return run("netsum-memory", "netsum_memory.cli", "memory")
