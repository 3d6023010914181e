"""The run: job after job on one fabric, every answer checked, until the time or the calls are up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from netsum.descriptor import SWITCH
from netsum.errors import CallTimeoutError
from netsum.text import counted
from netsum.transports.impairment import Impairment
from netsum_controller.config.job_spec import JobSpec

from netsum_testbed.checking import Screen, numbers_from, option_words
from netsum_testbed.fabric import Fabric
from netsum_testbed.interrupts import raise_if_interrupted
from netsum_testbed.verify.cells import Cell
from netsum_testbed.verify.check import Checker
from netsum_testbed.verify.members import joined
from netsum_testbed.verify.ranks import Answer, Gate, Ranks
from netsum_testbed.verify.report import CellTotals
from netsum_testbed.verify.rounds import MAX_ELEMENTS, MAX_WORKERS, make_round

CALLS_PER_ROUND: Final = 40


@dataclass(frozen=True)
class Job:
    """The cells of one job. For people, ``said`` names the job, and ``again`` is the command that repeats it."""

    spec: JobSpec
    cells: Sequence[Cell]
    said: str
    again: str
    faults: Impairment | None = None
    algorithm: str = SWITCH


class Checks:
    """Makes jobs on a fabric and checks their cells, until ``until`` seconds of the run or ``most`` calls are up. Counts into
    ``totals``, which is consistent at any moment, since an exception may end a run."""

    def __init__(
        self, fabric: Fabric, totals: CellTotals, screen: Screen, until: float, most: int | None = None
    ) -> None:
        self._fabric = fabric
        self.totals = totals
        self._screen = screen
        self._until = until
        self._left = math.inf if most is None else most
        self._begun = time.monotonic() - totals.seconds

    def run(self, numbers: Iterable[int], make_job: Callable[[int], Job]) -> None:
        """Make the jobs with these numbers, one after the other."""
        for number in numbers:
            if not self._grant(0):
                return
            self._make(make_job(number))

    def _grant(self, calls: int) -> bool:
        """True if ``calls`` more calls may be started. The time that the fabric takes to come up does not count."""
        self.totals.seconds = time.monotonic() - self._begun
        if self._left <= 0 or self.totals.seconds >= self._until:
            return False
        self._left -= calls
        return True

    def _make(self, job: Job) -> None:
        seed, number, _ = job.cells[0].seed
        with ExitStack() as stack:
            members = stack.enter_context(
                joined(self._fabric, job.spec, job.faults, (seed << 40) + (number << 8), job.algorithm)
            )
            stack.callback(self.totals.count_packets, members)
            ranks = Ranks(job.cells, members.communicators, Gate(self._grant))
            stack.callback(ranks.stop)
            checker = Checker(members.communicators[0].descriptor.block_bytes)
            waiting: dict[int, list[Answer]] = {}
            for answer in ranks:
                raise_if_interrupted()
                answers = waiting.setdefault(answer.cell.index, [])
                answers.append(answer)
                if len(answers) == len(members.communicators):
                    self._judge(job, checker, waiting.pop(answer.cell.index))
            # Cells are left over if some rank never got to them because an earlier one failed for it alone.
            for answers in waiting.values():
                self._judge(job, checker, answers)
        self.totals.jobs += 1

    def _judge(self, job: Job, checker: Checker, answers: list[Answer]) -> None:
        """Count a cell and say what is wrong with it."""
        answers.sort(key=lambda answer: answer.rank)
        cell = answers[0].cell
        errors = [(answer.rank, answer.error) for answer in answers if answer.error is not None]
        found = [f"rank {rank}: {type(error).__name__}: {error}" for rank, error in errors]
        if not found and len(answers) < cell.workers:
            found = [f"only ranks {[answer.rank for answer in answers]} have a result"]
        found = found or checker.complaints(cell, [answer.result for answer in answers])
        self.totals.count(
            cell, wrong=bool(found), timed_out=any(isinstance(error, CallTimeoutError) for _, error in errors)
        )
        if found:
            self._screen.say(f"{job.said}, call {cell.index}: {cell.describe()}")
            for line in found:
                self._screen.say(f"  {line}")
            self._screen.say(f"  again with: {job.again}")
        self._screen.show(self.totals)


@dataclass(frozen=True)
class Options:
    """Options of a run. ``duration`` in seconds; ``calls``: stop after so many, if given; ``only``: that round alone.

    ``loss``, ``duplicate``, ``reorder``: probabilities for a packet in one direction. ``topology``: a file, if it is not the
    usual star.
    """

    duration: float = 60.0
    seed: int = 1
    only: int | None = None
    workers: tuple[int, ...] = tuple(range(1, MAX_WORKERS + 1))
    calls: int | None = None
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    max_elements: int = MAX_ELEMENTS
    algorithm: str = SWITCH
    topology: Path | None = None

    @property
    def faults(self) -> Impairment | None:
        """None if there are no faults."""
        if not (self.loss or self.duplicate or self.reorder):
            return None
        return Impairment(drop=self.loss, duplicate=self.duplicate, reorder=self.reorder)

    def replay(self, switch: str, number: int) -> str:
        """The command that repeats one round."""
        words = option_words(self, "workers", "topology", "max_elements", "algorithm", "loss", "duplicate", "reorder")
        return " ".join((f"netsum verify --switch {switch} --seed {self.seed} --only {number}", *words))


def run(fabric: Fabric, options: Options, totals: CellTotals, screen: Screen) -> None:
    hosts = list(fabric.topology.hosts)

    def make_job(number: int) -> Job:
        made = make_round(
            options.seed, number, calls=CALLS_PER_ROUND, workers=options.workers, max_elements=options.max_elements
        )
        members = tuple(hosts[rank % len(hosts)] for rank in range(made.workers))
        spec = JobSpec(name=f"verify-{number}", members=members, window=made.window, chunks=made.chunks)
        said, again = f"round {number} ({counted(made.workers, 'worker')})", options.replay(fabric.switch, number)
        return Job(spec, made.calls, said, again, options.faults, options.algorithm)

    Checks(fabric, totals, screen, options.duration, options.calls).run(numbers_from(0, options.only), make_job)
