# SPDX-License-Identifier: MIT
"""The command ``matrix``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import click
import ml_dtypes  # noqa: F401 - numpy knows bfloat16 by name from here on
import numpy as np
from netsum.cli.tables import table_console
from netsum.descriptor import SWITCH
from netsum.transports.impairment import Impairment
from netsum_bench.cli_options import names_option
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import fat_tree, leaf_spine, star, tree
from netsum_controller.config.topology import Topology
from netsum_testbed.checking import (
    Screen,
    Totals,
    algorithm_option,
    chosen_switch,
    comma,
    duration_option,
    list_option,
    numbers_from,
    only_option,
    option_words,
    rootless_option,
    running,
    seed_option,
    switch_option,
)
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import fabric_of
from netsum_testbed.verify.cells import COLLECTIVES, KINDS, LARGE, ROOTED, ROWS, SIZES, WORKERS, CallKind, Cell
from netsum_testbed.verify.ranks import joined
from netsum_testbed.verify.run import CellTotals, Checks, VerifyJob
from rich.table import Table

from tests.system.traffic import links
from tests.system.traffic.command import host_volume_table, volume_table
from tests.system.traffic.links import WINDOW, HostVolume, Volume

# Deals cells like cards; everything about one follows from a seed, the job's number and the cell's.


LOSSES = (0.0, 0.01)
FILLS = ("normal", "wide", "zeros", "sparse")


def make_cells(
    seed: int, job: int, number: int, *, workers: int, sizes: tuple[int, ...] = SIZES, most_packets: int
) -> tuple[Cell, ...]:
    """The cells of one job. Each kind comes once before any comes again. Sizes are drawn, and drawn again if the cell would take
    more than ``most_packets`` packets."""
    return tuple(_make_cell(seed, job, index, number, workers, sizes, most_packets) for index in range(number))


def _make_cell(seed: int, job: int, index: int, number: int, workers: int, sizes: tuple[int, ...], most_packets: int) -> Cell:
    deal, card = divmod(job * number + index, len(KINDS))
    kind = KINDS[int(np.random.default_rng([seed, deal]).permutation(len(KINDS))[card])]
    rng = np.random.default_rng([seed, job, index])
    while True:
        cell = make_cell(rng, (seed, job, index), kind, workers, int(rng.choice(sizes)))
        if cell.packets <= most_packets and (cell.size < LARGE or rng.random() < 0.3):
            return cell


def make_cell(rng: np.random.Generator, seed: tuple[int, int, int], kind: CallKind, workers: int, size: int) -> Cell:
    """A cell of that kind and size, with everything else drawn."""
    size = size if kind.dtype else 0
    even, counts = _counts(rng, kind.collective, workers, size)
    compressible = kind.collective == "allreduce" and kind.is_sum
    return Cell(
        seed=seed,
        index=seed[2],
        kind=kind,
        workers=workers,
        size=size,
        counts=counts,
        even=even,
        root=int(rng.integers(workers)) if kind.collective in ROOTED else 0,
        fill=str(rng.choice(FILLS)),
        bits=(8, 16)[int(rng.integers(2))] if compressible and rng.random() < 0.3 else None,
        rounding="stochastic" if compressible and rng.random() < 0.15 else "nearest",
        in_place=bool(rng.random() < 0.3),
        strided=bool(rng.random() < 0.2),
        joined=bool(rng.random() < 0.3),
    )


def _counts(rng: np.random.Generator, name: str, workers: int, size: int) -> tuple[bool, tuple[tuple[int, ...], ...]]:
    """Draw whether all ranks have equally many rows, and how many each has: see :class:`Cell`."""
    even = bool(size % workers == 0 and rng.random() < 0.5)
    if name not in (*ROWS, "reduce_scatter"):
        return True, ()

    def parts() -> tuple[int, ...]:
        if even:
            return (size // workers,) * workers
        # So uneven that some ranks get nothing.
        return tuple(map(int, rng.multinomial(size, rng.dirichlet(np.full(workers, 0.5)))))

    if name == "all_to_all":
        return even, tuple(parts() for _ in range(workers))
    return even, tuple((part,) for part in parts()) if name in ("all_gather", "gather") else (parts(),)


# The totals of a run of the matrix.


@dataclass
class CellTally:
    """Cells of one collective, or of one topology."""

    cases: int = 0
    wrong: int = 0


@dataclass
class MatrixTotals(CellTotals):
    """``kinds``: the collectives, operations and types made so far; ``topology``: where cells are being made."""

    by_collective: dict[str, CellTally] = field(default_factory=lambda: {name: CellTally() for name in COLLECTIVES})
    by_topology: dict[str, CellTally] = field(default_factory=dict)
    kinds: set[CallKind] = field(default_factory=set)
    volumes: Sequence[Volume] | Sequence[HostVolume] = ()
    topology: str = ""

    @property
    def note(self) -> str:
        return f"{self.cells} cells, {len(self.kinds)} kinds, {self.failures} wrong"

    def count(self, cell: Cell, *, wrong: bool, timed_out: bool) -> None:
        super().count(cell, wrong=wrong, timed_out=timed_out)
        self.kinds.add(cell.kind)
        for tally in (self.by_collective[cell.kind.collective], self.by_topology.setdefault(self.topology, CellTally())):
            tally.cases += 1
            tally.wrong += wrong

    def figures(self) -> dict[str, Any]:
        found = Totals.figures(self)
        for name in ("topology", "timeouts", "duplicated", "reordered"):
            del found[name]
        found |= {"cases": found.pop("cells"), "bytes": found.pop("volumes")}
        return found | {"wrong": self.failures, "kinds": [len(self.kinds), len(KINDS)]}


# Runs jobs of cells on one topology after the other until the time is up, and checks every result.


CELLS_PER_JOB: Final = 24
MOST_PACKETS: Final = 20_000
"""Contributions of one cell; a larger one would take up a whole run."""
MOST_WITHOUT: Final = 4_000
"""The same for jobs without a switch, where each contribution of a small window costs many messages."""


@dataclass(frozen=True)
class MatrixOptions:
    """Options of a run. ``duration`` in seconds, shared by the ``topologies``; ``jobs``: on each, stop after so many, if given;
    ``only``: that one alone."""

    duration: float = 60.0
    seed: int = 1
    jobs: int | None = None
    only: int | None = None
    topologies: tuple[str, ...] = ("star",)
    workers: tuple[int, ...] = WORKERS
    sizes: tuple[int, ...] = SIZES
    loss: tuple[float, ...] = LOSSES
    algorithm: str = SWITCH

    def replay(self, switch: str, topology: str, job: int) -> str:
        """The command that repeats one job's cells."""
        words = [f"--topology {topology} --only {job}", *option_words(self, "workers", "sizes", "loss", "algorithm")]
        return f'make matrix SWITCH={switch} SEED={self.seed} ARGS="{" ".join(words)}"'


def run(fabric: Fabric, options: MatrixOptions, totals: MatrixTotals, screen: Screen, topology: str) -> None:
    """Make the jobs of one topology, numbered on from those of the topology before."""
    totals.topology = topology
    # Every topology has its share of the time; what it does not use goes to the next one.
    until = options.duration * (options.topologies.index(topology) + 1) / len(options.topologies)

    def make_job(number: int) -> VerifyJob:
        rng = np.random.default_rng([options.seed, number])
        workers, loss = int(rng.choice(options.workers)), float(rng.choice(options.loss))
        chunks, window = int(rng.choice([4, 16, 16])), int(rng.choice([2, 16, 64, 64]))
        most = (MOST_PACKETS if options.algorithm == SWITCH else MOST_WITHOUT) * chunks // 16
        cells = make_cells(options.seed, number, CELLS_PER_JOB, workers=workers, sizes=options.sizes, most_packets=most)
        # Any hosts: ranks need not be in the order of ports.
        members = tuple(map(str, rng.permutation(list(fabric.topology.hosts))[:workers]))
        return VerifyJob(
            JobSpec(name=f"matrix-{number}", members=members, window=window, chunks=chunks),
            cells,
            f"{topology}, job {number} ({workers} ranks, window {window}, {chunks} chunks, loss {loss:g})",
            options.replay(fabric.switch, topology, number),
            Impairment(drop=loss) if loss else None,
            options.algorithm,
        )

    numbers = islice(numbers_from(totals.jobs, options.only), options.jobs)
    Checks(fabric, totals, screen, until).run(numbers, make_job)


TOPOLOGIES: Final[dict[str, Callable[[], Topology]]] = {
    "star": lambda: star(max(WORKERS)),
    "tree": lambda: tree(3, 3),
    "leaf-spine": lambda: leaf_spine(2, 3, 3),
    "fat-tree": lambda: fat_tree(4),
}
"""One switch; four; five, of which two are roots; twenty, of which four are roots of jobs that span pods. Each has at least
as many hosts as a cell may have ranks."""


@click.command()
@switch_option()
@duration_option
@seed_option()
@click.option("--jobs", type=click.IntRange(min=1), help="on each topology, stop after so many jobs")
@only_option("job", "--job")
@names_option("--topology", TOPOLOGIES, "on which jobs run, one after the other", "topologies")
@list_option("--workers", int, 1, max(WORKERS), comma(WORKERS))
@list_option("--sizes", int, 0, 1 << 24, comma(MatrixOptions.sizes), "elements")
@list_option("--loss", float, 0, 0.5, comma(MatrixOptions.loss), "probabilities of losing a packet, in each direction")
@algorithm_option
@rootless_option
def matrix(switch: str, rootless: bool, **given: Any) -> None:
    """Make random calls of every collective, operation and type for a while, and check every result with numpy.

    The topologies share the time, one after the other. On the first, each collective's bytes are measured against the
    formulas of the documentation. The last line is one JSON object; the exit code is 1 if anything was wrong.
    """
    name = chosen_switch(switch, rootless=rootless)
    options = MatrixOptions(**given)
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
    members = tuple(fabric.topology.hosts)[: links.RANKS]
    if totals.algorithm != SWITCH:
        with joined(fabric, JobSpec(name="matrix-bytes", members=members), algorithm=totals.algorithm) as there:
            without = totals.volumes = links.measure_without(there.communicators)
        return host_volume_table(without, totals.algorithm)
    with joined(fabric, JobSpec(name="matrix-bytes", members=members, window=WINDOW)) as there:
        volumes = totals.volumes = links.measure(there.communicators)
    return volume_table(volumes)
