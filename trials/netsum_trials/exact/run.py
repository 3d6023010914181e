"""Runs jobs of cells on one topology after the other until the time is up, and checks every result."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
from netsum.descriptor import SWITCH
from netsum.transports.impairment import Impairment
from netsum_controller.config.job_spec import JobSpec
from netsum_testbed.checking import Screen, numbers_from, option_words
from netsum_testbed.fabric import Fabric
from netsum_testbed.verify.cells import SIZES, WORKERS
from netsum_testbed.verify.run import Checks, Job

from netsum_trials.exact.deal import LOSSES, make_cells
from netsum_trials.exact.report import MatrixTotals

CELLS_PER_JOB: Final = 24
MOST_PACKETS: Final = 20_000
"""Contributions of one cell; a larger one would take up a whole run."""
MOST_WITHOUT: Final = 4_000
"""The same for jobs without a switch, where each contribution of a small window costs many messages."""


@dataclass(frozen=True)
class Options:
    """What to run. ``duration`` in seconds, shared by the ``topologies``; ``jobs``: on each, stop after so many, if given;
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


def run(fabric: Fabric, options: Options, totals: MatrixTotals, screen: Screen, topology: str) -> None:
    """Make the jobs of one topology, numbered on from those of the topology before."""
    totals.topology = topology
    # Every topology has its share of the time; what it does not use goes to the next one.
    until = options.duration * (options.topologies.index(topology) + 1) / len(options.topologies)

    def make_job(number: int) -> Job:
        rng = np.random.default_rng([options.seed, number])
        workers, loss = int(rng.choice(options.workers)), float(rng.choice(options.loss))
        chunks, window = int(rng.choice([4, 16, 16])), int(rng.choice([2, 16, 64, 64]))
        most = (MOST_PACKETS if options.algorithm == SWITCH else MOST_WITHOUT) * chunks // 16
        cells = make_cells(options.seed, number, CELLS_PER_JOB, workers=workers, sizes=options.sizes, most_packets=most)
        # Any hosts: ranks need not be in the order of ports.
        hosts = tuple(map(str, rng.permutation(list(fabric.topology.hosts))[:workers]))
        return Job(
            JobSpec(name=f"matrix-{number}", members=hosts, window=window, chunks=chunks),
            cells,
            f"{topology}, job {number} ({workers} ranks, window {window}, {chunks} chunks, loss {loss:g})",
            options.replay(fabric.switch, topology, number),
            Impairment(drop=loss) if loss else None,
            options.algorithm,
        )

    numbers = islice(numbers_from(totals.jobs, options.only), options.jobs)
    Checks(fabric, totals, screen, until).run(numbers, make_job)
