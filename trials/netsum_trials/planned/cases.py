"""The networks and calls that are simulated and measured: links slow enough that they, and not the processors, set the pace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from netsum_controller.config.topologies import leaf_spine, star, tree
from netsum_controller.config.topology import Topology

ALGORITHMS: Final = ("in_network", "ring", "halving_doubling", "double_binary_tree")


def networks() -> Iterator[tuple[Topology, int]]:
    """A topology and the rate of all its links; more hosts have slower links, so that their processes keep up."""
    for hosts, rate in ((2, 50), (4, 20), (8, 20), (16, 10)):
        yield star(hosts, rate_mbps=rate), rate
    for leaves, hosts, rate in ((2, 2, 20), (2, 4, 20), (4, 4, 10)):
        yield tree(leaves, hosts, rate_mbps=rate), rate
    for spines, leaves, hosts, rate in ((2, 2, 1, 50), (2, 2, 2, 20), (2, 4, 2, 20), (2, 4, 4, 10)):
        yield leaf_spine(spines, leaves, hosts, rate_mbps=rate), rate
