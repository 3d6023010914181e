"""The ``matrix`` trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click
from netsum.agent.tables import table_console
from netsum.descriptor import SWITCH
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import fat_tree, leaf_spine, star, tree
from netsum_controller.config.topology import Topology
from netsum_testbed.checking import (
    algorithm_option,
    chosen_switch,
    comma,
    duration_option,
    list_option,
    only_option,
    rootless_option,
    running,
    seed_option,
    switch_option,
)
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import fabric_of
from netsum_testbed.verify.cells import WORKERS
from netsum_testbed.verify.members import joined
from rich.table import Table

from netsum_trials.bytes import hosts
from netsum_trials.bytes.links import WINDOW
from netsum_trials.bytes.report import host_volume_table, volume_table
from netsum_trials.exact.report import MatrixTotals
from netsum_trials.exact.run import Options, run

TOPOLOGIES: Final[dict[str, Callable[[], Topology]]] = {
    "star": lambda: star(max(WORKERS)),
    "tree": lambda: tree(3, 3),
    "leaf-spine": lambda: leaf_spine(2, 3, 3),
    "fat-tree": lambda: fat_tree(4),
}
"""One switch; four; five, of which two are roots; twenty, of which four are roots of jobs that span pods. Each has at least
as many hosts as a cell may have ranks."""


def _names(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, ...]:
    """Parse ``star,tree``."""
    names = tuple(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in TOPOLOGIES:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(TOPOLOGIES)}")
    return names


@click.command()
@switch_option()
@duration_option
@seed_option()
@click.option("--jobs", type=click.IntRange(min=1), help="on each topology, stop after so many jobs")
@only_option("job", "--job")
@click.option("--topology", "topologies", callback=_names, default=comma(TOPOLOGIES), show_default=True)
@list_option("--workers", int, 1, max(WORKERS), comma(WORKERS))
@list_option("--sizes", int, 0, 1 << 24, comma(Options.sizes), "elements")
@list_option("--loss", float, 0, 0.5, comma(Options.loss), "probabilities of losing a packet, in each direction")
@algorithm_option
@rootless_option
def matrix(switch: str, rootless: bool, **given: Any) -> None:
    """Make random calls of every collective, operation and type for a while, and check every result with numpy.

    The topologies share the time, one after the other. On the first, each collective's bytes are measured against the
    formulas of the documentation. The last line is one JSON object; the exit code is 1 if anything was wrong.
    """
    name = chosen_switch(switch, rootless=rootless)
    options = Options(**given)
    totals = MatrixTotals(name, seed=options.seed, algorithm=options.algorithm)
    by = "" if options.algorithm == SWITCH else f" by {options.algorithm}"
    with running(totals) as screen:
        screen.begin(options.duration)
        for topology in options.topologies:
            with fabric_of(TOPOLOGIES[topology](), name, rootless=rootless) as fabric:
                where = f"{type(fabric).__name__}, {topology} of {len(fabric.topology.switches)}"
                screen.say(f"matrix{by} on the {name} switch ({where}), seed {options.seed}")
                run(fabric, options, totals, screen, topology)
                if not totals.volumes:
                    table = _measure(fabric, totals)
        table_console().print(table)


def _measure(fabric: Fabric, totals: MatrixTotals) -> Table:
    """Measure the bytes of each collective; return them as a table."""
    members = tuple(fabric.topology.hosts)[: hosts.RANKS]
    if totals.algorithm != SWITCH:
        with joined(fabric, JobSpec(name="matrix-bytes", members=members), algorithm=totals.algorithm) as there:
            without = totals.volumes = hosts.measure_without(there.communicators)
        return host_volume_table(without, totals.algorithm)
    with joined(fabric, JobSpec(name="matrix-bytes", members=members, window=WINDOW)) as there:
        volumes = totals.volumes = hosts.measure(there.communicators)
    return volume_table(volumes)
