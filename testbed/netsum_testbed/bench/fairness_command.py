"""``netsum bench fairness`` and ``priorities``: jobs side by side, on each switch."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import click
from netsum.counting import counted
from netsum_controller.config.topologies import star
from rich.console import Console
from rich.table import Table

from netsum_testbed.bench.fairness import Setting, Summary, measure_all
from netsum_testbed.opening import fabric_of
from netsum_testbed.tables import make_table


def bench_fairness(names: Sequence[str], setting: Setting, neighbours: Sequence[str]) -> None:
    """Measure, show the results, and print the line of JSON."""
    console = Console()
    topology = star(setting.hosts, rate_mbps=setting.rate_mbps)
    found: dict[str, dict[str, object]] = {}
    for name in names:
        with console.status(f"{name}: starting") as status, fabric_of(topology, name) as fabric:
            summaries = measure_all(fabric, setting, neighbours, status.update)
        console.print(_table(name, setting, summaries))
        found[name] = {neighbour: summary.to_dict() for neighbour, summary in summaries.items()}
    click.echo(json.dumps({**found, **asdict(setting), "cores": os.cpu_count()}))


def _table(name: str, setting: Setting, summaries: Mapping[str, Summary]) -> Table:
    title = (
        f"{name}: allreduce of {setting.size} bytes, {counted(setting.workers, 'worker')}, medians of {setting.turns}"
    )
    if setting.rate_mbps is not None:
        title += f"; a host sends {setting.rate_mbps} Mbit/s at most"
    columns = "beside", ">calls/s", ">slowdown", ">its calls/s", ">Jain", ">its packets/s", ">#wrong"
    rows = (
        (
            neighbour,
            f"{found.rate:.1f}",
            f"{found.slowdown:.2f}",
            "" if found.neighbour_rate is None else f"{found.neighbour_rate:.1f}",
            "" if found.jain is None else f"{found.jain:.3f}",
            "" if found.neighbour_pps is None else f"{found.neighbour_pps:.0f}",
            str(found.wrong),
        )
        for neighbour, found in summaries.items()
    )
    return make_table(title, columns, rows)
