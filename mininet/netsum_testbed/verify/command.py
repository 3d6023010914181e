# SPDX-License-Identifier: MIT
"""The ``netsum verify`` command."""

from __future__ import annotations

from typing import Any, Final

import click
from netsum.descriptor import SWITCH
from netsum_controller.config.topologies import star
from netsum_controller.config.topology import load_topology

from netsum_testbed.checking import (
    algorithm_option,
    chosen_switch,
    duration_option,
    list_option,
    only_option,
    rootless_option,
    running,
    seed_option,
    switch_option,
    topology_option,
)
from netsum_testbed.fabrics import fabric_of
from netsum_testbed.verify.run import MAX_ELEMENTS, MAX_WORKERS, CellTotals, VerifyOptions, run

MOST_RANKS: Final = 64
"""Each is a thread here. If there are more than hosts, hosts have several."""


@click.command()
@switch_option()
@duration_option
@click.option("--calls", type=click.IntRange(min=1), help="stop after this number of calls")
@seed_option()
@only_option("round", "--round")
@list_option("--workers", int, 1, MOST_RANKS, f"1-{MAX_WORKERS}", "4, 2,4,8 or 1-8")
@topology_option
@click.option("--max-elements", type=click.IntRange(min=1, max=MAX_ELEMENTS), default=MAX_ELEMENTS, show_default=True)
@click.option("--loss", type=click.FloatRange(0, 0.5), default=0.0, help="probability of losing a packet, in each direction")
@click.option("--duplicate", type=click.FloatRange(0, 0.5), default=0.0, help="probability of duplicating a packet")
@click.option("--reorder", type=click.FloatRange(0, 0.5), default=0.0, help="probability of holding a packet back")
@algorithm_option
@rootless_option
def verify(switch: str, rootless: bool, **given: Any) -> None:
    """Make random allreduce calls for a while and check every result bit for bit.

    Results are compared with integer sums of the documented quantization, with the error bound, and between the ranks.
    The last line is one JSON object; the exit code is 1 if anything was wrong or timed out.
    """
    name = chosen_switch(switch, rootless=rootless)
    options = VerifyOptions(**given)
    topology = star(MAX_WORKERS) if options.topology is None else load_topology(options.topology)
    totals = CellTotals(name, seed=options.seed, algorithm=options.algorithm)
    with running(totals) as screen, fabric_of(topology, name, rootless=rootless) as fabric:
        where = f"{type(fabric).__name__}, {topology.name}"
        by = "" if options.algorithm == SWITCH else f" by {options.algorithm}"
        screen.say(f"verify{by} on the {name} switch ({where}), seed {options.seed}, {options.duration:g} s")
        screen.begin(options.duration)
        run(fabric, options, totals, screen)
