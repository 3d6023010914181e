"""The ``netsum matrix`` command."""

from __future__ import annotations

import sys
from typing import Any, Final

import click
from rich.console import Console

from netsum_testbed.commands import end_on_sigterm
from netsum_testbed.fabric import Fabric
from netsum_testbed.matrix.cells import WORKERS
from netsum_testbed.matrix.report import Totals, volume_table
from netsum_testbed.matrix.run import Options, Run
from netsum_testbed.opening import open_fabric
from netsum_testbed.switches import choose_switch
from netsum_testbed.verify.command import SWITCH_INTERVAL, progress_bar

TABLE_WIDTH: Final = 136
"""Columns that the table of bytes needs, also where there is no terminal."""


def _star(switch: str, *, rootless: bool) -> Fabric:
    return open_fabric(switch, hosts=max(WORKERS), rootless=rootless)


TOPOLOGIES: Final = {"star": _star}
"""By name, what opens a fabric of as many hosts as a cell may have ranks."""


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


def _comma(values: tuple[Any, ...]) -> str:
    return ",".join(map(str, values))


@click.command()
@click.option(
    "--switch",
    type=click.Choice(["auto", "bmv2", "embedded"]),
    default="auto",
    show_default=True,
    help="auto: simple_switch_grpc if it is on PATH (and we are root), else the embedded one",
)
@click.option(
    "--duration",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="seconds to start calls for",
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="everything follows from it")
@click.option("--jobs", type=click.IntRange(min=1), help="stop after so many jobs")
@click.option("--job", type=click.IntRange(min=0), help="only this job of the seed (to see it again)")
@click.option("--topology", type=click.Choice(list(TOPOLOGIES)), default="star", show_default=True)
@click.option("--workers", callback=_list_of(int, 1, max(WORKERS)), default=_comma(WORKERS), show_default=True)
@click.option("--sizes", callback=_list_of(int, 0, 1 << 24), default=_comma(Options.sizes), show_default=True)
@click.option("--losses", callback=_list_of(float, 0, 0.5), default=_comma(Options.losses), show_default=True)
@click.option("--rootless", is_flag=True, help="the embedded switch over loopback even when we are root")
def matrix(switch: str, topology: str, rootless: bool, **given: Any) -> None:
    """Make random calls of every collective, operation and type for a while, and check every result with numpy.

    Then each collective's bytes are measured against the formulas of the documentation. The last line is one JSON object; the
    exit code is 1 when anything was wrong.
    """
    if rootless and switch == "bmv2":
        raise click.UsageError("--rootless is for the embedded switch: simple_switch_grpc needs network interfaces")
    end_on_sigterm()
    console = Console()
    name = "embedded" if rootless else choose_switch(switch)
    options = Options(topology=topology, **given)
    totals = Totals(name, seed=options.seed)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        with progress_bar(console) as bar, TOPOLOGIES[topology](name, rootless=rootless) as fabric:
            where = type(fabric).__name__
            bar.console.print(f"matrix on the {name} switch ({where}, {topology}), seed {options.seed}")
            task = bar.add_task("", total=options.duration, note="")

            def say(line: str) -> None:
                bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

            def progress() -> None:
                note = f"{totals.cases} cells, {len(totals.kinds)} kinds, {totals.wrong} wrong"
                bar.update(task, completed=min(totals.seconds, options.duration), note=note)

            run = Run(fabric, options, totals, say=say, progress=progress)
            run.run()
            run.measure()
        Console(width=max(console.width, TABLE_WIDTH)).print(volume_table(totals.volumes))
    except KeyboardInterrupt:
        totals.interrupted = True
    finally:
        sys.setswitchinterval(interval)
    click.echo(totals.to_json())
    sys.exit(totals.exit_code)
