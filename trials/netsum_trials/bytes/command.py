"""The ``links`` trial."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import click
from netsum.agent.tables import table_console
from netsum_controller.config.topologies import fat_tree, leaf_spine, tree
from netsum_controller.config.topology import Topology
from netsum_testbed.checking import chosen_switch, rootless_option, running, switch_option
from netsum_testbed.fabrics import fabric_of

from netsum_trials.bytes.hosts import RANKS, SIZE
from netsum_trials.bytes.links import below, collectives, network, stripes
from netsum_trials.bytes.report import LinkTotals, below_table, lines_table, stripes_table

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
