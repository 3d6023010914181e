"""``netsum bench plan``: a plan on links of limited rate, against equal shares for its roots and against a ring.

With ``--tune`` it first looks for the plan's chunk, as Blink does (MLSys 2020, section 4.2.1): twice as large as long as that is
faster, then smaller by a step as long as that is.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from netsum.agent.tables import table_console
from netsum.descriptor import PLAN, SWITCH
from netsum.peers.schedule_files import PlanFile, load_plan
from netsum.peers.wire import LONGEST
from netsum.text import counted
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topology import Topology, load_topology
from netsum_controller.errors import InputError
from rich.console import Console

from netsum_testbed.bench.calls import Calls
from netsum_testbed.bench.collective import time_ranks
from netsum_testbed.bench.frame import print_figures, size_option
from netsum_testbed.checking import count_option, switch_option
from netsum_testbed.commands import open_topology, without_mininet
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.netns import EGRESS, complaint
from netsum_testbed.tables import make_table

BLOCK_BYTES: Final = 4096
"""The payload of a block on an MTU of 9000: chunks are tried in multiples of it."""
NOISE: Final = 1.02
"""A chunk is faster if it is so by more than this factor."""


@dataclass(frozen=True, eq=False)
class Way:
    """A way to make an allreduce: its ``name``, and its job's settings."""

    name: str
    settings: Mapping[str, Any]
    predicted: float | None = None
    """GB/s."""


def ways(told: Mapping[str, Any], plan: PlanFile, file: Path) -> Iterator[Way]:
    """The plan's way and those to compare it with; ``told`` is its file."""
    if plan.roots:
        yield Way("plan, its roots", {"algorithm": SWITCH, "roots": dict(plan.roots)}, told.get("in_network_GBps"))
        yield Way("equal stripes", {"algorithm": SWITCH, "roots": dict.fromkeys(plan.roots, 1)})
    yield Way("plan, between hosts", {"algorithm": f"{PLAN}{file.absolute()}"}, told.get("GBps"))
    yield Way("ring", {"algorithm": "ring"})


def way_without(plan: PlanFile, file: Path, topology: Topology, link: str) -> Way:
    """The job of the plan's roots when a link between switches is dead: the controller finds out, and plans anew."""
    from netsum_planner.trees.stripes import replan  # noqa: PLC0415 - needs scipy

    if link not in topology.links:
        known = ", ".join(topology.links) or "none"
        raise InputError(f"--cut {link}: {topology.name} has no such link between switches (it has: {known})")
    anew = (
        replan(plan.network, frozenset(plan.hosts), frozenset({topology.links[link].switches}))
        if plan.network
        else None
    )
    if anew is None or not anew.roots:
        raise InputError(f"--cut {link}: no roots can be planned for what is left of the network in {file}")
    settings = {"algorithm": SWITCH, "roots": f"{PLAN}{file.absolute()}"}
    return Way(f"planned anew, without {link}", settings, anew.rate)


@contextmanager
def cut(fabric: Fabric, link: str) -> Iterator[None]:
    """A link between switches that carries nothing. (If its interfaces were down, simple_switch_grpc would stop.)"""
    ends = {f"cut_{end.interface}".replace("-", "_"): end for end in fabric.trunk_ends(link)}
    with ExitStack() as stack:
        for table, end in ends.items():
            chain = f'chain out {{ type filter hook egress device "{end.interface}" priority 0; drop; }};'
            subprocess.run([*end.prefix, "nft", f"table netdev {table} {{ {chain} }}"], check=True)
            stack.callback(subprocess.run, [*end.prefix, "nft", f"delete table netdev {table}"], check=True)
        yield


def rate_of(fabric: Fabric, plan: PlanFile, way: Way, name: str, calls: Calls) -> float:
    """GB/s of the array: the median call of the slowest rank."""
    job = fabric.create_job(JobSpec(name=name, members=plan.hosts, **way.settings))
    ((line,),) = time_ranks(fabric.spawn_ranks(job, calls.command(), name=f"{name}."), calls)
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
@switch_option()
@size_option("1M")
@count_option("--iterations", default=5, told="calls of each")
@click.option("--tune", is_flag=True, help="look for the best chunk_bytes, and write it into PLAN")
@click.option(
    "--cut", "link", metavar="LINK", help="then cut this link between switches, and time what is planned anew"
)
def bench_plan(
    file: Path, topology_file: Path, switch: str, size: int, iterations: int, tune: bool, link: str | None
) -> None:
    """Time an allreduce of float32 as a plan says, with equal shares for its roots, and by a ring.

    In Mininet, where links have the rates of the topology. Rates are also given over the plan's optimum.
    """
    topology = load_topology(topology_file)
    try:
        plan = load_plan(str(file))
    except ValueError as error:
        raise InputError(str(error)) from None
    calls = Calls((size,), "float32", len(plan.hosts), iterations, places=1)
    last = None if link is None else way_without(plan, file, topology, link)
    if link is not None and (reason := without_mininet() or complaint(EGRESS)) is not None:
        raise TestbedError(f"--cut needs Mininet, and nftables' netdev egress hook: {reason}")
    console = Console(stderr=True)
    found: dict[Way, float] = {}
    with (
        console.status("starting") as status,
        open_topology(topology, switch, without_mininet(), console) as fabric,
    ):
        if tune:
            _write_chunk(file, _tuned_in(fabric, plan, file, calls, status.update))
        told = json.loads(file.read_text("utf-8"))
        for number, way in enumerate(ways(told, plan, file)):
            status.update(way.name)
            found[way] = rate_of(fabric, plan, way, f"way{number}", calls)
        if last is not None and link is not None:
            status.update(last.name)
            with cut(fabric, link):
                found[last] = rate_of(fabric, plan, last, "left", calls)
    _print(told, found)


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


def _print(plan: Mapping[str, Any], found: Mapping[Way, float]) -> None:
    optimum = plan.get("in_network_optimum_GBps") or plan.get("optimum_GBps")
    rows, told = [], {}
    for way, rate in found.items():
        over = rate / optimum if optimum else None
        told[way.name] = {"GBps": rate, "over_optimum": over, "predicted_GBps": way.predicted}
        predicted = "-" if way.predicted is None else f"{8000 * way.predicted:.2f}"
        rows.append((way.name, f"{8000 * rate:.2f}", predicted, "-" if over is None else f"{over:.3f}"))
    table_console().print(make_table("", ("way", ">Mbit/s", ">predicted", ">over optimum"), rows))
    print_figures({"optimum_GBps": optimum, "chunk_bytes": plan.get("chunk_bytes"), "ways": told})
