"""``netsum bench congestion``."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from netsum_testbed.bench.congestion import CASES, CongestionPlan, Shares, measure, shares_table, write_over_time
from netsum_testbed.errors import TestbedError


def bench_congestion(names: Sequence[str], plan: CongestionPlan, over_time: Path | None) -> None:
    """Measure, show the results, and print the line of JSON."""
    if os.geteuid() != 0:
        raise TestbedError("this bench makes network namespaces: run it as root, or one of the other benches")
    console = Console()
    found: list[tuple[str, Shares]] = []
    for name in names:
        with console.status(f"{name}: starting") as status:
            for case in CASES:
                status.update(f"{name}: {case}")
                found.append((name, measure(name, case, plan)))
        console.print(shares_table(name, plan, [each for switch, each in found if switch == name]))
    if over_time is not None:
        write_over_time(over_time, found)
    figures = {name: {each.case: each.to_dict() for switch, each in found if switch == name} for name in names}
    click.echo(json.dumps({**figures, **asdict(plan), "cores": os.cpu_count(), "load": os.getloadavg()[0]}))
