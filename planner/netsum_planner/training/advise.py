# SPDX-License-Identifier: MIT
"""Which way to sum gradients makes a training step shortest: forecast from what `netsum bench train` has measured.

A step is its computation and its sums, one after the other: where ranks and switch share a machine's cores, backward hides next
to nothing. Sums of S bytes take ``S * cost + S * share / rate``: what a byte costs hosts and switch, measured over links without
a limit, and how many bytes each link carries in one direction for a byte of gradients (a switch: 1, a ring: 2 (n - 1) / n).
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import click
from netsum.cli.tables import make_table, table_console
from netsum.text import counted

from netsum_planner.errors import PlanError
from netsum_planner.simulator.command import read_size
from netsum_planner.training.coprocessor import Cluster, Estimate, by_aggregator, estimates, pays_from, stripes_for

GLOO: Final = "gloo"
MEASURED: Final = Path(__file__).with_name("training.json")
"""The last line of a `netsum bench train`, which docs/performance.md shows."""
_POSITIVE: Final = click.FloatRange(0, min_open=True)


@dataclass(frozen=True)
class Way:
    """A way to sum: the switch's name or ``gloo``, and what a byte costs, in seconds, for each rank that there is."""

    name: str
    cost: float

    def sums(self, size: int, workers: int, rate_mbps: float | None) -> float:
        """Seconds to sum ``size`` bytes over links of this rate (None: no limit)."""
        share = 2 * (workers - 1) / workers if self.name == GLOO else 1.0
        wire = 0.0 if rate_mbps is None else share * size * 8 / (rate_mbps * 1e6)
        return size * self.cost * workers + wire


@dataclass(frozen=True)
class Forecast:
    """A way's expected milliseconds, for the sums and for a step."""

    way: str
    sums_ms: float
    step_ms: float


def read(path: Path) -> Mapping[str, Any]:
    """Read what `netsum bench train` printed last. Raises PlanError if it is something else."""
    try:
        found = json.loads(path.read_text("utf-8").strip().splitlines()[-1])
        ways(found)
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise PlanError(f"{path}: its last line is not that of a `netsum bench train` whose --rates have 0") from None
    return dict(found)


def runs(measured: Mapping[str, Any]) -> dict[str, Sequence[Mapping[str, Any]]]:
    """The runs on each switch."""
    return {name: each for name, each in measured.items() if isinstance(each, list)}


def ways(measured: Mapping[str, Any]) -> list[Way]:
    """The ways that were measured without a limit; Gloo's is the mean of those beside each switch."""
    workers, found, gloo = measured["workers"], [], []
    for switch, each in runs(measured).items():
        free = {run["rate_mbps"]: run for run in each}[None]
        scale = 1e3 * free["gradient_bytes"] * workers
        found.append(Way(switch, free["netsum"]["communicate_ms"] / scale))
        gloo.append(free[GLOO]["communicate_ms"] / scale)
    return [*found, Way(GLOO, statistics.fmean(gloo))]


def forecast(measured: Mapping[str, Any], size: int, workers: int, rate_mbps: float | None, compute_ms: float) -> list[Forecast]:
    """The ways for gradients of ``size`` bytes and a step that computes for so long, the fastest first."""
    found = []
    for way in ways(measured):
        sums = 1e3 * way.sums(size, workers, rate_mbps)
        found.append(Forecast(way.name, sums, compute_ms + sums))
    return sorted(found, key=lambda each: each.step_ms)


def basis(measured: Mapping[str, Any], size: int, workers: int, rate_mbps: float | None) -> str:
    """Say what forecasts are extrapolated from, and how far: in one sentence or two."""
    trainings = [run for each in runs(measured).values() for run in each]
    rates = sorted({run["rate_mbps"] for run in trainings} - {None})
    most = max(run["gradient_bytes"] for run in trainings)
    cores = f"{counted(measured['cores'], 'core')} that workers and switch shared" if "cores" in measured else "one machine"
    text = (
        f"Extrapolated from {counted(len(trainings), 'training')} of {measured['workers']} workers on {cores}: "
        f"{most / 1e6:.1f} MB of gradients, links of {''.join(f'{rate:g} Mbit/s, ' for rate in rates)}without a limit."
    )
    beyond = {
        f"{rate_mbps or 0:g} Mbit/s": (rate_mbps or 0) > max(rates, default=0),
        counted(workers, "worker"): workers > measured["workers"],
        f"{size / 1e6:.1f} MB": size > most,
    }
    if any(beyond.values()):
        where = ", ".join(name for name, is_beyond in beyond.items() if is_beyond)
        text += f" Nothing was measured at {where}: run `netsum bench train` on such hosts, and give --measured."
    return text


def check(measured: Mapping[str, Any]) -> list[tuple[str, int | None, float, float]]:
    """Way, rate, and the step in milliseconds as measured and as forecast from the computation and the costs, for each run."""
    found = []
    for switch, each in runs(measured).items():
        for run in each:
            for way, of in ((switch, run["netsum"]), (GLOO, run[GLOO])):
                compute = of["step_ms"] - of["backward_ms"] + of["compute_ms"]
                forecasts = forecast(measured, run["gradient_bytes"], measured["workers"], run["rate_mbps"], compute)
                (expected,) = (each.step_ms for each in forecasts if each.way == way)
                found.append((way, run["rate_mbps"], of["step_ms"], expected))
    return found


# ``netsum advise``: will a switch, or an aggregator, make my training faster?

_SMALL: Final = 4096
"""Bytes of a small call."""
_UNITS: Final = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def read_rate(_context: click.Context, _option: click.Parameter, text: str | None) -> float | None:
    """Read the value of an option like ``25G``, bits a second, in bytes a second."""
    if text is None:
        return None
    try:
        bits = float(text.rstrip("KMGTkmgt")) * _UNITS.get(text[-1:].upper(), 1.0)
    except ValueError:
        bits = 0.0
    if not 0 < bits < math.inf or len(text) - len(text.rstrip("KMGTkmgt")) > 1:
        raise click.BadParameter(f"{text!r} is not a rate such as 25G or 100M (bits a second)")
    return bits / 8


@click.command(short_help="Say whether a switch, or an aggregator, would make a training faster.")
@click.option("--size", callback=read_size, required=True, metavar="BYTES", help="of the gradients of a step, such as 45M")
@click.option("--hosts", type=click.IntRange(2), default=4, show_default=True, help="servers")
@click.option("--host-rate", callback=read_rate, metavar="RATE", help="of a host's cable, such as 25G [default: no limit]")
@click.option("--compute-ms", type=click.FloatRange(0), help="of a step without the sums, as you measured")
@click.option(
    "--measured",
    type=click.Path(dir_okay=False, path_type=Path),
    default=MEASURED,
    help="what `netsum bench train` printed on your machine [default: on ours, two cores for everything]",
)
@click.option("--aggregator-rate", callback=read_rate, metavar="RATE", help="of the cable of an aggregator, such as 100G")
@click.option("--ranks", type=click.IntRange(1), default=1, show_default=True, help="of a host, which sum in its memory first")
@click.option("--stripes", type=click.IntRange(1), default=1, show_default=True, help="processes of the aggregator, a core each")
@click.option("--multicast", is_flag=True, help="the Ethernet switch copies the results")
@click.option("--switch-us", type=_POSITIVE, default=Cluster.switch_us, show_default=True, help="of a core, for a contribution")
@click.option("--host-us", type=_POSITIVE, default=Cluster.host_us, show_default=True, help="of a core, for a block of 4 KiB")
@click.option("--hop-us", type=_POSITIVE, default=Cluster.hop_us, show_default=True, help="from a server to another")
def advise(
    size: int,
    hosts: int,
    host_rate: float | None,
    compute_ms: float | None,
    measured: Path,
    aggregator_rate: float | None,
    **aggregator: Any,
) -> None:
    """Forecast how long gradients take to be summed, by each way to sum them.

    With --compute-ms, a training step with each switch and with Gloo's ring, of what `netsum bench train` measured. With
    --aggregator-rate, an allreduce by an aggregator beside an Ethernet switch, around a ring of the hosts, and by both at once.

    The last line is one JSON object.
    """
    if compute_ms is None and aggregator_rate is None:
        raise click.UsageError("say what to forecast: --compute-ms of a step, or --aggregator-rate of an aggregator's cable")
    figures: dict[str, Any] = {}
    if compute_ms is not None:
        figures |= _advise_training(read(measured), size, hosts, host_rate and host_rate * 8e-6, compute_ms)
    if aggregator_rate is not None:
        if host_rate is None:
            raise click.UsageError("--aggregator-rate needs --host-rate, of the hosts' cables")
        figures |= {"aggregator": _advise_aggregator(Cluster(hosts, host_rate, aggregator_rate, **aggregator), size)}
    click.echo(json.dumps(figures))


def _advise_training(
    figures: Mapping[str, Any], size: int, workers: int, rate_mbps: float | None, compute_ms: float
) -> dict[str, Any]:
    forecasts = forecast(figures, size, workers, rate_mbps, compute_ms)
    (gloo,) = (each.step_ms for each in forecasts if each.way == GLOO)
    errors = [abs(expected / step - 1) for _, _, step, expected in check(figures)]
    rows = [(each.way, f"{each.sums_ms:.1f}", f"{each.step_ms:.1f}", f"{gloo / each.step_ms:.2f}") for each in forecasts]
    link = "links without a limit" if rate_mbps is None else f"links of {rate_mbps:g} Mbit/s"
    title = f"{size / 1e6:.1f} MB of gradients, {workers} workers, {link}"
    columns = "sums by", ">sums\nms", ">step\nms", ">speed\nGloo = 1"
    _say(basis(figures, size, workers, rate_mbps))
    table_console().print(make_table(title, columns, rows))
    _say(f"Forecast of those trainings themselves: off by {statistics.median(errors):.0%} (median), {max(errors):.0%} at most.")
    return {
        "fastest": forecasts[0].way,
        "speedup": round(gloo / forecasts[0].step_ms, 3),
        "error": round(statistics.median(errors), 3),
        "largest_error": round(max(errors), 3),
        "ways": [asdict(each) for each in forecasts],
    }


def _advise_aggregator(cluster: Cluster, size: int) -> dict[str, Any]:
    large, small = estimates(cluster, size), {each.way: each for each in estimates(cluster, _SMALL)}
    rows = [(_text(each), f"{each.seconds * 1e3:.1f}", each.bound, f"{small[each.way].seconds * 1e6:.0f}") for each in large]
    hosts = f"{cluster.hosts} hosts" + (f" of {cluster.ranks} ranks" if cluster.ranks > 1 else "")
    title = f"{hosts} at {_rate(cluster.host_rate)}, an aggregator at {_rate(cluster.aggregator_rate)}"
    title += ", results by multicast" if cluster.multicast else ""
    columns = "sums by", f">{size / 1e6:g} MB\nms", "bound by", ">4 KiB\nus"
    table_console().print(make_table(title, columns, rows))
    rate, needed = pays_from(cluster, size), stripes_for(cluster)
    if rate is None:
        _say("Alone, an aggregator is slower than the ring whatever its cable's rate: see what bounds it.")
    else:
        _say(f"Alone, an aggregator is faster than the ring from a cable of {_rate(rate)} on.")
    down = by_aggregator(replace(cluster, multicast=True), size)
    if not cluster.multicast:
        _say(f"With results by multicast (--multicast), the aggregator takes {down.seconds * 1e3:.1f} ms, bound by {down.bound}.")
    if needed > cluster.stripes:
        _say(f"To fill its cable it needs {counted(needed, 'core')}: --stripes {needed}.")
    return {
        "fastest": large[0].way,
        "fastest_small": min(small.values(), key=lambda each: each.seconds).way,
        "pays_from_gbps": None if rate is None else round(rate * 8e-9, 3),
        "stripes_to_fill": needed,
        "multicast_seconds": down.seconds,
        "ways": [{**asdict(each), "small_seconds": small[each.way].seconds} for each in large],
    }


def _text(estimate: Estimate) -> str:
    if estimate.way != "both":
        return estimate.way
    return f"both: {estimate.share:.0%} by the aggregator"


def _rate(value: float) -> str:
    """A rate in bytes a second, in bits."""
    bits = value * 8
    unit, factor = next(((unit, factor) for unit, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6)) if bits >= factor), ("k", 1e3))
    return f"{bits / factor:.3g} {unit}bit/s"


def _say(text: str) -> None:
    table_console().print(text, highlight=False, soft_wrap=True)
