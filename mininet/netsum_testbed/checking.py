# SPDX-License-Identifier: MIT
"""Shared by commands that check or measure for a while: options, progress, totals, Ctrl-C, the final JSON line and exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, fields
from itertools import count
from pathlib import Path
from typing import Any, Final

import click
from netsum.cli.tables import table_console
from netsum.descriptor import SWITCH
from netsum_controller.cli.options import Algorithm
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from netsum_testbed.interrupts import end_on_signals, interrupted_code
from netsum_testbed.switches import choose_switch, usable_switches

Decorator = Callable[[Any], Any]

SWITCH_INTERVAL: Final = 0.0005
"""Seconds that a thread keeps the interpreter: the ranks are threads, and a result must not wait long for one."""


def switch_option(auto: str = "simple_switch_grpc if it is on PATH (and root), else the embedded one") -> Decorator:
    """The option ``--switch``; ``auto`` says what that stands for."""
    choice = click.Choice(["auto", "bmv2", "embedded"])
    return click.option("--switch", type=choice, default="auto", show_default=True, help=f"auto: {auto}")


def seed_option(what: str = "everything follows from it") -> Decorator:
    return click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help=what)


def only_option(what: str, also: str) -> Decorator:
    """The option ``--only NUMBER`` for one round, job or batch of a seed; ``also``: an older name of the option."""
    text = f"only this {what} of the seed, to repeat it"
    return click.option("--only", also, "only", type=click.IntRange(min=0), help=text)


def list_option(name: str, kind: type, low: float, high: float, default: str | None, text: str = "") -> Decorator:
    """An option that takes ``1,2,4``, each within bounds. Integers may also be ranges: ``1-8``. Without a default it is empty."""

    def read(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[Any, ...]:
        values: list[Any] = []
        if text is None:
            return ()
        try:
            for word in text.split(","):
                first, dash, last = word.partition("-") if kind is int else (word, "", "")
                values += range(int(first), int(last) + 1) if dash else [kind(word)]
        except ValueError:
            raise click.BadParameter(f"{text!r} is not a list of numbers like {low:g},{high:g}") from None
        if not values or not all(low <= value <= high for value in values):
            raise click.BadParameter(f"{text!r}: each must be within {low:g}..{high:g}")
        return tuple(values)

    return click.option(name, callback=read, default=default, show_default=True, help=text)


def count_option(*names: str, default: int, text: str, least: int = 1, most: int | None = None) -> Decorator:
    """An option for an integer within bounds."""
    return click.option(*names, type=click.IntRange(least, most), default=default, show_default=True, help=text)


def amount_option(
    name: str, *, default: float, text: str, least: float = 0, most: float | None = None, above: bool = False
) -> Decorator:
    """An option for a number within bounds, such as seconds; ``above``: it must be more than ``least``."""
    kind = click.FloatRange(least, most, min_open=above)
    return click.option(name, type=kind, default=default, show_default=True, help=text)


def comma(values: Any) -> str:
    """The numbers as :func:`list_option` takes them."""
    return ",".join(map(str, values))


def numbers_from(first: int, only: int | None) -> Iterable[int]:
    """The rounds, jobs or batches to make: ``only`` one, or all from ``first`` on."""
    return count(first) if only is None else [only]


algorithm_option = click.option(
    "--algorithm",
    type=Algorithm(),
    default=SWITCH,
    show_default=True,
    help="who combines: the switch, or the members themselves",
)
duration_option = amount_option("--duration", default=60.0, text="seconds during which calls are started", above=True)
topology_option = click.option(
    "--topology",
    type=click.Path(path_type=Path),
    help="a YAML file [default: a star]",
)
rootless_option = click.option("--rootless", is_flag=True, help="the embedded switch over the loopback, even as root")


def option_words(options: Any, *names: str) -> list[str]:
    """The command-line options that set a dataclass's fields ``names`` where they differ from their defaults."""
    usual = {field.name: field.default for field in fields(options) if field.default is not MISSING}
    given = {name: getattr(options, name) for name in names if getattr(options, name) != usual[name]}
    return [f"--{name.replace('_', '-')} {comma(value) if isinstance(value, tuple) else value}" for name, value in given.items()]


def chosen_switch(switch: str, *, rootless: bool) -> str:
    """The switch that ``--switch`` and ``--rootless`` mean together."""
    if rootless and switch == "bmv2":
        raise click.UsageError("--rootless is for the embedded switch: simple_switch_grpc needs network interfaces")
    return "embedded" if rootless else choose_switch(switch)


def names_of(switch: str) -> list[str]:
    """The switches that ``--switch`` means where several are measured, one after the other."""
    return usable_switches() if switch == "auto" else [choose_switch(switch)]


@dataclass
class Totals:
    """The counts of a run; consistent at any moment."""

    switch: str
    seed: int = 0
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def made(self) -> int:
        """The number of checks; none proves nothing."""
        raise NotImplementedError

    @property
    def failures(self) -> int:
        """The number of errors."""
        raise NotImplementedError

    @property
    def done(self) -> float:
        """The progress, in the unit of the bar."""
        return self.seconds

    @property
    def note(self) -> str:
        """The text beside the bar."""
        return ""

    @property
    def exit_code(self) -> int:
        """0 if all went well, 1 if something was wrong or nothing was tried, 130 if Ctrl-C ended the run, 143 or 129 if
        SIGTERM or SIGHUP did."""
        if self.failures:
            return 1
        if self.interrupted:
            return interrupted_code()
        return 0 if self.made else 1

    def figures(self) -> dict[str, Any]:
        """The last line as data."""
        return asdict(self) | {"seconds": round(self.seconds, 1)}

    def to_json(self) -> str:
        """One line."""
        return json.dumps(self.figures())


class Screen:
    """The display of a run: lines and, on a terminal, a bar below them."""

    def __init__(self, say: Callable[[str], None] = print, bar: Progress | None = None) -> None:
        self.say = say
        self._bar = bar
        self._task: TaskID | None = None
        self._total = 0.0

    def begin(self, total: float, what: str = "") -> None:
        """Start a new bar."""
        self._total = total
        if self._bar is not None:
            self._task = self._bar.add_task(what, total=total, note="")

    def show(self, totals: Totals) -> None:
        """Update the bar."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=min(totals.done, self._total), note=totals.note)


@contextmanager
def running(totals: Totals, console: Console | None = None) -> Iterator[Screen]:
    """Wrap a run: Ctrl-C, SIGTERM and SIGHUP end it, the totals are printed as the last line, and the program exits with their
    code."""
    end_on_signals()
    console = console or table_console()
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        disable=not console.is_terminal,
    )

    def say(line: str) -> None:
        bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        with bar:
            yield Screen(say, bar)
    except KeyboardInterrupt:
        totals.interrupted = True
    finally:
        sys.setswitchinterval(interval)
    click.echo(totals.to_json())
    sys.exit(totals.exit_code)
