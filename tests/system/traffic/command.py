# SPDX-License-Identifier: MIT
"""The command ``links``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click
from netsum.cli.tables import make_table, table_console
from netsum_controller.config.topologies import fat_tree, leaf_spine, tree
from netsum_controller.config.topology import Topology
from netsum_testbed.checking import Totals, chosen_switch, rootless_option, running, switch_option
from netsum_testbed.fabrics import fabric_of
from rich.table import Table

from tests.system.traffic.links import (
    RANKS,
    SIZE,
    Below,
    Bytes,
    HostVolume,
    Line,
    LinkBytes,
    Stripe,
    Volume,
    below,
    collectives,
    network,
    stripes,
)

# The measurements, as tables and as JSON.


_FIGURES: Final = (">formula", ">measured")


@dataclass
class LinkTotals(Totals):
    """``collectives``: each on its links, by topology. ``below``: an allreduce with a growing number of hosts below a leaf.
    ``stripes``: what each root of a leaf-spine carried, by weights."""

    collectives: list[Line] = field(default_factory=list)
    below: list[Below] = field(default_factory=list)
    stripes: list[Stripe] = field(default_factory=list)

    @property
    def made(self) -> int:
        return len(self.collectives)

    @property
    def failures(self) -> int:
        """Directions with fewer bytes than the formula expects, for which the formula or a counter is wrong."""
        ways = [way for line in self.collectives for way in (line.up, line.down)]
        ways += [way for line in self.below for way in (line.up, line.down)]
        return sum(way is not None and way.measured < way.expected for way in ways)

    def figures(self) -> dict[str, Any]:
        found = super().figures()
        del found["seed"]  # nothing is drawn
        return {**found, "wrong": self.failures, "size": SIZE}


def _words(way: Bytes) -> tuple[str, str, str]:
    return way.formula, f"{way.expected:,}", f"{way.measured:,}"


def _link_words(way: LinkBytes | None) -> Sequence[str]:
    return ("",) * 4 if way is None else (*_words(way), str(way.again))


def lines_table(title: str, lines: Sequence[Line]) -> Table:
    """Bytes up and down, next to the formulas."""
    figures = *_FIGURES, ">again"
    rows = ((each.collective, each.link, *_link_words(each.up), *_link_words(each.down)) for each in lines)
    return make_table(title, ("collective", "link", "up", *figures, "down", *figures), rows)


def below_table(lines: Sequence[Below]) -> Table:
    """Bytes by the number of hosts below a leaf."""
    title = f"An allreduce with a growing number of hosts below a leaf: S = {SIZE:,}"
    columns = ">hosts below", ">their links", "up", *_FIGURES, "down", *_FIGURES
    return make_table(
        title, columns, ((str(each.hosts), f"{each.sent:,}", *_words(each.up), *_words(each.down)) for each in lines)
    )


def stripes_table(stripes: Sequence[Stripe]) -> Table:
    """Bytes that each root carried."""
    columns = "weights", "link", ">share due", ">bytes up", ">share", ">bytes down", ">share"
    rows = (
        (each.weights, each.link, f"{each.due:.1%}", f"{each.up:,}", f"{each.up_share:.1%}", f"{each.down:,}",
         f"{each.down_share:.1%}")
        for each in stripes
    )  # fmt: skip
    return make_table("An allreduce striped over the roots of a leaf-spine", columns, rows)


def volume_table(volumes: Sequence[Volume]) -> Table:
    """Bytes of each collective at the hosts, next to the formulas."""
    columns = "collective", "rank", "sent", *_FIGURES, "received", *_FIGURES, ">again"
    rows = ((each.collective, each.who, *_words(each.sent), *_words(each.received), str(each.again)) for each in volumes)
    return make_table(f"Bytes at the hosts: n = {RANKS} ranks, S = {SIZE:,}", columns, rows)


def host_volume_table(volumes: Sequence[HostVolume], algorithm: str) -> Table:
    """Bytes that all ranks together send, next to the formulas."""
    title = f"Bytes by {algorithm}, of all ranks together: n = {RANKS} ranks, S = {SIZE:,}"
    rows = ((each.collective, *_words(each), str(each.again)) for each in volumes)
    return make_table(title, ("collective", "sent", *_FIGURES, ">again"), rows)


NETWORKS: Final[dict[str, tuple[Topology, Sequence[str]]]] = {
    "tree": (tree(2, 2), ("h1", "h2", "h3", "h4")),
    "leaf-spine": (leaf_spine(2, 2, 2), ("h1", "h2", "h3", "h4")),
    "fat-tree": (fat_tree(4), ("h1", "h2", "h5", "h6")),
}
"""Two ranks below each of two leaves; in the fat-tree these are in two pods."""

BELOW: Final = (1, 2, 4, 8)
WEIGHTS: Final = ({"spine1": 1, "spine2": 1}, {"spine1": 3, "spine2": 1})
STRIPED: Final = 1 << 20
"""Bytes of the striped allreduce: so many blocks that the agreement's hardly counts."""


@click.command()
@switch_option()
@rootless_option
def links(switch: str, rootless: bool) -> None:
    """Measure the bytes that each collective moves over every link of a tree, a leaf-spine and a fat-tree.

    The switches count what comes in at their ports, which is compared with the formula. An allreduce with 1, 2, 4 and 8 hosts
    below a leaf follows, and one whose blocks two spines share by weight. The last line is one JSON object; the exit code is
    1 if a link carried less than its formula says.
    """
    name = chosen_switch(switch, rootless=rootless)
    console = table_console()
    totals, start = LinkTotals(name), time.monotonic()
    with running(totals):
        for topology, hosts in NETWORKS.values():
            with fabric_of(topology, name, rootless=rootless) as fabric, network(fabric, hosts) as made:
                measured = list(collectives(made))
            totals.collectives += measured
            console.print(lines_table(f"{topology.name} of {name} switches: n = {RANKS} ranks, S = {SIZE:,}", measured))
        with fabric_of(tree(2, max(BELOW)), name, rootless=rootless) as fabric:
            near, far = (list(fabric.topology.hosts_of(leaf)) for leaf in ("leaf1", "leaf2"))
            for number in BELOW:
                with network(fabric, [*near[:number], far[0]]) as made:
                    totals.below.append(below(made, "leaf1"))
        console.print(below_table(totals.below))
        with fabric_of(leaf_spine(2, 2, 2), name, rootless=rootless) as fabric:
            for weights in WEIGHTS:
                with network(fabric, list(fabric.topology.hosts), roots=weights) as made:
                    words = " : ".join(map(str, weights.values()))
                    totals.stripes += stripes(made, words, STRIPED)
        console.print(stripes_table(totals.stripes))
        totals.seconds = time.monotonic() - start
