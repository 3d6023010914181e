"""``netsum bench compare``: the switch, the host algorithms and Gloo on the same wires."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
from netsum.agent.tables import table_console

from netsum_testbed.bench.calls import Calls
from netsum_testbed.bench.compare import ALGORITHMS, Row, compare_all, missing, require_links
from netsum_testbed.bench.compare_rank import GLOO
from netsum_testbed.bench.frame import algorithms_option, plot_option, sizes_option
from netsum_testbed.bench.plots import Plots, in_bytes
from netsum_testbed.checking import comma, count_option, list_option, switch_option
from netsum_testbed.errors import TestbedError
from netsum_testbed.switches import choose_switch
from netsum_testbed.tables import make_table

RATE_MBPS: Final = 100
MOST_WORKERS: Final = 16


@click.command()
@switch_option("the embedded one, which takes more packets a second")
@count_option("--rate-mbps", default=RATE_MBPS, told="of every host's link, in each direction", most=1000)
@count_option(
    "--delay-us", default=0, told="how long a frame is under way on every link, each way", least=0, most=10**6
)
@list_option("--workers", int, 1, MOST_WORKERS, "2,4,8", "ranks, each on its own host")
@sizes_option("4K,4M", name="--size")
@algorithms_option(ALGORITHMS, comma(ALGORITHMS), "what is compared")
@count_option("--iterations", "--iters", "-n", default=5, told="timed calls of each")
@count_option("--warmup", "-w", default=1, told="calls of each before them", least=0)
@click.option(
    "--scale",
    type=click.Choice(["agreed", "predicted"]),  # scale "float" is for chains alone
    default="predicted",
    show_default=True,
    help="of netsum's sums, by the switch and by hosts",
)
@plot_option
def compare(
    switch: str,
    rate_mbps: int,
    delay_us: int,
    workers: tuple[int, ...],
    algorithms: tuple[str, ...],
    plot: Path | None,
    **given: Any,
) -> None:
    """Time an allreduce of float32 by the switch, the host algorithms and Gloo, on the same wires.

    The last line has "rows": algorithm, workers, size, time_us, link_bytes, stored_bytes (per host), wrong and more. Needs root
    and Mininet.
    """
    require_links()
    plots = None if plot is None else Plots(plot)
    lacking = missing(algorithms)
    for name, reason in lacking.items():
        click.echo(f"*** {name} IS NOT MEASURED: {reason} ***", err=True)
    there = [name for name in algorithms if name not in lacking]
    if not there:
        raise TestbedError("there is nothing left to compare")
    name, console = choose_switch("embedded" if switch == "auto" else switch), table_console()
    rows: list[Row] = []
    before = os.getloadavg()[0]
    with console.status("starting") as status:
        for number in workers:
            calls = Calls(workers=number, dtype="float32", places=1, **given)
            for found in compare_all(name, calls, there, rate_mbps, delay_us, status.update):
                rows += found
    links = f"links of {rate_mbps} Mbit/s" + (f", {delay_us} us long" if delay_us else "")
    table_console().print(_table(f"allreduce, {name} switch, {links}", rows))
    if plots is not None:
        _plot(plots, rows, links)
        click.echo(f"wrote {', '.join(str(path) for path in plots.made)}")
    about = {
        "switch": name,
        "rate_mbps": rate_mbps,
        "delay_us": delay_us,
        "scale": given["scale"],
        "iterations": given["iterations"],
        "missing": lacking,
        "cores": os.cpu_count(),
        "load_before": round(before, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
    }
    click.echo(json.dumps({"rows": [row.to_dict() for row in rows], **about}))


def _table(title: str, rows: Sequence[Row]) -> Any:
    columns = "workers", ">size\n(B)", "algorithm", ">time\n(us)", ">p99\n(us)", ">algbw\n(GB/s)", ">busbw\n(GB/s)"
    more = (
        ">link\n(arrays)",
        ">sent\n(arrays)",
        ">stored\n(arrays)",
        ">of the\nlink",
        ">of its\npayload",
        ">times\nthe ring",
        ">#wrong",
    )
    cells = (
        (
            *(str(row.line.workers), str(row.line.size), row.algorithm, f"{row.line.seconds[0] * 1e6:.0f}"),
            f"{row.line.percentile(0, 99) * 1e6:.0f}",
            *(f"{row.line.algbw(0):.5f}", f"{row.line.busbw(0):.5f}"),
            *(f"{nbytes / row.line.size:.2f}" for nbytes in (row.line.link[0], row.line.sent[0])),
            "" if row.algorithm == GLOO else f"{row.line.stored[0] / row.line.size:.2f}",
            *(f"{row.line.link_share(0):.1%}", f"{row.payload_share:.1%}"),
            "" if row.over_ring is None else f"{row.over_ring:.2f}",
            str(row.line.wrong[0]),
        )
        for row in rows
    )
    return make_table(title, (*columns, *more), cells)


def _plot(plots: Plots, rows: Sequence[Row], links: str) -> None:
    """The speed over the number of workers, a picture for each size."""
    for size in dict.fromkeys(row.line.size for row in rows):
        speed: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            if row.line.size == size:
                speed.setdefault(row.algorithm, []).append((row.line.workers, row.line.algbw(0)))
        title = f"allreduce of {in_bytes(size)} on {links}"
        plots.draw(f"compare-{in_bytes(size)}", speed, title, "workers", "algbw (GB/s)")
