"""The ``netsum verify`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click
from netsum.descriptor import SWITCH
from netsum_controller.config.topologies import star
from netsum_controller.config.topology import load_topology
from rich.console import Console

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
    topology_option,
)
from netsum_testbed.interrupts import end_on_signals
from netsum_testbed.opening import fabric_of
from netsum_testbed.verify.cases import MAX_ELEMENTS, MAX_WORKERS
from netsum_testbed.verify.report import Totals
from netsum_testbed.verify.run import Options, Run

MOST_RANKS: Final = 64
"""Each is a thread here. A host has several where there are more than hosts."""


def worker_counts(_context: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
    """``4``, ``2,4,8`` or ``1-8``."""
    counts: list[int] = []
    try:
        for part in text.split(","):
            low, dash, high = part.partition("-")
            counts.extend(range(int(low), int(high if dash else low) + 1))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number, a list (2,4) or a range (1-8)") from None
    if not counts or not all(1 <= count <= MOST_RANKS for count in counts):
        raise click.BadParameter(f"{text!r}: workers must be within 1..{MOST_RANKS}")
    return tuple(counts)


@click.command()
@switch_option()
@duration_option
@click.option("--calls", type=click.IntRange(min=1), help="stop after so many calls")
@seed_option()
@click.option("--round", "round_", type=click.IntRange(min=0), help="only this round of the seed (to see it again)")
@click.option("--workers", callback=worker_counts, default="1-8", show_default=True, help="4, 2,4,8 or 1-8")
@topology_option
@click.option("--max-elements", type=click.IntRange(min=1, max=MAX_ELEMENTS), default=MAX_ELEMENTS, show_default=True)
@click.option("--loss", type=click.FloatRange(0, 0.5), default=0.0, help="drop this part of packets, each direction")
@click.option("--duplicate", type=click.FloatRange(0, 0.5), default=0.0, help="double this part of packets")
@click.option("--reorder", type=click.FloatRange(0, 0.5), default=0.0, help="hold back this part of packets")
@algorithm_option
@rootless_option
def verify(
    switch: str, round_: int | None, rootless: bool, duration: float, topology_file: Path | None, **given: Any
) -> None:
    """Make random allreduce calls for a while and check every result bit for bit.

    Results are compared with integer sums of the documented quantisation, with the error bound, and between the ranks.
    The last line is one JSON object; the exit code is 1 when anything was wrong or timed out.
    """
    name = chosen_switch(switch, rootless=rootless)
    end_on_signals()
    console = Console()
    topology = star(MAX_WORKERS) if topology_file is None else load_topology(topology_file)
    options = Options(duration=duration, round=round_, topology=topology_file, **given)
    totals = Totals(name, options.algorithm, seed=options.seed)
    with (
        counting(totals),
        progress_bar(console) as bar,
        fabric_of(topology, name, rootless=rootless) as fabric,
    ):
        where = f"{type(fabric).__name__}, {topology.name}"
        by = "" if options.algorithm == SWITCH else f" by {options.algorithm}"
        bar.console.print(f"verify{by} on the {name} switch ({where}), seed {options.seed}, {duration:g} s")
        task = bar.add_task("", total=duration, note="")

        def progress() -> None:
            note = f"{totals.calls} calls, {totals.elements:,} elements, {totals.wrong} wrong"
            bar.update(task, completed=min(totals.seconds, duration), note=note)

        Run(fabric, options, totals, say=say_beside(bar), progress=progress).run()
