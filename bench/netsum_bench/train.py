# SPDX-License-Identifier: MIT
"""``netsum bench train``: DistributedDataParallel on netsum and on Gloo, in one run, on each switch and at each link rate."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any, Final

import click
from netsum.cli.tables import make_table, table_console
from netsum.descriptor import SWITCH
from netsum.extras import advice
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_testbed.checking import amount_option, count_option, list_option, names_of
from netsum_testbed.commands import open_topology, without_mininet
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.launch import fabric_programs
from rich.table import Table

from netsum_bench.cli_options import every_switch, print_figures
from netsum_bench.harness import BRIDGE, GLOOS

ENDS: Final = 300.0
"""Seconds within which a rank ends after another."""
BACKENDS: Final = ("netsum", *GLOOS)


@dataclass(frozen=True)
class Training:
    """``workers`` ranks do ``steps`` timed steps, each with a ``batch`` of its own, on a model of ``width`` whose gradients are
    in buckets of ``bucket_mib``."""

    workers: int = 4
    steps: int = 20
    width: int = 512
    batch: int = 1024
    bucket_mib: float = 0.25

    def run(self, fabric: Fabric) -> dict[str, Any]:
        """Train on a fabric, every rank a process on its own host; returns the figures. Raises TestbedError if a rank failed or
        does not end."""
        members = tuple(fabric.topology.hosts)[: self.workers]
        job = fabric.create_job(JobSpec(name="bench", members=members, algorithm=SWITCH))
        words = map(str, (self.steps, self.width, self.batch, self.bucket_mib))
        command = [sys.executable, "-m", "netsum_bench.train_rank", *words]
        ranks = []
        for rank, (host, program) in enumerate(zip(members, fabric_programs(fabric, job, ()), strict=True)):
            bridge = {BRIDGE: f"{host}-eth1"} if getattr(fabric, "bridged", False) else {}
            environment = {**program.environment, **bridge}
            ranks.append(fabric.spawn(host, command, name=f"rank{rank}", environment=environment, piped=True))
        line = ranks[0].stdout.readline()  # or nothing, if it fails; calls that wait for others' end in a while
        failed = next((number for number, rank in enumerate(ranks) if rank.wait(ENDS)), None)
        if failed is not None:
            raise TestbedError(f"rank {failed} failed: {ranks[failed].last_words(1)}")
        found: dict[str, Any] = json.loads(line)
        fabric.delete_job(job.name)
        return found


def training_table(switch: str, training: Training, runs: Mapping[int, Mapping[str, Any]]) -> Table:
    """A line for each rate and backend."""
    columns = ("link", "", ">step\nms", ">backward\nms", ">alone\nms", ">sums alone\nms", ">hidden\n%", "replicas")
    rows: list[Sequence[str]] = []
    size = 0
    for rate, found in runs.items():
        size = found["gradient_bytes"]
        for backend in [name for name in BACKENDS if name in found]:
            of = found[backend]
            times = [f"{of[f'{name}_ms']:.1f}" for name in ("step", "backward", "compute", "communicate")]
            equal = "equal" if found["replicas_equal"][backend] else "DIFFERENT"
            rows.append((f"{rate} Mbit/s" if rate else "unlimited", backend, *times, f"{100 * of['hidden']:.0f}", equal))
    title = f"{switch} switch, {training.workers} workers, {size / 1e6:.1f} MB of gradients: medians of {training.steps} steps"
    return make_table(title, columns, rows)


@click.command()
@every_switch
@list_option("--rates", int, 0, 1000, "0,100,1000", "of the links, Mbit/s; 0: unlimited, all that goes without root")
@count_option("--workers", default=Training.workers, text="ranks, each on its own host", least=2, most=8)
@count_option("--steps", default=Training.steps, text="timed, of each training")
@count_option("--width", default=Training.width, text="of the model's layers")
@count_option("--batch", default=Training.batch, text="of each rank")
@amount_option("--bucket-mib", default=Training.bucket_mib, text="DDP's bucket_cap_mb", above=True)
def train(switch: str, rates: tuple[int, ...], **given: Any) -> None:
    """Train with DistributedDataParallel on netsum and on Gloo, in turns: step times, and what backward hides of the sums.

    gloo-bridge is Gloo on wires of the same rate around a Linux bridge, with the kernel's offloads. Needs PyTorch. Bridge and
    limited rates need root and Mininet.
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
                open_topology(topology, name, reason, console, bridged=True) as fabric,
            ):
                runs[rate] = training.run(fabric)
        table_console().print(training_table(name, training, runs))
        found[name] = [{"rate_mbps": rate or None, **run} for rate, run in runs.items()]
    print_figures(found, asdict(training))
