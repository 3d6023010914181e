"""The programs ``netsum`` and ``netsum-switch``: they start what the extra `controller` brings, or say how to get it."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from netsum.installing import advice


def _run(program: str, module: str) -> Any:
    try:
        start = import_module(module).main
    except ModuleNotFoundError as error:
        print(f"{program}: {error.name} is not installed: {advice('controller')}", file=sys.stderr)
        return 1
    return start()


def netsum() -> Any:
    """``netsum``, and ``python -m netsum``."""
    return _run("netsum", "netsum_controller.cli")


def netsum_switch() -> Any:
    """``netsum-switch``."""
    return _run("netsum-switch", "netsum_switch.cli")
