"""``netsum bench congestion``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from netsum.agent.tables import table_console

from netsum_testbed.bench.congestion import CASES, CongestionPlan, Shares, measure, shares_table, write_over_time
from netsum_testbed.bench.frame import every_switch, file_option, print_figures, require_root
from netsum_testbed.checking import amount_option, count_option, names_of


@click.command()
@every_switch
@count_option("--rate-mbps", default=CongestionPlan.rate_mbps, told="of links", least=4)
@amount_option("--seconds", default=CongestionPlan.seconds, told="a case", least=2)
@count_option("--many", default=CongestionPlan.many, told="ranks of the job with short queues", most=32)
@file_option("--over-time", told="write each second's rates: CSV or JSON")
def congestion(switch: str, over_time: Path | None, **given: Any) -> None:
    """Time jobs on congested links: beside each other, beside TCP, and many ranks with short queues.

    Needs root: the links are shaped in network namespaces.
    """
    require_root("this bench makes network namespaces")
    names, plan, console = names_of(switch), CongestionPlan(**given), table_console()
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
    print_figures(figures, asdict(plan))
