# SPDX-License-Identifier: MIT
"""The run: job after job on one fabric, every answer checked, until the time or the calls are up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from netsum.descriptor import SWITCH
from netsum.errors import CallTimeoutError
from netsum.text import counted
from netsum.transports.impairment import Impairment
from netsum_controller.config.job_spec import JobSpec

from netsum_testbed.checking import Screen, Totals, numbers_from, option_words
from netsum_testbed.fabric import Fabric
from netsum_testbed.interrupts import raise_if_interrupted
from netsum_testbed.verify.cells import FLOAT_FILLS, INTEGER_FILLS, CallKind, Cell
from netsum_testbed.verify.check import Checker
from netsum_testbed.verify.ranks import Answer, Gate, Members, Ranks, joined

# The totals of checked cells.


@dataclass
class CellTotals(Totals):
    """``elements`` of all cells, each counted once; ``packets`` and faults of faulty transports only."""

    algorithm: str = SWITCH
    cells: int = 0
    elements: int = 0
    wrong: int = 0
    timeouts: int = 0
    jobs: int = 0
    packets: int = 0
    dropped: int = 0
    duplicated: int = 0
    reordered: int = 0
    retransmissions: int = 0

    @property
    def made(self) -> int:
        return self.cells

    @property
    def failures(self) -> int:
        return self.wrong + self.timeouts

    @property
    def note(self) -> str:
        return f"{self.cells} calls, {self.elements:,} elements, {self.failures} wrong"

    def count(self, cell: Cell, *, wrong: bool, timed_out: bool) -> None:
        self.cells += 1
        self.elements += cell.size
        self.timeouts += timed_out
        self.wrong += wrong and not timed_out

    def count_packets(self, members: Members) -> None:
        """Add what a job's members have sent."""
        self.retransmissions += sum(comm.stats.retransmissions for comm in members.communicators)
        for transport in members.faulty:
            for name in ("packets", "dropped", "duplicated", "reordered"):
                setattr(self, name, getattr(self, name) + getattr(transport.counts, name))

    def figures(self) -> dict[str, Any]:
        found = super().figures()
        return {"calls": found.pop("cells"), "rounds": found.pop("jobs"), **found}


# Random allreduce calls: everything about one follows from a seed, the round's number and the call's.
#
# A *round* is one job: its workers, window and block size, and the calls that its members make one after the other (a
# call with predicted scales depends on the calls before it, so a round is the unit that can be replayed).


MAX_ELEMENTS: Final = 1 << 20
MAX_WORKERS: Final = 8

# A seed keeps its rounds, so types that came later are only in the matrix.
FLOATS: Final = ("float16", "float32", "float64")
DTYPES: Final = (*FLOATS, "int8", "int16", "int32", "int64")

_EDGES: Final = (0, 1, 2, 3, 63, 64, 65, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2049, 4095, 4097, 1 << 20)
# Most calls are small, so that a run has many of them; a few have the maximum size.
_SIZE_CLASSES: Final = ((0.55, 12), (0.30, 15), (0.10, 18), (0.05, 20))
_LARGE: Final = 1 << 16


@dataclass(frozen=True)
class VerifyRound:
    """One job and its calls. ``window`` in blocks, ``chunks`` of 256 bytes a block."""

    seed: int
    index: int
    workers: int
    window: int
    chunks: int
    calls: tuple[Cell, ...]


def make_round(
    seed: int,
    index: int,
    *,
    calls: int,
    workers: tuple[int, ...] = tuple(range(1, MAX_WORKERS + 1)),
    max_elements: int = MAX_ELEMENTS,
) -> VerifyRound:
    """Round ``index`` of the run with that seed: it has ``calls`` calls, and its number of workers is drawn from ``workers``."""
    rng = np.random.default_rng([seed, index])
    count = int(rng.choice(workers))
    chunks = int(rng.choice([1, 2, 4, 5, 8, 16, 16, 16, 16]))
    window = int(rng.choice([1, 2, 7, 16, 32, 64, 64, 64, 128]))
    # Small blocks and windows need many round trips, so they get small arrays.
    limit = min(max_elements, MAX_ELEMENTS * chunks * min(window, 16) // 256)
    made = tuple(_make_call((seed, index, number), count, limit) for number in range(calls))
    return VerifyRound(seed, index, count, window, chunks, made)


def _make_call(seed: tuple[int, int, int], workers: int, limit: int) -> Cell:
    rng = np.random.default_rng(seed)
    dtype = str(rng.choice(DTYPES))
    floating = dtype in FLOATS
    op = str(rng.choice(["sum", "mean", "max"] if floating else ["sum", "sum", "max"]))
    elements = _draw_elements(rng, limit)
    if elements > _LARGE and not _worth_it(rng, elements):
        elements = _LARGE
    late = rng.random(workers) < 0.15
    return Cell(
        seed=seed,
        index=seed[2],
        kind=CallKind("allreduce", op, dtype),
        workers=workers,
        size=elements,
        shape=_draw_shape(rng, elements),
        fill=str(rng.choice(FLOAT_FILLS if floating else INTEGER_FILLS)),
        scale="predicted" if floating and op != "max" and rng.random() < 0.4 else "agreed",
        in_place=bool(rng.random() < 0.3),
        strided=bool(rng.random() < 0.15),
        joined=bool(rng.random() < 0.2),
        delays=tuple(float(delay) for delay in np.where(late, rng.uniform(0, 0.01, workers), 0.0)),
    )


def _worth_it(rng: np.random.Generator, elements: int) -> bool:
    """Large arrays take most of a run's time, so only some of them stay large."""
    return bool(rng.random() < 4 * _LARGE / elements)


def _draw_elements(rng: np.random.Generator, limit: int) -> int:
    if rng.random() < 0.25:
        return min(int(rng.choice(_EDGES)), limit)
    weights = [weight for weight, _ in _SIZE_CLASSES]
    bits = _SIZE_CLASSES[int(rng.choice(len(weights), p=weights))][1]
    return min(int(2 ** rng.uniform(0, bits)), limit)


def _draw_shape(rng: np.random.Generator, elements: int) -> tuple[int, ...]:
    """A shape with that many elements and zero to three dimensions."""
    if elements == 1 and rng.random() < 0.5:
        return ()
    if elements == 0:
        return ((0,), (3, 0), (0, 5, 2))[int(rng.integers(3))]
    shape = [elements]
    for _ in range(int(rng.integers(3))):
        divisors = [d for d in (2, 3, 5, 7, 8) if shape[-1] % d == 0 and shape[-1] > d]
        if divisors:
            shape[-1:] = [int(rng.choice(divisors)), shape[-1]]
            shape[-1] //= shape[-2]
    return tuple(shape)


CALLS_PER_ROUND: Final = 40


@dataclass(frozen=True)
class VerifyJob:
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

    def __init__(self, fabric: Fabric, totals: CellTotals, screen: Screen, until: float, most: int | None = None) -> None:
        self._fabric = fabric
        self.totals = totals
        self._screen = screen
        self._until = until
        self._left = math.inf if most is None else most
        self._begun = time.monotonic() - totals.seconds

    def run(self, numbers: Iterable[int], make_job: Callable[[int], VerifyJob]) -> None:
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

    def _make(self, job: VerifyJob) -> None:
        seed, number, _ = job.cells[0].seed
        with ExitStack() as stack:
            members = stack.enter_context(joined(self._fabric, job.spec, job.faults, (seed << 40) + (number << 8), job.algorithm))
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

    def _judge(self, job: VerifyJob, checker: Checker, answers: list[Answer]) -> None:
        """Count a cell and say what is wrong with it."""
        answers.sort(key=lambda answer: answer.rank)
        cell = answers[0].cell
        errors = [(answer.rank, answer.error) for answer in answers if answer.error is not None]
        found = [f"rank {rank}: {type(error).__name__}: {error}" for rank, error in errors]
        if not found and len(answers) < cell.workers:
            found = [f"only ranks {[answer.rank for answer in answers]} have a result"]
        found = found or checker.complaints(cell, [answer.result for answer in answers])
        self.totals.count(cell, wrong=bool(found), timed_out=any(isinstance(error, CallTimeoutError) for _, error in errors))
        if found:
            self._screen.say(f"{job.said}, call {cell.index}: {cell.describe()}")
            for line in found:
                self._screen.say(f"  {line}")
            self._screen.say(f"  again with: {job.again}")
        self._screen.show(self.totals)


@dataclass(frozen=True)
class VerifyOptions:
    """Options of a run. ``duration`` in seconds; ``calls``: the number after which to stop, if given; ``only``: that round alone.

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


def run(fabric: Fabric, options: VerifyOptions, totals: CellTotals, screen: Screen) -> None:
    hosts = list(fabric.topology.hosts)

    def make_job(number: int) -> VerifyJob:
        made = make_round(options.seed, number, calls=CALLS_PER_ROUND, workers=options.workers, max_elements=options.max_elements)
        members = tuple(hosts[rank % len(hosts)] for rank in range(made.workers))
        spec = JobSpec(name=f"verify-{number}", members=members, window=made.window, chunks=made.chunks)
        said, again = f"round {number} ({counted(made.workers, 'worker')})", options.replay(fabric.switch, number)
        return VerifyJob(spec, made.calls, said, again, options.faults, options.algorithm)

    Checks(fabric, totals, screen, options.duration, options.calls).run(numbers_from(0, options.only), make_job)
