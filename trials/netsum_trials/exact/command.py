"""The ``make matrix`` command."""

from __future__ import annotations

from typing import Any, Final

import click
from netsum.descriptor import SWITCH
from netsum_testbed.checking import (
    algorithm_option,
    chosen_switch,
    counting,
    duration_option,
    progress_bar,
    rootless_option,
    say_beside,
    seed_option,
    switch_option,
)
from netsum_testbed.interrupts import end_on_signals
from netsum_testbed.opening import fabric_of
from rich.console import Console

from netsum_trials.exact.cells import WORKERS
from netsum_trials.exact.report import Totals, table_of
from netsum_trials.exact.run import Options, Run
from netsum_trials.exact.shapes import TOPOLOGIES

TABLE_WIDTH: Final = 136
"""Columns that the table of bytes needs, also where there is no terminal."""


def _list_of(kind: type, low: float, high: float) -> Any:
    """A callback that reads ``1,2,4``."""

    def read(_context: click.Context, _option: click.Parameter, text: str) -> tuple[Any, ...]:
        try:
            values = tuple(kind(word) for word in text.split(","))
        except ValueError:
            raise click.BadParameter(f"{text!r} is not a list of numbers (1,2,4)") from None
        if not all(low <= value <= high for value in values):
            raise click.BadParameter(f"{text!r}: numbers must be within {low:g}..{high:g}")
        return values

    return read


def _names(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, ...]:
    """A callback that reads ``star,tree``."""
    names = tuple(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in TOPOLOGIES:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(TOPOLOGIES)}")
    return names


def _comma(values: tuple[Any, ...]) -> str:
    return ",".join(map(str, values))


@click.command()
@switch_option()
@duration_option
@seed_option()
@click.option("--jobs", type=click.IntRange(min=1), help="on each topology, stop after so many jobs")
@click.option("--job", type=click.IntRange(min=0), help="only this job of the seed (to see it again)")
@click.option("--topology", "topologies", callback=_names, default=_comma(tuple(TOPOLOGIES)), show_default=True)
@click.option("--workers", callback=_list_of(int, 1, max(WORKERS)), default=_comma(WORKERS), show_default=True)
@click.option("--sizes", callback=_list_of(int, 0, 1 << 24), default=_comma(Options.sizes), show_default=True)
@click.option("--losses", callback=_list_of(float, 0, 0.5), default=_comma(Options.losses), show_default=True)
@algorithm_option
@rootless_option
def matrix(switch: str, rootless: bool, **given: Any) -> None:
    """Make random calls of every collective, operation and type for a while, and check every result with numpy.

    The topologies share the time, one after the other. On the first, each collective's bytes are measured against the
    formulas of the documentation. The last line is one JSON object; the exit code is 1 when anything was wrong.
    """
    name = chosen_switch(switch, rootless=rootless)
    end_on_signals()
    console = Console()
    options = Options(**given)
    totals = Totals(name, options.algorithm, seed=options.seed)
    with counting(totals):
        with progress_bar(console) as bar:
            task = bar.add_task("", total=options.duration, note="")

            def progress() -> None:
                note = f"{totals.cases} cells, {len(totals.kinds)} kinds, {totals.wrong} wrong"
                bar.update(task, completed=min(totals.seconds, options.duration), note=note)

            for topology in options.topologies:
                bar.update(task, note=f"{topology}: starting")
                with fabric_of(TOPOLOGIES[topology](), name, rootless=rootless) as fabric:
                    where = f"{type(fabric).__name__}, {topology} of {len(fabric.topology.switches)}"
                    by = "" if options.algorithm == SWITCH else f" by {options.algorithm}"
                    bar.console.print(f"matrix{by} on the {name} switch ({where}), seed {options.seed}")
                    run = Run(fabric, options, totals, say_beside(bar), progress, topology)
                    run.run()
                    if not totals.volumes:
                        run.measure()
        Console(width=max(console.width, TABLE_WIDTH)).print(table_of(totals))
