"""The ``netsum plan`` commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from netsum_controller.cli.output import console, json_option, print_json, print_table
from netsum_controller.errors import InputError

from netsum_planner.optimum.optimum import Bound, Collective, Optimum
from netsum_planner.optimum.optimum import optimum as find_optimum
from netsum_planner.topologies import boxes, shapes
from netsum_planner.topologies.files import exact, read_topology, to_yaml
from netsum_planner.topologies.model import Pair, Topology

_SHAPES: dict[str, tuple[str, Callable[..., Topology]]] = {
    "star": ("HOSTS", shapes.star),
    "tree": ("LEAVES HOSTS", shapes.tree),
    "leaf-spine": ("SPINES LEAVES HOSTS", shapes.leaf_spine),
    "fat-tree": ("K", shapes.fat_tree),
    "bigraph": ("K", shapes.bigraph),
    "torus": ("SIDE SIDE [SIDE]", lambda *sides, **more: shapes.torus(sides, **more)),
}
_BOXES: dict[str, tuple[str, Callable[..., Topology]]] = {
    "dgx1p": ("", boxes.dgx1p),
    "dgx1v": ("", boxes.dgx1v),
    "a100": ("[BOXES]", boxes.a100),
    "mi250": ("[BOXES]", boxes.mi250),
}


@click.group()
def plan() -> None:
    """What a network can do: the optimum of a collective, and what reaches it. No switch is needed.

    TOPOLOGY is a file: the controller's YAML, the planner's (`netsum plan make` writes one), ASTRA-sim's network .yml, htsim's
    .topo, or TACCL's .json.
    """


def topology_options(command: Any) -> Any:
    """The argument TOPOLOGY, and what is changed in it; the command gets ``topology``."""

    @wraps(command)
    def told(file: Path, hosts: str | None, down: tuple[str, ...], rate: float | None, boxes: int, **more: Any) -> Any:
        found = read_topology(file, rate_mbps=rate, boxes=boxes)
        if down:
            found = found.without([_part(found, each) for each in down])
        if hosts is not None:
            found = found.subset(hosts.split(","))
        return command(found, **more)

    for option in (
        click.argument("file", metavar="TOPOLOGY", type=click.Path(path_type=Path)),
        click.option("--hosts", metavar="H,H...", help="Only these hosts take part, and no other forwards."),
        click.option(
            "--down", multiple=True, metavar="NODE|NODE,NODE", help="A node or a link that is down; repeatable."
        ),
        click.option(
            "--rate", type=click.FloatRange(0, min_open=True), metavar="MBPS", help="Rate of links without one."
        ),
        click.option("--boxes", type=click.IntRange(1), default=1, help="How many of the box in TACCL's JSON."),
    ):
        told = option(told)
    return told


def _part(topology: Topology, text: str) -> str | Pair:
    one, comma, other = text.partition(",")
    if not comma and one not in topology.nodes:
        raise InputError(f"--down {text}: {topology.name} has no node {one}; a link is written NODE,NODE")
    return (one, other) if comma else one


@plan.command()
@topology_options
@click.option(
    "--collective", type=click.Choice([str(each) for each in Collective]), default="allreduce", show_default=True
)
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
@click.argument("shape", type=click.Choice([*_SHAPES, *_BOXES]))
@click.argument("numbers", nargs=-1, type=click.IntRange(1))
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="GBPS", help="GB/s of each link, each way.")
@click.option("--delay", type=click.FloatRange(0), metavar="US", help="Microseconds along each link.")
@click.option("--forward-only", is_flag=True, help="The switches do not sum.")
def make(shape: str, numbers: tuple[int, ...], rate: float | None, delay: float | None, forward_only: bool) -> None:
    """Write a topology of a usual shape, or of boxes of GPUs, to standard output.

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
