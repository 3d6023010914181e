"""What the commands share that check something for a while (verify, matrix, soak, fuzz): options, progress, Ctrl-C, and the JSON
line and exit code at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import click
from netsum.descriptor import ALGORITHMS, SWITCH
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from netsum_testbed.switches import choose_switch

SWITCH_INTERVAL: Final = 0.0005
"""Seconds that a thread keeps the interpreter: the ranks are threads, and a result that waits for one is a late one."""

AUTO: Final = "simple_switch_grpc if it is on PATH (and we are root), else the embedded one"


def switch_option(auto: str = AUTO) -> Callable[[Any], Any]:
    """``--switch``; ``auto`` says what that stands for."""
    choice = click.Choice(["auto", "bmv2", "embedded"])
    return click.option("--switch", type=choice, default="auto", show_default=True, help=f"auto: {auto}")


def seed_option(what: str = "everything follows from it") -> Callable[[Any], Any]:
    """``--seed``."""
    return click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help=what)


algorithm_option = click.option(
    "--algorithm",
    type=click.Choice(ALGORITHMS),
    default=SWITCH,
    show_default=True,
    help="who combines: the switch, or the members themselves",
)
duration_option = click.option(
    "--duration",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="seconds to start calls for",
)
topology_option = click.option(
    "--topology",
    "topology_file",
    type=click.Path(path_type=Path),
    help="a YAML file [default: a star]",
)
rootless_option = click.option(
    "--rootless", is_flag=True, help="the embedded switch over loopback even when we are root"
)


def chosen_switch(switch: str, *, rootless: bool) -> str:
    """The switch that ``--switch`` and ``--rootless`` mean together."""
    if rootless and switch == "bmv2":
        raise click.UsageError("--rootless is for the embedded switch: simple_switch_grpc needs network interfaces")
    return "embedded" if rootless else choose_switch(switch)


class Counted(Protocol):
    """What a run counts; right at any moment."""

    interrupted: bool

    def to_json(self) -> str:
        """One line."""

    @property
    def exit_code(self) -> int:
        """1: something was wrong."""


@contextmanager
def counting(totals: Counted) -> Iterator[None]:
    """Around a run: Ctrl-C ends it, and what was counted is printed; then the program exits."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        yield
    except KeyboardInterrupt:
        totals.interrupted = True
    finally:
        sys.setswitchinterval(interval)
    click.echo(totals.to_json())
    sys.exit(totals.exit_code)


def progress_bar(console: Console) -> Progress:
    """What a task is, its time and a note; on a terminal, else only what is said is shown."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        disable=not console.is_terminal,
    )


def say_beside(bar: Progress) -> Callable[[str], None]:
    """Prints lines above the bar, as they are."""

    def say(line: str) -> None:
        bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    return say
