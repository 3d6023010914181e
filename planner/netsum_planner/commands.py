# SPDX-License-Identifier: MIT
"""The ``netsum plan`` commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import click
from netsum.text import counted
from netsum_controller.cli.options import console, json_option, print_json, print_table
from netsum_controller.errors import InputError

from netsum_planner.errors import PlanError
from netsum_planner.optimum.optimum import Bound, Collective, Optimum
from netsum_planner.optimum.optimum import optimum as find_optimum
from netsum_planner.options import topology_options, whole_and_left
from netsum_planner.placement.command import place
from netsum_planner.ranks.command import ranks
from netsum_planner.topologies import shapes
from netsum_planner.topologies.files import exact, to_yaml
from netsum_planner.topologies.model import Topology
from netsum_planner.trees.allocations import different, plan_for
from netsum_planner.trees.packing import Packing, Tree, pack
from netsum_planner.trees.plan import CollectivePlan, Schedule, many_to_many, many_to_one, one_to_many, plan_allreduce

_SHAPES: dict[str, tuple[str, Callable[..., Topology]]] = {
    "star": ("HOSTS", shapes.star),
    "tree": ("LEAVES HOSTS", shapes.tree),
    "leaf-spine": ("SPINES LEAVES HOSTS", shapes.leaf_spine),
    "fat-tree": ("K", shapes.fat_tree),
    "bigraph": ("K", shapes.bigraph),
    "torus": ("SIDE SIDE [SIDE]", lambda *sides, **more: shapes.torus(sides, **more)),
}
_BOXES: dict[str, tuple[str, Callable[..., Topology]]] = {
    "dgx1p": ("", shapes.dgx1p),
    "dgx1v": ("", shapes.dgx1v),
    "a100": ("[BOXES]", shapes.a100),
    "mi250": ("[BOXES]", shapes.mi250),
}


_SCHEDULES: dict[str, Callable[[Packing, int], Schedule]] = {
    "broadcast": one_to_many,
    "reduce": many_to_one,
    "allreduce": many_to_many,
}


@click.group()
def plan() -> None:
    """Find what a network can do: the optimum of a collective, and what reaches it. No switch is needed.

    TOPOLOGY is a file: the controller's YAML, the planner's (`netsum plan make` writes one), ASTRA-sim's network .yml, htsim's
    .topo, or TACCL's .json.
    """


@plan.command()
@topology_options
@click.option("--collective", type=click.Choice([str(each) for each in Collective]), default="allreduce", show_default=True)
@click.option("--root", metavar="HOST", help="Of a broadcast. [default: the first host]")
@json_option
def optimum(topology: Topology, collective: str, root: str | None, as_json: bool) -> None:
    """The best rate of a collective, exactly, and the cut that bounds it.

    A rate is that of the whole array: bytes of it a second (NCCL's algorithm bandwidth). Without sums in the network, a summing
    switch only forwards.
    """
    with console().status(f"{topology.name}: looking for the cut that bounds {collective}"):
        found = find_optimum(topology, Collective(collective), root)
    if as_json:
        print_json(found.to_json())
        return
    click.echo(f"{topology.name}: {collective} of {len(topology.hosts)} hosts")
    print_table(
        ("SWITCHES", "OPTIMUM\nGB/s", "EXACTLY", "TREES\na root", "BOUND BY"),
        [_row("forward", found, found.host_only), _row("sum", found, found.in_network)],
    )


def _row(name: str, found: Optimum, bound: Bound) -> tuple[str, ...]:
    exactly = str(bound.rate) if bound.exact else f"{float(bound.proved):.4f} or more"
    return (name, f"{float(bound.rate):.2f}", exactly, str(bound.trees or "-"), bottleneck(found.topology, bound))


def bottleneck(topology: Topology, bound: Bound) -> str:
    """The links that bound, in words: a few by name."""
    names = [f"{one} -> {other}" for one, other in bound.links]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    if bound.cut is None:
        return shown
    inside = [host for host in topology.hosts if host not in bound.cut.side]
    outside = [host for host in topology.hosts if host in bound.cut.side]
    if min(len(inside), len(outside)) == 1:
        return f"{shown}: into {inside[0]}" if len(inside) == 1 else f"{shown}: out of {outside[0]}"
    return f"{shown}: {len(outside)} hosts to {len(inside)}"


@plan.command()
@topology_options
@click.option("--root", metavar="HOST", help="[default: the first host]")
@click.option("--collective", type=click.Choice(list(_SCHEDULES)), default="broadcast", show_default=True)
@click.option(
    "--chunks", type=click.IntRange(1), default=1, show_default=True, help="Of each tree's share; JSON has their steps."
)
@json_option
def trees(topology: Topology, root: str | None, collective: str, chunks: int, as_json: bool) -> None:
    """Few trees that carry a broadcast within 5 % of the optimum, and the schedule that they are.

    Reversed, they are a reduce; joined, an allreduce. Switches only forward.
    """
    with console().status(f"{topology.name}: packing trees"):
        packing = pack(topology, root or topology.hosts[0])
    schedule = _SCHEDULES[collective](packing, chunks)
    if as_json:
        result = {"optimum_GBps": float(packing.optimum), "GBps": float(packing.rate), "candidates": packing.candidates}
        paths = [{"GBps": float(tree.rate), "paths": [list(path) for path in tree.paths]} for tree in packing.trees]
        print_json({**result, "trees": paths, "schedule": schedule.to_json()})
        return
    click.echo(
        f"{topology.name}: {counted(len(packing.trees), 'tree')} of {packing.candidates} from {packing.root}, "
        f"{float(packing.rate):.2f} of {float(packing.optimum):.2f} GB/s"
    )
    click.echo(f"{collective}: {float(schedule.rate):.2f} GB/s, {counted(schedule.steps, 'step')}")
    rows = [(n, f"{float(tree.rate):.2f}", _words(tree)) for n, tree in enumerate(packing.trees, 1)]
    print_table(("TREE", "GB/s", "EACH HOST SENDS TO"), rows)


def _words(tree: Tree) -> str:
    """``gpu0: gpu1 gpu2; gpu1: gpu3``"""
    sent: dict[str, list[str]] = {}
    for path in tree.paths:
        sent.setdefault(path[0], []).append(path[-1])
    return "; ".join(f"{host}: {' '.join(others)}" for host, others in sent.items())


@plan.command()
@whole_and_left
@click.option("--chunk-bytes", type=click.IntRange(1), metavar="N", help="Bytes that hosts sum at a time.")
@click.option("--out", "-o", type=click.Path(dir_okay=False, path_type=Path), help="[default: standard output]")
def schedule(whole: Topology, topology: Topology, chunk_bytes: int | None, out: Path | None) -> None:
    """Write the plan of an allreduce, as JSON.

    Hosts carry it out: `netsum job create --algorithm plan:FILE`, NETSUM_ALGORITHM or netsum.join(algorithm=...). Its trees have
    several roots and reach 95 % of the optimum without sums in the network. If switches sum, it also has the weights with which
    they share the blocks: `netsum job create --root plan:FILE`. With --down, the plan is for what is left, and what that costs is
    told.
    """
    with console().status(f"{topology.name}: packing trees"):
        found = plan_allreduce(topology, chunk_bytes)
        before = None if topology == whole else plan_allreduce(whole)
    result = found.to_json(before)
    if out is None:
        print_json(result)
        return
    try:
        out.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise InputError(f"{out}: {error.strerror or error}") from None
    packing = found.schedule.packing
    rate = f"{_decimal(found.schedule.rate)} of {_decimal(packing.optimum)} GB/s"
    steps = counted(found.schedule.steps, "step")
    click.echo(f"{topology.name}: {counted(len(packing.trees), 'tree')}, {rate}, {steps}")
    if found.roots:
        shared = ", ".join(f"{root} {weight}" for root, weight in found.roots.items())
        click.echo(f"roots: {shared}; {_decimal(found.in_network)} of {_decimal(found.optimum)} GB/s in the network")
    if before is not None:
        _cost(before, found)


def _cost(before: CollectivePlan, after: CollectivePlan) -> None:
    """The time of an allreduce now, and before."""
    ways = [("between hosts", before.schedule.rate, after.schedule.rate)]
    ways.append(("in the network", before.in_network, after.in_network))
    result = [f"{_ms(now)} instead of {_ms(then)} ms {name}" for name, then, now in ways if then]
    click.echo(f"1 GB takes {', '.join(result)}")


def _ms(rate: Fraction) -> str:
    return f"{1000 / float(rate):.2f}" if rate else "-"


def _decimal(rate: Fraction) -> str:
    """Two places, and more of a rate that is small."""
    return f"{float(rate):.2f}" if rate >= 1 else f"{float(rate):.3g}"


@plan.command()
@topology_options
@click.option("--smallest", type=click.IntRange(2), default=3, show_default=True, help="Hosts of an allocation, at least.")
@json_option
def allocations(topology: Topology, smallest: int, as_json: bool) -> None:
    """Trees for every different allocation of a box, against the optimum and against rings as NCCL packs them.

    Two allocations are the same if renaming the hosts makes one of the other. Hosts must be joined directly.
    """
    found = []
    with console().status(f"{topology.name}: looking for different allocations") as status:
        for part in different(topology, range(smallest, len(topology.hosts) + 1)):
            found.append(plan_for(part))
            status.update(f"{topology.name}: {counted(len(found), 'allocation')}")
    if not found:
        raise PlanError(f"{topology.name} has no {smallest} hosts that all reach each other")
    if as_json:
        print_json([each.to_json() for each in found])
        return
    rows = [each.to_json() for each in found]
    print_table(
        ("HOSTS", "OPTIMUM\nGB/s", "TREES", "GB/s", "RINGS\nGB/s", "OVER\nRINGS", "SECONDS"),
        [
            (
                ",".join(row["hosts"]),
                f"{row['optimum_GBps']:.2f}",
                row["trees"],
                f"{row['GBps']:.2f}",
                f"{row['rings_GBps']:.2f}",
                f"{row['over_rings']:.2f}" if row["over_rings"] else "no ring",
                f"{row['seconds']:.2f}",
            )
            for row in rows
        ],
    )


@plan.command()
@click.argument("shape", type=click.Choice([*_SHAPES, *_BOXES]))
@click.argument("numbers", nargs=-1, type=click.IntRange(1))
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="GBPS", help="GB/s of each link, each way.")
@click.option("--delay", type=click.FloatRange(0), metavar="US", help="Microseconds along each link.")
@click.option("--forward-only", is_flag=True, help="The switches do not sum.")
def make(shape: str, numbers: tuple[int, ...], rate: float | None, delay: float | None, forward_only: bool) -> None:
    r"""Write a topology of a usual shape, or of boxes of GPUs, to standard output.

    \b
    star HOSTS, tree LEAVES HOSTS, leaf-spine SPINES LEAVES HOSTS, fat-tree K,
    bigraph K, torus SIDE SIDE [SIDE]: with --rate
    dgx1p, dgx1v, a100 [BOXES], mi250 [BOXES]: with the rates of their links
    """
    usage, builder = {**_SHAPES, **_BOXES}[shape]
    words = usage.split()
    fewest = len([word for word in words if not word.startswith("[")])
    if not fewest <= len(numbers) <= len(words):
        raise click.UsageError(f"{shape} takes {usage or 'no numbers'}")
    if shape in _BOXES:
        if rate is not None or delay is not None or forward_only:
            raise click.UsageError(f"{shape} has rates of its own; its switches never sum")
        made = builder(*numbers)
    else:
        if rate is None:
            raise click.UsageError(f"{shape} needs --rate")
        made = builder(*numbers, rate=exact(rate), delay_us=delay or 0.0)
    click.echo(to_yaml(made.only_forwarding() if forward_only else made), nl=False)


plan.add_command(ranks)
plan.add_command(place)
