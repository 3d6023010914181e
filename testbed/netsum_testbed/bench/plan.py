"""``netsum bench plan``: a plan on links of limited rate, against equal shares for its roots and against a ring.

With ``--tune`` it first looks for the plan's chunk, as Blink does (MLSys 2020, section 4.2.1): twice as large as long as that is
faster, then smaller by a step as long as that is.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from netsum.counting import counted, parse_size
from netsum.descriptor import PLAN, SWITCH
from netsum.peers.plans.from_file import PlanFile, load_plan
from netsum.peers.wire import LONGEST
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topology import load_topology
from netsum_controller.errors import InputError
from rich.console import Console

from netsum_testbed.bench.calls import Calls
from netsum_testbed.bench.collective import time_ranks
from netsum_testbed.checking import switch_option
from netsum_testbed.commands import open_topology, without_mininet
from netsum_testbed.fabric import Fabric
from netsum_testbed.tables import make_table

BLOCK_BYTES: Final = 4096
"""The payload of a block on an MTU of 9000: chunks are tried in multiples of it."""
NOISE: Final = 1.02
"""A chunk is faster if it is so by more than this factor."""


@dataclass(frozen=True)
class Way:
    """How an allreduce is made: ``name``, and the settings of its job."""

    name: str
    settings: Mapping[str, Any]


def ways(plan: PlanFile, file: Path) -> Iterator[Way]:
    """The plan's, and those that it is compared with."""
    if plan.roots:
        yield Way("plan, its roots", {"algorithm": SWITCH, "roots": dict(plan.roots)})
        yield Way("equal stripes", {"algorithm": SWITCH, "roots": dict.fromkeys(plan.roots, 1)})
    yield Way("plan, between hosts", {"algorithm": f"{PLAN}{file.absolute()}"})
    yield Way("ring", {"algorithm": "ring"})


def rate_of(fabric: Fabric, plan: PlanFile, way: Way, name: str, calls: Calls) -> float:
    """GB/s of the array: the median call of the slowest rank."""
    job = fabric.create_job(JobSpec(name=name, members=plan.hosts, **way.settings))
    ranks = [
        fabric.spawn(
            host, calls.command(), name=f"{name}.{rank}", environment=fabric.environment(job, rank), piped=True
        )
        for rank, host in enumerate(job.members)
    ]
    ((line,),) = time_ranks(ranks, calls)
    fabric.controller.delete_job(name)
    return line.algbw(0)


def tuned(measure: Callable[[int], float], most: int) -> int:
    """The number of blocks of a chunk, 1 to ``most``, at which ``measure``, a rate, is best: multiplicative increase, additive
    decrease. It measures about 2 log2(most) chunks."""
    best, rate = 1, measure(1)
    tried = 2
    while tried <= most and (found := measure(tried)) > rate * NOISE:
        best, rate, tried = tried, found, 2 * tried
    step = max(1, best // 4)
    for smaller in range(min(tried, most + 1) - step, best, -step):
        found = measure(smaller)
        if found > rate * NOISE:
            return smaller
    return best


@click.command("plan")
@click.argument("file", metavar="PLAN", type=click.Path(path_type=Path))
@click.option(
    "--topology", "topology_file", required=True, type=click.Path(path_type=Path), help="a YAML file with rates"
)
@switch_option("simple_switch_grpc if it is on PATH (and root), else the embedded one")
@click.option("--size", default="1M", show_default=True, help="of the array")
@click.option("--iterations", type=click.IntRange(1), default=5, show_default=True, help="calls of each")
@click.option("--tune", is_flag=True, help="look for the best chunk_bytes, and write it into PLAN")
def bench_plan(file: Path, topology_file: Path, switch: str, size: str, iterations: int, tune: bool) -> None:
    """Time an allreduce of float32 as a plan says, with equal shares for its roots, and by a ring.

    In Mininet, where links have the rates of the topology. Rates are also given over the plan's optimum.
    """
    try:
        plan = load_plan(str(file))
        calls = Calls((parse_size(size),), "float32", len(plan.hosts), iterations, places=1)
    except ValueError as error:
        raise InputError(str(error)) from None
    console = Console(stderr=True)
    found: dict[str, float] = {}
    with (
        console.status("starting") as status,
        open_topology(load_topology(topology_file), switch, without_mininet(), console) as fabric,
    ):
        if tune:
            _write_chunk(file, _tuned_in(fabric, plan, file, calls, status.update))
        for number, way in enumerate(ways(plan, file)):
            status.update(way.name)
            found[way.name] = rate_of(fabric, plan, way, f"way{number}", calls)
    _print(json.loads(file.read_text("utf-8")), found)


def _tuned_in(fabric: Fabric, plan: PlanFile, file: Path, calls: Calls, say: Callable[[str], None]) -> int:
    """Bytes of the best chunk."""
    data = json.loads(file.read_text("utf-8"))
    with tempfile.TemporaryDirectory(prefix="netsum-") as folder:

        def measure(blocks: int) -> float:
            say(f"chunks of {counted(blocks, 'block')}")
            tried = Path(folder) / f"{blocks}.json"
            tried.write_text(json.dumps({**data, "chunk_bytes": blocks * BLOCK_BYTES}), "utf-8")
            way = Way("chunk", {"algorithm": f"{PLAN}{tried}"})
            return rate_of(fabric, plan, way, f"chunk{blocks}", calls)

        return tuned(measure, LONGEST // 2) * BLOCK_BYTES


def _write_chunk(file: Path, chunk_bytes: int) -> None:
    data = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps({**data, "chunk_bytes": chunk_bytes}, indent=2) + "\n", "utf-8")
    load_plan(str(file))


def _print(plan: Mapping[str, Any], found: Mapping[str, float]) -> None:
    optimum = plan.get("in_network_optimum_GBps") or plan.get("optimum_GBps")
    over = {name: rate / optimum if optimum else None for name, rate in found.items()}
    rows = [
        (name, f"{8000 * rate:.2f}", "-" if over[name] is None else f"{over[name]:.3f}") for name, rate in found.items()
    ]
    Console().print(make_table("", ("way", ">Mbit/s", ">over optimum"), rows))
    told = {name: {"GBps": rate, "over_optimum": over[name]} for name, rate in found.items()}
    click.echo(json.dumps({"optimum_GBps": optimum, "chunk_bytes": plan.get("chunk_bytes"), "ways": told}))
