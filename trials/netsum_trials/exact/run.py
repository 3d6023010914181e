"""Job after job of cells on one topology after the other, every result checked, until the time is up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np
from netsum.descriptor import SWITCH
from netsum.transports.faulty import Faults
from netsum_controller.config.job_spec import JobSpec
from netsum_testbed.checking import Screen, option_words
from netsum_testbed.fabric import Fabric
from netsum_testbed.verify.cells import SIZES, WORKERS
from netsum_testbed.verify.run import Checks, Job

from netsum_trials.exact.deal import LOSSES, make_cells
from netsum_trials.exact.report import MatrixTotals

CELLS_PER_JOB: Final = 24
MOST_PACKETS: Final = 20_000
"""Contributions of one cell: larger ones would take a run's time alone."""
MOST_WITHOUT: Final = 4_000
"""The same where members combine themselves: each of a small window's contributions costs many messages."""


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
        """The command that makes one job's cells again."""
        words = [f"--topology {topology} --only {job}", *option_words(self, "workers", "sizes", "loss", "algorithm")]
        return f'make matrix SWITCH={switch} SEED={self.seed} ARGS="{" ".join(words)}"'


class Run:
    """The jobs of one topology, which goes on with the numbers where the one before stopped."""

    def __init__(self, fabric: Fabric, options: Options, totals: MatrixTotals, screen: Screen, topology: str) -> None:
        """``topology``: which of the ``options`` the fabric is."""
        self._fabric = fabric
        self._options = options
        self._totals = totals
        self._checks = Checks(fabric, totals, screen)
        totals.topology = topology
        # Every topology has its share of the time, and the next one what is left over, too.
        self._until = options.duration * (options.topologies.index(topology) + 1) / len(options.topologies)

    def run(self) -> None:
        """All jobs."""
        options, before = self._options, self._totals.jobs
        numbers: Iterable[int] = count(before) if options.only is None else [options.only]
        for number in numbers:
            if not self._may_go_on() or (options.jobs is not None and self._totals.jobs - before >= options.jobs):
                return
            self._job(number)

    def _may_go_on(self, _cells: int = 1) -> bool:
        return self._checks.seconds() < self._until

    def _job(self, number: int) -> None:
        options, topology = self._options, self._totals.topology
        rng = np.random.default_rng([options.seed, number])
        workers, loss = int(rng.choice(options.workers)), float(rng.choice(options.loss))
        chunks, window = int(rng.choice([4, 16, 16])), int(rng.choice([2, 16, 64, 64]))
        most = (MOST_PACKETS if options.algorithm == SWITCH else MOST_WITHOUT) * chunks // 16
        cells = make_cells(options.seed, number, CELLS_PER_JOB, workers=workers, sizes=options.sizes, most_packets=most)
        # Any hosts: ranks need not be in the order of ports.
        hosts = tuple(map(str, rng.permutation(list(self._fabric.topology.hosts))[:workers]))
        job = Job(
            JobSpec(name=f"matrix-{number}", members=hosts, window=window, chunks=chunks),
            cells,
            f"{topology}, job {number} ({workers} ranks, window {window}, {chunks} chunks, loss {loss:g})",
            options.replay(self._fabric.switch, topology, number),
            Faults(drop=loss) if loss else None,
            options.algorithm,
        )
        self._checks.make(job, self._may_go_on)
