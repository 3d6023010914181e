"""``netsum bench train``: a training on netsum and on Gloo, on each switch and at each link rate."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

import click
from netsum.installing import advice
from netsum_controller.config.topologies import star
from rich.console import Console

from netsum_testbed.bench.train import Training, training_table
from netsum_testbed.checking import list_option, switch_option
from netsum_testbed.commands import open_topology, without_mininet
from netsum_testbed.errors import TestbedError
from netsum_testbed.switches import choose_switch, usable_switches
from netsum_testbed.tables import wide_console


def _option(name: str, kind: click.ParamType[Any], told: str) -> Callable[[Any], Any]:
    default = getattr(Training, name.removeprefix("--").replace("-", "_"))
    return click.option(name, type=kind, default=default, show_default=True, help=told)


@click.command()
@switch_option("every switch on this machine; without root the embedded one")
@list_option("--rates", int, 0, 1000, "0,100,1000", "of the links, Mbit/s; 0: unlimited, all that goes without root")
@_option("--workers", click.IntRange(2, 8), "ranks, each on its own host")
@_option("--steps", click.IntRange(1), "timed, of each training")
@_option("--width", click.IntRange(1), "of the model's layers")
@_option("--batch", click.IntRange(1), "of each rank")
@_option("--bucket-mib", click.FloatRange(0, min_open=True), "DDP's bucket_cap_mb")
def train(switch: str, rates: tuple[int, ...], **given: Any) -> None:
    """Train with DistributedDataParallel on netsum and on Gloo, in turns: step times, and what backward hides of the sums.

    Needs PyTorch. At limited rates it needs root and Mininet.
    """
    if find_spec("torch") is None:
        raise TestbedError(f"PyTorch is not installed: {advice('torch')}")
    reason = without_mininet()
    if reason is not None:
        rates = (0,)
    training, console = Training(**given), Console()
    found: dict[str, list[dict[str, Any]]] = {}
    for name in usable_switches() if switch == "auto" else [choose_switch(switch)]:
        runs: dict[int, dict[str, Any]] = {}
        for rate in rates:
            topology = star(training.workers, rate_mbps=rate or None)
            with (
                console.status(f"{name}: {rate or 'unlimited'}"),
                open_topology(topology, name, reason, console) as fabric,
            ):
                runs[rate] = training.run(fabric)
        wide_console().print(training_table(name, training, runs))
        found[name] = [{"rate_mbps": rate or None, **run} for rate, run in runs.items()]
    click.echo(json.dumps({**found, **asdict(training), "cores": os.cpu_count(), "load": os.getloadavg()[0]}))
