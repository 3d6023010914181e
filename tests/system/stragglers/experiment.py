# SPDX-License-Identifier: MIT
"""One training, in its own job on a running fabric, and its outcome."""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.state.model import Late
from netsum_testbed.demo.model import Digits, Perceptron
from netsum_testbed.demo.run import largest_difference
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.processes import Child

from tests.system import SEARCH_PATH
from tests.system.stragglers.training import Diary, WorkerPlan

# When a straggler sleeps, and for how long: after the evaluation of Trio-ML and the slow-worker pattern of FlexRR (SoCC
# 2016).
#
# Every step has a few points, at each of which the worker sleeps with probability p for a time drawn uniformly from 0.5
# to 2 times a step's usual time. Everything follows from the seed, so it is the same in every job.


SHORTEST: Final = 0.5
LONGEST: Final = 2.0
"""The length of a sleep, in steps' usual times."""


@dataclass(frozen=True)
class Pattern:
    """``nap``: one long sleep, in steps' usual times, half-way. ``ahead``: no sleep ends before the others are so many blocks
    ahead."""

    probability: float = 0.0
    points: int = 3
    seed: int = 1
    nap: float = 0.0
    ahead: int = 0

    def delays(self, steps: int, rank: int = 0) -> list[float]:
        """Delays of each step of a rank, in steps' usual times."""
        rng = np.random.default_rng([self.seed, rank])
        asleep = rng.random((steps, self.points)) < self.probability
        delays = (asleep * rng.uniform(SHORTEST, LONGEST, asleep.shape)).sum(axis=1)
        if self.nap:
            delays[steps // 2] += self.nap
        return [float(delay) for delay in delays]

    def __str__(self) -> str:
        return f"{self.nap:g} steps" if self.nap else f"p = {self.probability:g}"

    @property
    def mean(self) -> float:
        """A step's average delay, in steps' usual times, without naps."""
        return self.points * self.probability * (SHORTEST + LONGEST) / 2


WINDOW: Final = 64
"""As many blocks in flight as a call has, so that it waits for a straggler only once or twice."""
LOOK: Final = 0.05
"""Seconds between checks whether the workers have ended."""

# There are more workers than cores; numpy's own threads would only get in the way.
_ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Setting:
    """Options that all trainings of a run share. ``compute``, ``block_exp``: seconds. The last ``stragglers`` ranks are
    stragglers."""

    workers: int
    steps: int
    compute: float
    block_exp: float
    stragglers: int = 1

    @property
    def quorum(self) -> int:
        """All but the stragglers, and at least half, so that no other is left out for being slightly late."""
        return max((self.workers + 1) // 2, self.workers - self.stragglers)


@dataclass(frozen=True)
class Mode:
    """Treatment of late members: ``wait``, or ``degrade`` with the hosts' policy ``late``."""

    degrade: bool
    late: str = "accept"

    def __str__(self) -> str:
        return f"degrade: {self.late}" if self.degrade else "wait"


WAIT: Final = Mode(degrade=False)


@dataclass(frozen=True)
class TrainingOutcome:
    """The outcome of a training. ``iterations``: seconds between steps' ends, of the workers that are not stragglers (of
    all, if all are); ``difference``: the largest between two replicas' weights."""

    mode: Mode
    pattern: Pattern
    iterations: tuple[float, ...]
    accuracy: float
    difference: float
    stragglers: tuple[Diary, ...]
    others: tuple[Diary, ...]

    @property
    def median(self) -> float:
        """Of a step, in seconds."""
        return statistics.median(self.iterations)

    @property
    def mean(self) -> float:
        """Of a step, in seconds."""
        return statistics.fmean(self.iterations)

    def count(self, name: str) -> int:
        """A count of the diaries, over all workers."""
        return sum(getattr(diary, name) for diary in (*self.stragglers, *self.others))


class Experiment:
    """Runs trainings on a fabric, one after the other."""

    def __init__(self, fabric: Fabric, setting: Setting) -> None:
        self._fabric = fabric
        self._setting = setting
        self._digits = Digits.from_scikit_learn()
        self._images = fabric.directory / "digits.npz"
        self._digits.save(self._images)

    def run(self, mode: Mode, pattern: Pattern, usual: float = 0.0) -> TrainingOutcome:
        """Train once. ``usual``: seconds that a step usually takes, which the pattern's delays are measured in."""
        setting, number = self._setting, next(_numbers)
        name = f"stragglers-{number}"
        hosts = tuple(self._fabric.topology.hosts)[: setting.workers]
        how: dict[str, Any] = {}
        if mode.degrade:
            how = {"late": Late.DEGRADE, "block_exp": 1000 * setting.block_exp, "quorum": setting.quorum}
        job = self._fabric.create_job(JobSpec(name=name, members=hosts, window=WINDOW, **how))
        folder = self._fabric.directory / name
        folder.mkdir()
        children = []
        for rank, host in enumerate(hosts):
            awake = rank < setting.workers - setting.stragglers
            delays = () if awake else tuple(usual * delay for delay in pattern.delays(setting.steps, rank))
            plan = folder / f"plan.{rank}"
            work = WorkerPlan(setting.steps, setting.compute, mode.late, delays, pattern.ahead)
            plan.write_text(json.dumps(asdict(work)), "utf-8")
            files = [str(path) for path in (self._images, plan, folder / f"worker{rank}")]
            command = [sys.executable, "-m", "tests.system.stragglers.training", *files]
            environment = {**_ONE_THREAD, "PYTHONPATH": SEARCH_PATH, **self._fabric.environment(job, rank)}
            children.append(self._fabric.spawn(host, command, name=f"{name}.worker{rank}", environment=environment))
        _finish(children)
        self._fabric.delete_job(name)
        return self._judge(folder, mode, pattern)

    def _judge(self, folder: Path, mode: Mode, pattern: Pattern) -> TrainingOutcome:
        ranks = range(self._setting.workers)
        replicas = [np.load(folder / f"worker{rank}.npy") for rank in ranks]
        diaries = [Diary(**json.loads((folder / f"worker{rank}.json").read_text("utf-8"))) for rank in ranks]
        awake = self._setting.workers - self._setting.stragglers
        steady = diaries[:awake] or diaries
        model = Perceptron()
        model.parameters[...] = replicas[0]
        return TrainingOutcome(
            mode,
            pattern,
            tuple(float(each) for diary in steady for each in np.diff(diary.ends)),
            model.accuracy(self._digits.test_images, self._digits.test_labels),
            largest_difference(replicas),
            tuple(diaries[awake:]),
            tuple(diaries[:awake]),
        )


def _finish(children: Sequence[Child]) -> None:
    """Wait for all to end, as they do because their calls have timeouts. Raises :class:`TestbedError` with a worker's last
    words if one fails."""
    codes: list[int | None] = [None]
    while None in codes:
        time.sleep(LOOK)
        codes = [child.exit_code for child in children]
        for rank, code in enumerate(codes):
            if code:
                words = children[rank].last_words() or "it said nothing"
                raise TestbedError(f"worker {rank} failed (exit code {code}): {words}")


# The trainings of ``make stragglers``, in order.


MODES: Final = (WAIT, Mode(degrade=True, late="accept"), Mode(degrade=True, late="carry"))


@dataclass(frozen=True)
class Results:
    """``alone``: without stragglers, in a job that waits and in one that degrades. ``rows``: with stragglers, for every pattern
    a tuple of one training per mode."""

    switch: str
    setting: Setting
    alone: tuple[TrainingOutcome, ...]
    rows: tuple[tuple[TrainingOutcome, ...], ...]

    @property
    def usual(self) -> float:
        """Seconds that a step takes without a straggler."""
        return self.alone[0].median

    @property
    def trainings(self) -> Iterator[TrainingOutcome]:
        yield from self.alone
        for row in self.rows:
            yield from row


def run_all(fabric: Fabric, setting: Setting, patterns: Sequence[Pattern], say: Callable[[str], None]) -> Results:
    """Train without a straggler first, which tells how long a step takes, then with every pattern in every mode."""
    experiment = Experiment(fabric, setting)
    alone = []
    for mode in MODES[:2]:
        say(f"asleep: none, {mode}")
        alone.append(experiment.run(mode, Pattern()))
    usual = alone[0].median
    rows = []
    for pattern in patterns:
        row = []
        for mode in MODES:
            say(f"asleep: {pattern}, {mode}")
            row.append(experiment.run(mode, pattern, usual))
        rows.append(tuple(row))
    return Results(fabric.switch, setting, tuple(alone), tuple(rows))
