"""The programs ``netsum``, ``netsum-switch`` and ``netsum-memory``: they start what an extra brings, or say how to get it."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from netsum.installing import advice


def _run(program: str, module: str, extra: str = "controller") -> Any:
    try:
        start = import_module(module).main
    except ModuleNotFoundError as error:
        print(f"{program}: {error.name} is not installed: {advice(extra)}", file=sys.stderr)
        return 1
    return start()


def netsum() -> Any:
    """``netsum``, and ``python -m netsum``."""
    return _run("netsum", "netsum_controller.cli")


def netsum_switch() -> Any:
    """``netsum-switch``."""
    return _run("netsum-switch", "netsum_switch.cli")


def netsum_memory() -> Any:
    """``netsum-memory``."""
    return _run("netsum-memory", "netsum_memory.cli", "memory")
