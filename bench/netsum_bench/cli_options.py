# SPDX-License-Identifier: MIT
"""Shared by the bench's commands: options, the check for root, and the last line."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import click
from netsum.text import parse_size
from netsum_testbed.checking import Decorator, switch_option
from netsum_testbed.errors import TestbedError
from netsum_testbed.netns import no_interfaces

every_switch = switch_option("every switch on this machine; without root the embedded one")


def read_size(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """``4096``, ``4K`` or ``1M``, as bytes."""
    try:
        return None if text is None else parse_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def read_sizes(context: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:
    """``4K,64K,1M``: bytes, with K, M or G."""
    return tuple(read_size(context, option, part) or 0 for part in text.split(","))


def size_option(default: str) -> Decorator:
    return click.option("--size", callback=read_size, default=default, show_default=True, help="of the array")


def sizes_option(default: str, text: str = "of arrays", name: str = "--sizes") -> Decorator:
    return click.option(name, "sizes", callback=read_sizes, default=default, show_default=True, help=text)


def file_option(*names: str, text: str) -> Decorator:
    return click.option(*names, type=click.Path(dir_okay=False, path_type=Path), help=text)


def names_option(name: str, known: Collection[str], text: str | None = None, variable: str | None = None) -> Decorator:
    """An option for some of the ``known`` names, each once: all of them, unless it is given."""

    def read(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        if len(set(names)) < len(names) or not set(names) <= set(known):
            raise click.BadParameter(f"{text!r} is not a list of some of {','.join(known)}")
        return names

    words = [name, *([variable] if variable else [])]
    return click.option(*words, callback=read, default=",".join(known), show_default=True, help=text)


def require_root(why: str, instead: str = "one of the other benches") -> None:
    """Raises TestbedError without root: ``why`` root is needed, and what to run ``instead``."""
    if reason := no_interfaces():
        raise TestbedError(f"{why}, and {reason}: run it as root, or {instead}")


def machine() -> dict[str, Any]:
    """The machine's properties that figures depend on."""
    return {"python": platform.python_version(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}


def print_figures(*parts: Mapping[str, Any]) -> None:
    """Print the last line: the parts in one JSON object, with the machine's properties, such as its load, that they lack."""
    found: dict[str, Any] = {}
    for part in parts:
        found |= part
    click.echo(json.dumps(found | {name: value for name, value in machine().items() if name not in found}))
