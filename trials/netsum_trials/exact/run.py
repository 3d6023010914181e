"""The run: job after job, cell after cell, every result checked, until the time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np
from netsum.descriptor import SWITCH
from netsum.transports.faulty import Faults
from netsum.wire.schema import CHUNK_BYTES
from netsum_controller.config.job_spec import JobSpec
from netsum_testbed.fabric import Fabric
from netsum_testbed.verify.members import Members, joined
from netsum_testbed.verify.ranks import Answer, Gate, Ranks

from netsum_trials.exact import host_volume, volume
from netsum_trials.exact.call import start
from netsum_trials.exact.cells import LOSSES, SIZES, WORKERS, Cell, make_cells
from netsum_trials.exact.expect import complaints
from netsum_trials.exact.report import Totals

CELLS_PER_JOB: Final = 24
MOST_PACKETS: Final = {"embedded": 20_000, "bmv2": 20_000}
"""Contributions of one cell, by switch: larger cells would take a run's time alone."""
MOST_WITHOUT: Final = 4_000
"""The same where members combine themselves: each of a small window's contributions costs many messages."""


@dataclass(frozen=True)
class Options:
    """What to run. ``duration`` in seconds, shared by the ``topologies``; ``jobs``: on each, stop after so many, if given;
    ``job``: only that one."""

    duration: float = 60.0
    seed: int = 1
    jobs: int | None = None
    job: int | None = None
    topologies: tuple[str, ...] = ("star",)
    workers: tuple[int, ...] = WORKERS
    sizes: tuple[int, ...] = SIZES
    losses: tuple[float, ...] = LOSSES
    algorithm: str = SWITCH

    def replay(self, switch: str, topology: str, job: int) -> str:
        """The command that makes one job's cells again."""
        words = [f"--topology {topology} --job {job}"]
        for name, value in (("workers", self.workers), ("sizes", self.sizes), ("losses", self.losses)):
            if value != getattr(Options, name):
                words.append(f"--{name} {','.join(map(str, value))}")
        if self.algorithm != SWITCH:
            words.append(f"--algorithm {self.algorithm}")
        return f'make matrix SWITCH={switch} SEED={self.seed} ARGS="{" ".join(words)}"'


class Run:
    """The jobs of one topology, which goes on with the numbers where the one before stopped. Counts into ``totals``, which is
    right at any moment: a run may be ended by an exception."""

    def __init__(
        self,
        fabric: Fabric,
        options: Options,
        totals: Totals,
        say: Callable[[str], None] = print,
        progress: Callable[[], None] = lambda: None,
        topology: str = "star",
    ) -> None:
        """``say`` gets a line for everything that is wrong, ``progress`` is called after each cell that was checked;
        ``topology``: which of the ``options`` the fabric is."""
        self.totals = totals
        self._topology = topology
        self._fabric = fabric
        self._options = options
        self._say = say
        self._progress = progress
        # Every topology has its share of the time, and the next one what is left over, too.
        place = options.topologies.index(topology) + 1
        self._until = options.duration * place / len(options.topologies)
        self._start = time.monotonic() - totals.seconds

    def run(self) -> None:
        """All jobs."""
        options, before = self._options, self.totals.jobs
        numbers: Iterable[int] = count(before) if options.job is None else [options.job]
        for number in numbers:
            if not self._may_go_on() or (options.jobs is not None and self.totals.jobs - before >= options.jobs):
                return
            self._job(number)

    def measure(self) -> None:
        """Bytes of each collective, on a job of its own."""
        hosts, algorithm = tuple(self._fabric.topology.hosts)[: volume.RANKS], self._options.algorithm
        if algorithm != SWITCH:
            with joined(self._fabric, JobSpec(name="matrix-bytes", members=hosts), algorithm=algorithm) as members:
                self.totals.volumes = host_volume.measure(members.communicators)
            return
        spec = JobSpec(
            name="matrix-bytes", members=hosts, window=8, algorithm=SWITCH
        )  # few under way: no queue that looks like a loss
        with joined(self._fabric, spec) as members:
            self.totals.volumes = volume.measure(members.communicators)

    def _may_go_on(self, _calls: int = 1) -> bool:
        self.totals.seconds = time.monotonic() - self._start
        return self.totals.seconds < self._until

    def _hosts(self, number: int, rng: np.random.Generator) -> tuple[str, ...]:
        """Some hosts: ranks need not be in the order of ports."""
        return tuple(map(str, rng.permutation(list(self._fabric.topology.hosts))[:number]))

    def _job(self, number: int) -> None:
        options = self._options
        rng = np.random.default_rng([options.seed, number])
        workers, loss = int(rng.choice(options.workers)), float(rng.choice(options.losses))
        chunks, window = int(rng.choice([4, 16, 16])), int(rng.choice([2, 16, 64, 64]))
        most = MOST_PACKETS[self._fabric.switch] if options.algorithm == SWITCH else MOST_WITHOUT
        cells = make_cells(
            options.seed,
            number,
            CELLS_PER_JOB,
            workers=workers,
            sizes=options.sizes,
            most_packets=most * chunks // 16,
        )
        faults = Faults(drop=loss) if loss else None
        said = f"{self._topology}, job {number} ({workers} ranks, window {window}, {chunks} chunks, loss {loss:g})"
        with ExitStack() as stack:
            hosts = self._hosts(workers, rng)
            spec = JobSpec(name=f"matrix-{number}", members=hosts, window=window, chunks=chunks)
            members = stack.enter_context(
                joined(self._fabric, spec, faults, (options.seed << 40) + (number << 8), options.algorithm)
            )
            stack.callback(self._count, members)
            ranks = Ranks(cells, start, members.communicators, Gate(self._may_go_on))
            stack.callback(ranks.stop)
            self._check(number, said, chunks * CHUNK_BYTES, ranks, workers)
        self.totals.jobs += 1

    def _count(self, members: Members) -> None:
        self.totals.retransmissions += sum(comm.stats.retransmissions for comm in members.communicators)
        for transport in members.faulty:
            self.totals.packets += transport.counts.packets
            self.totals.dropped += transport.counts.dropped

    def _check(self, number: int, said: str, block_bytes: int, ranks: Ranks[Cell], workers: int) -> None:
        waiting: dict[int, list[Answer[Cell]]] = {}
        for answer in ranks:
            answers = waiting.setdefault(answer.call.index, [])
            answers.append(answer)
            if len(answers) == workers:
                self._judge(number, said, block_bytes, waiting.pop(answer.call.index))
        # What is left over: cells that some rank never got to, because an earlier one failed for it alone.
        for answers in waiting.values():
            self._judge(number, said, block_bytes, answers)

    def _judge(self, number: int, said: str, block_bytes: int, answers: list[Answer[Cell]]) -> None:
        """Count a cell and say what is wrong with it."""
        answers.sort(key=lambda answer: answer.rank)
        cell = answers[0].call
        found = [
            f"rank {answer.rank}: {type(answer.error).__name__}: {answer.error}" for answer in answers if answer.error
        ]
        if not found and len(answers) < cell.workers:
            found = [f"only ranks {[answer.rank for answer in answers]} have a result"]
        found = found or complaints(cell, block_bytes, [answer.result for answer in answers])
        self.totals.count(cell.kind, self._topology, cell.size, wrong=bool(found))
        if found:
            self._say(f"{said}, cell {cell.index}: {cell.describe()}")
            for line in found:
                self._say(f"  {line}")
            self._say(f"  again with: {self._options.replay(self._fabric.switch, self._topology, number)}")
        self._progress()
