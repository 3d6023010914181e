"""``netsum bench fairness`` and ``priorities``: jobs side by side, on each switch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click
from netsum.agent.tables import table_console
from netsum.text import counted
from netsum_controller.config.topologies import star
from rich.table import Table

from netsum_testbed.bench.fairness import NEIGHBORS, Setting, Summary, measure_all
from netsum_testbed.bench.frame import every_switch, print_figures, sizes_option
from netsum_testbed.checking import amount_option, count_option, names_of
from netsum_testbed.fabrics import fabric_of
from netsum_testbed.tables import make_table


def _command(name: str, told: str) -> click.Command:
    @click.command(name, help=told)
    @every_switch
    @sizes_option("256K", "of the arrays; the first counts")
    @count_option("--workers", default=Setting.workers, told="ranks of each job", most=8)
    @amount_option("--seconds", default=Setting.seconds, told="a case", least=0.1)
    @count_option("--repetitions", default=Setting.turns, told="of each case")
    @click.option("--rate-mbps", type=click.IntRange(min=1), help="what a host may send")
    def command(switch: str, sizes: Sequence[int], repetitions: int, **given: Any) -> None:
        measure_beside(NEIGHBORS[name], names_of(switch), Setting(size=sizes[0], turns=repetitions, **given))

    return command


fairness = _command("fairness", "Time a job beside others: an equal one, and some that misbehave.")
priorities = _command("priorities", "Time a job beside others of the same, a lower and a higher priority.")


def measure_beside(neighbors: Sequence[str], names: Sequence[str], setting: Setting) -> None:
    """Measure, show the results, and print the line of JSON."""
    console = table_console()
    topology = star(setting.hosts, rate_mbps=setting.rate_mbps)
    found: dict[str, dict[str, object]] = {}
    for name in names:
        with console.status(f"{name}: starting") as status, fabric_of(topology, name) as fabric:
            summaries = measure_all(fabric, setting, neighbors, status.update)
        console.print(_table(name, setting, summaries))
        found[name] = {neighbor: summary.to_dict() for neighbor, summary in summaries.items()}
    print_figures(found, asdict(setting))


def _table(name: str, setting: Setting, summaries: Mapping[str, Summary]) -> Table:
    title = (
        f"{name}: allreduce of {setting.size} bytes, {counted(setting.workers, 'worker')}, medians of {setting.turns}"
    )
    if setting.rate_mbps is not None:
        title += f"; a host sends {setting.rate_mbps} Mbit/s at most"
    columns = "beside", ">calls/s", ">slowdown", ">its calls/s", ">Jain", ">its packets/s", ">#wrong"
    rows = (
        (
            neighbor,
            f"{found.rate:.1f}",
            f"{found.slowdown:.2f}",
            "" if found.neighbour_rate is None else f"{found.neighbour_rate:.1f}",
            "" if found.jain is None else f"{found.jain:.3f}",
            "" if found.neighbour_pps is None else f"{found.neighbour_pps:.0f}",
            str(found.wrong),
        )
        for neighbor, found in summaries.items()
    )
    return make_table(title, columns, rows)
