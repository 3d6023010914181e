"""``netsum bench optimizer``: the optimizer in every rank and at the memory, on each switch."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from netsum.agent.tables import table_console
from netsum_controller.config.topologies import star

from netsum_testbed.bench.frame import every_switch, plot_option, sizes_option
from netsum_testbed.bench.optimizer import WAYS, Optimizers, optimizer_table
from netsum_testbed.bench.plots import Plots
from netsum_testbed.checking import count_option, names_of
from netsum_testbed.commands import open_topology, without_mininet


@click.command()
@every_switch
@sizes_option("64K,256K,1M", "of the parameters")
@count_option("--workers", default=Optimizers.workers, told="ranks, each on its own host", least=1, most=16)
@count_option("--devices", default=Optimizers.devices, told="hosts that serve memory", least=1, most=16)
@count_option("--steps", default=Optimizers.steps, told="timed, of each way")
@plot_option
def optimizer(switch: str, sizes: tuple[int, ...], plot: Path | None, **given: Any) -> None:
    """Time Adam in every rank, after an allreduce, and at the memory: each rank pushes, or rank 0 what the switch has summed.

    Counts the bytes of frames that rank 0 sends and receives in a step, that all ranks send to memory, and that memory sends.
    """
    plots = None if plot is None else Plots(plot)
    plan, console, reason = Optimizers(sizes=sizes, **given), table_console(), without_mininet()
    found: dict[str, list[dict[str, Any]]] = {}
    for name in names_of(switch):
        topology = star(plan.workers + plan.devices)
        with console.status(name), open_topology(topology, name, reason, console) as fabric:
            found[name] = plan.run(fabric)
        table_console().print(optimizer_table(name, plan, found[name]))
        if plots is not None:
            _plot(plots, name, found[name])
    if plots is not None:
        click.echo(f"wrote {', '.join(str(path) for path in plots.made)}")
    click.echo(json.dumps({**found, **asdict(plan), "cores": os.cpu_count(), "load": os.getloadavg()[0]}))


def _plot(plots: Plots, switch: str, runs: list[dict[str, Any]]) -> None:
    title = f"a step of Adam, {switch} switch"
    for file, key, up in (("time", "step_ms", "time (ms)"), ("bytes", "to_memory", "sent to memory by all (bytes)")):
        curves = {way: [(run["size"], run[way][key]) for run in runs] for way in WAYS}
        plots.draw(f"optimizer-{switch}-{file}", curves, title, "parameters (bytes)", up, sizes=True)
