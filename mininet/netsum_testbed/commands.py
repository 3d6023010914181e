# SPDX-License-Identifier: MIT
"""The ``netsum demo`` and ``netsum testbed`` commands."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click
from netsum.cli.tables import table_console
from netsum.text import counted
from netsum_controller.config.topologies import star
from netsum_controller.config.topology import Topology, load_topology
from rich.console import Console

from netsum_testbed.checking import count_option, switch_option
from netsum_testbed.errors import TestbedError
from netsum_testbed.interrupts import end_on_signals
from netsum_testbed.netns import no_interfaces

MAX_WORKERS: Final = 64
WORKERS: Final = 4
STEPS: Final = 400

_workers = click.option(
    "--workers",
    type=click.IntRange(1, MAX_WORKERS),
    help="one on each host [default: the hosts of --topology, else 4]",
)
_switch = switch_option("simple_switch_grpc if it is on PATH, else the embedded one")
_file = click.option(
    "--topology",
    "topology_file",
    type=click.Path(path_type=Path),
    help="a YAML file [default: a star: mininet/topologies/starWORKERS.yaml if it exists, else a generated one]",
)


def choose_topology(file: Path | None, workers: int | None) -> tuple[Topology, int]:
    """The topology to bring up, and how many of its hosts have a worker."""
    if workers is None:
        workers = WORKERS if file is None else min(len(load_topology(file).hosts), MAX_WORKERS)
    usual = Path("mininet/topologies") / f"star{workers}.yaml"
    if file is None and usual.exists():
        file = usual
    topology = star(workers) if file is None else load_topology(file)
    if len(topology.hosts) < workers:
        raise TestbedError(f"{file}: {workers} workers need a host each, and it has {counted(len(topology.hosts), 'host')}")
    return topology, workers


def without_mininet() -> str | None:
    """The reason why Mininet cannot run here, or None if it can."""
    if reason := no_interfaces():
        return reason
    if shutil.which("mnexec") is None:
        return "Mininet is not installed"
    if subprocess.run(["mnexec", "-n", "true"], capture_output=True, check=False).returncode:
        return "we may not make network namespaces"
    if find_spec("mininet") is None or find_spec("mininet.net") is None:
        return "this Python does not see the mininet package"
    return None


@click.command()
@_workers
@_switch
@_file
@count_option("--steps", default=STEPS, text="batches of 128 images")
@click.option("--rootless", is_flag=True, help="on the loopback, not in Mininet, even as root")
def demo(workers: int | None, switch: str, topology_file: Path | None, steps: int, rootless: bool) -> None:
    """Train a classifier of handwritten digits on several workers, whose gradients a P4 switch sums.

    Afterwards train it in one process, to compare. The last line is one JSON object.
    """
    from netsum_testbed.demo.model import Digits  # noqa: PLC0415 - numpy, which `--help` does not need
    from netsum_testbed.demo.run import run_demo  # noqa: PLC0415

    end_on_signals()
    console = table_console()
    reason = "--rootless" if rootless else without_mininet()
    topology, workers = choose_topology(topology_file, workers)
    kind = "rootless" if reason else "mininet"
    network = open_topology(topology, switch, reason, console)
    # An extra, and slow to import: before anything is up, and after all other errors.
    digits = Digits.from_scikit_learn()
    with network as fabric:
        console.print(f"{fabric.switch} switch and {counted(workers, 'worker')}, {kind}: up", highlight=False)
        outcome = run_demo(fabric, kind, workers, steps, digits, console)
    console.print(
        f"accuracy {outcome.accuracy:.1%}, alone {outcome.accuracy_single:.1%}; largest difference between the "
        f"{workers} replicas' weights: {outcome.max_weight_difference}",
        highlight=False,
        soft_wrap=True,
    )
    click.echo(outcome.to_json())
    if outcome.max_weight_difference != 0:
        raise TestbedError("the replicas differ: they must be equal to the last bit")


def open_topology(topology: Topology, switch: str, reason: str | None, console: Console, *, bridged: bool = False) -> Any:
    """A fabric to train on: Mininet, where the hosts may be ``bridged``, too, or, for a ``reason``, the loopback."""

    def say(words: str) -> None:
        console.print(words, highlight=False, soft_wrap=True)

    if reason is None:
        from netsum_testbed.mininet_fabric import MininetFabric  # noqa: PLC0415 - needs Mininet
        from netsum_testbed.switches import choose_switch  # noqa: PLC0415

        return MininetFabric(topology, choose_switch(switch), say, bridged=bridged)
    from netsum_testbed.fabrics import RootlessFabric  # noqa: PLC0415

    if switch == "bmv2":
        raise TestbedError(f"{reason}: simple_switch_grpc needs network interfaces; run as root, or --switch embedded")
    say(f"{reason}: not in Mininet; running rootless, the embedded switch and its wires on the loopback interface")
    return RootlessFabric(topology)


@click.command()
@_workers
@_switch
@_file
@click.option("--memory", default="", metavar="HOST,...", help="memory devices on these hosts, and a region")
def testbed(workers: int | None, switch: str, topology_file: Path | None, memory: str) -> None:
    """Bring up a Mininet network, the controller and a job, and open Mininet's prompt.

    On every host, `python TRAINING.py` with `netsum.join()` joins the job: the environment is set.
    """
    if reason := without_mininet():
        raise TestbedError(
            f"{reason}: the testbed needs root and Mininet (sudo make testbed); `netsum demo` and `netsum run` do not"
        )
    from netsum_testbed.prompt import run_prompt  # noqa: PLC0415 - needs Mininet

    end_on_signals()
    topology, workers = choose_topology(topology_file, workers)
    hosts = [name.strip() for name in memory.split(",") if name.strip()]
    if unknown := [name for name in hosts if name not in topology.hosts]:
        raise TestbedError(f"--memory: there is no host {unknown[0]!r} (there are: {', '.join(topology.hosts)})")
    run_prompt(topology, switch, workers, list(dict.fromkeys(hosts)))
