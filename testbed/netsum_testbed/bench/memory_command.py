"""``netsum bench memory``: rates and latencies of memory in the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import click
from netsum.agent.tables import table_console
from rich.table import Table

from netsum_testbed.bench.frame import every_switch, print_figures, sizes_option
from netsum_testbed.bench.memory import (
    DEVICES,
    Figures,
    MemoryPlan,
    Skewed,
    behind,
    measure_all,
    measure_skewed,
    on_loopback,
)
from netsum_testbed.checking import amount_option, count_option, names_of
from netsum_testbed.fabrics import open_fabric
from netsum_testbed.tables import make_table

SKEWED = ("interleaved", "not interleaved")


@click.command("memory")
@every_switch
@sizes_option("64,1K,8K", "bytes of an instruction")
@amount_option("--seconds", default=MemoryPlan.seconds, told="a load", least=0.05)
@count_option("--turns", default=MemoryPlan.turns, told="of everything")
@count_option("--latencies", default=MemoryPlan.latencies, told="single instructions of each load")
def bench_memory(switch: str, sizes: Sequence[int], **given: Any) -> None:
    """Time reads and writes of memory in the network: a device beside a bare UDP echo, interleaved and replicated regions.

    As root in network namespaces, otherwise over the loopback.
    """
    wrong = [size for size in sizes if size & (size - 1) or not 8 <= size <= 8192]
    if wrong:
        raise click.UsageError(f"--sizes: an instruction here is about 8, 16, ... or 8192 bytes, not {wrong[0]}")
    plan = MemoryPlan(sizes=tuple(sizes), **given)
    console = table_console()
    found: dict[str, Any] = {}
    with console.status("without a switch") as status:
        with on_loopback() as targets:
            figures = measure_all(targets, plan, status.update)
        console.print(_table("over the kernel's UDP, without a switch", figures))
        found["loopback"] = _to_dict(figures)
        for name in names_of(switch):
            status.update(f"{name}: starting")
            with open_fabric(name, hosts=DEVICES + 3) as fabric, ExitStack() as stack:
                targets = behind(fabric, stack)
                figures = measure_all(targets, plan, lambda text, name=name: status.update(f"{name}: {text}"))  # type: ignore[misc]
                skewed = {each: measure_skewed(fabric, targets[each], plan.turns * plan.seconds) for each in SKEWED}
            console.print(_table(f"{DEVICES} devices behind {name}", figures))
            console.print(_skewed_table(name, skewed))
            found[name] = {**_to_dict(figures), "skewed": {each: what.to_dict() for each, what in skewed.items()}}
    print_figures(found)


def _to_dict(figures: Figures) -> dict[str, Any]:
    return {
        name: {load: {str(size): each.to_dict() for size, each in by_size.items()} for load, by_size in loads.items()}
        for name, loads in figures.items()
    }


def _table(title: str, figures: Figures) -> Table:
    columns = ("", "load", ">bytes", ">per second", ">MB/s", ">p50 us", ">p99 us")
    rows = (
        (
            name,
            load,
            str(size),
            f"{each.rate:,.0f}",
            f"{each.rate * size / 1e6:.1f}",
            f"{each.percentile_us(0.5):.0f}",
            f"{each.percentile_us(0.99):.0f}",
        )
        for name, loads in figures.items()
        for load, by_size in loads.items()
        for size, each in by_size.items()
    )
    return make_table(title, columns, rows)


def _skewed_table(name: str, skewed: Mapping[str, Skewed]) -> Table:
    rows = (
        (each, f"{what.per_second:,.0f}", " ".join(f"{share:.0%}" for share in what.shares))
        for each, what in skewed.items()
    )
    return make_table(f"READs by Zipf's law, behind {name}", ("", ">per second", "devices' shares"), rows)
