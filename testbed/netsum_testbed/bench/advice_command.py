"""``netsum advise``: will a switch make my training faster?"""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from pathlib import Path

import click
from netsum.agent.tables import table_console

from netsum_testbed.bench.advice import MEASURED, basis, check, forecast, read
from netsum_testbed.bench.compare_rank import GLOO
from netsum_testbed.bench.frame import read_size
from netsum_testbed.tables import make_table


@click.command(short_help="Say whether a switch would make a training faster.")
@click.option("--gradients", "size", callback=read_size, required=True, metavar="BYTES", help="of a step, such as 45M")
@click.option("--workers", type=click.IntRange(2), default=4, show_default=True, help="ranks, each on its own host")
@click.option("--rate-mbps", type=click.FloatRange(0, min_open=True), help="of the hosts' links [default: no limit]")
@click.option(
    "--compute-ms", type=click.FloatRange(0), required=True, help="of a step without the sums, as you measured"
)
@click.option(
    "--measured",
    type=click.Path(dir_okay=False, path_type=Path),
    default=MEASURED,
    help="what `netsum bench train` printed on your machine [default: on ours, two cores for everything]",
)
def advise(size: int, workers: int, rate_mbps: float | None, compute_ms: float, measured: Path) -> None:
    """Forecast a training step with each way to sum gradients: the switches, and Gloo's ring.

    The last line is one JSON object.
    """
    figures = read(measured)
    forecasts = forecast(figures, size, workers, rate_mbps, compute_ms)
    (gloo,) = (each.step_ms for each in forecasts if each.way == GLOO)
    errors = [abs(expected / step - 1) for _, _, step, expected in check(figures)]
    rows = [
        (each.way, f"{each.sums_ms:.1f}", f"{each.step_ms:.1f}", f"{gloo / each.step_ms:.2f}") for each in forecasts
    ]
    link = "links without a limit" if rate_mbps is None else f"links of {rate_mbps:g} Mbit/s"
    title = f"{size / 1e6:.1f} MB of gradients, {workers} workers, {link}"
    columns = "sums by", ">sums\nms", ">step\nms", ">speed\nGloo = 1"
    console = table_console()
    console.print(basis(figures, size, workers, rate_mbps), highlight=False, soft_wrap=True)
    console.print(make_table(title, columns, rows))
    console.print(
        f"Forecast of those trainings themselves: off by {statistics.median(errors):.0%} (median), {max(errors):.0%} at most.",
        highlight=False,
        soft_wrap=True,
    )
    click.echo(
        json.dumps(
            {
                "fastest": forecasts[0].way,
                "speedup": round(gloo / forecasts[0].step_ms, 3),
                "error": round(statistics.median(errors), 3),
                "largest_error": round(max(errors), 3),
                "ways": [asdict(each) for each in forecasts],
            }
        )
    )
