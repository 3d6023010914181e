"""``netsum bench train``: a training on netsum and on Gloo, on each switch and at each link rate."""

from __future__ import annotations

from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

import click
from netsum.agent.tables import table_console
from netsum.extras import advice
from netsum_controller.config.topologies import star

from netsum_testbed.bench.frame import every_switch, print_figures
from netsum_testbed.bench.train import Training, training_table
from netsum_testbed.checking import count_option, list_option, names_of
from netsum_testbed.commands import open_topology, without_mininet
from netsum_testbed.errors import TestbedError


@click.command()
@every_switch
@list_option("--rates", int, 0, 1000, "0,100,1000", "of the links, Mbit/s; 0: unlimited, all that goes without root")
@count_option("--workers", default=Training.workers, told="ranks, each on its own host", least=2, most=8)
@count_option("--steps", default=Training.steps, told="timed, of each training")
@count_option("--width", default=Training.width, told="of the model's layers")
@count_option("--batch", default=Training.batch, told="of each rank")
@click.option(
    "--bucket-mib",
    type=click.FloatRange(0, min_open=True),
    default=Training.bucket_mib,
    show_default=True,
    help="DDP's bucket_cap_mb",
)
def train(switch: str, rates: tuple[int, ...], **given: Any) -> None:
    """Train with DistributedDataParallel on netsum and on Gloo, in turns: step times, and what backward hides of the sums.

    Needs PyTorch. At limited rates it needs root and Mininet.
    """
    if find_spec("torch") is None:
        raise TestbedError(f"PyTorch is not installed: {advice('torch')}")
    reason = without_mininet()
    if reason is not None:
        rates = (0,)
    training, console = Training(**given), table_console()
    found: dict[str, list[dict[str, Any]]] = {}
    for name in names_of(switch):
        runs: dict[int, dict[str, Any]] = {}
        for rate in rates:
            topology = star(training.workers, rate_mbps=rate or None)
            with (
                console.status(f"{name}: {rate or 'unlimited'}"),
                open_topology(topology, name, reason, console) as fabric,
            ):
                runs[rate] = training.run(fabric)
        table_console().print(training_table(name, training, runs))
        found[name] = [{"rate_mbps": rate or None, **run} for rate, run in runs.items()]
    print_figures(found, asdict(training))
