# SPDX-License-Identifier: MIT
"""The parts of ``make stragglers``: when a straggler sleeps, what it does when it is late, and the report."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from netsum import DesynchronizedError, Report, ResultLostError, Stats
from netsum_testbed.demo.model import BATCH, Digits, Perceptron
from rich.console import Console

from tests.system.stragglers.command import results_table, to_json
from tests.system.stragglers.experiment import LONGEST, MODES, SHORTEST, Mode, Pattern, Results, Setting, TrainingOutcome
from tests.system.stragglers.training import Diary, Training, WorkerPlan


def test_a_pattern_follows_from_its_seed() -> None:
    pattern = Pattern(0.3, seed=5)
    assert pattern.delays(50, 3) == pattern.delays(50, 3)
    assert pattern.delays(50, 3) != pattern.delays(50, 2)
    assert pattern.delays(50, 3) != Pattern(0.3, seed=6).delays(50, 3)


def test_a_pattern_sleeps_as_often_and_as_long_as_it_says() -> None:
    delays = np.array(Pattern(0.1, points=1).delays(20_000))
    asleep = delays[delays > 0]
    assert 0.09 < len(asleep) / len(delays) < 0.11
    assert asleep.min() >= SHORTEST
    assert asleep.max() <= LONGEST
    three = Pattern(0.16)
    assert np.mean(three.delays(20_000)) == pytest.approx(three.mean, rel=0.05)
    assert three.mean == pytest.approx(0.6)
    assert set(Pattern(0).delays(100)) == {0}


def test_a_nap_is_half_way() -> None:
    assert Pattern(nap=7).delays(4) == [0, 0, 7, 0]
    assert (str(Pattern(nap=7)), str(Pattern(0.25))) == ("7 steps", "p = 0.25")


class Others:
    """A communicator whose calls go as told: ``fine``, ``late`` (all blocks were closed before), ``behind`` or ``new epoch``;
    ``ahead`` is what it answers when it is asked how far the others are."""

    rank, size = 1, 2

    def __init__(self, calls: list[str], ahead: list[int] | None = None) -> None:
        self._calls = calls
        self._ahead = ahead or []
        self.stats = Stats()
        self.report = Report()
        self.gave: list[bool] = []
        self.resynced: list[int] = []
        self.barriers = 0

    def barrier(self) -> None:
        self.barriers += 1

    def lag(self) -> int:
        return self._ahead.pop(0) if self._ahead else 0

    def allreduce(self, x: Any, *, op: str, out: Any, on_late: str, contribute: bool) -> Any:
        assert (op, on_late) == ("mean", "carry")
        assert contribute or not x.any()
        self.gave.append(contribute)
        call = self._calls.pop(0)
        was_late = call == "late"
        self.report = Report(blocks=10, degraded=10 * was_late, late=10 * was_late, missed=10 * (was_late or not contribute))
        if call == "behind":
            self.stats.lost = 1
            raise ResultLostError(self.report)
        if call == "new epoch":
            raise DesynchronizedError("another rank is new")
        out[...] = x
        return out

    def resync(self, *state: Any, progress: int) -> int:
        assert [array.shape for array in state] == [Perceptron().parameters.shape] * 2
        self.resynced.append(progress)
        return progress + 1


def train(others: Others, steps: int, *delays: float) -> tuple[Training, list[float]]:
    sleeps: list[float] = []
    plan = WorkerPlan(steps, late="carry", delays=delays)
    training = Training(Digits.from_scikit_learn(), plan, others, sleeps.append)  # type: ignore[arg-type]
    training.run()
    return training, [sleep for sleep in sleeps if sleep]


def test_who_is_late_sits_out_until_in_time() -> None:
    others = Others(["fine", "late", "late", "fine", "fine"])
    training, _ = train(others, 5)
    assert others.gave == [True, True, False, False, True]
    assert (training.diary.late, training.diary.sat_out, training.diary.missed) == (2, 2, 30)
    assert (training.diary.blocks, training.diary.degraded) == (50, 20)
    assert len(training.diary.ends) == 6
    assert others.barriers == 2


def test_who_wakes_behind_does_not_compute() -> None:
    """The others are ahead when it wakes; in the next step it does not even begin."""
    others = Others(["fine"] * 3, ahead=[0, 51, 7, 0, 0])
    training, sleeps = train(others, 3, 0.5, 0.25, 0.125)
    assert others.gave == [False, False, True]
    assert sleeps == [0.5, 0.125]
    assert training.diary.slept == 0.625
    # With 5 ms of computing, the rest of it is spent idle.
    training = Training(Digits.from_scikit_learn(), WorkerPlan(1, 60.0, "carry"), Others(["fine"]), sleeps.append)  # type: ignore[arg-type]
    training.run()
    assert 50 < sleeps[-1] < 60


@pytest.mark.parametrize("what", ["behind", "new epoch"])
def test_back_in_step_where_the_others_are(what: str) -> None:
    others = Others(["fine", what, "fine"])
    training, _ = train(others, 3)
    assert others.resynced == [2]  # the first barrier and a step; the one that is furthest has one step more
    assert others.gave == [True, True, True]
    assert (training.diary.behind, training.diary.resyncs) == (int(what == "behind"), 1)
    assert others.barriers == 2


def test_training_is_the_models() -> None:
    """Its share of the batch, for as many as there are workers."""
    training, _ = train(Others(["fine"]), 1)
    digits, alone = Digits.from_scikit_learn(), Perceptron()
    share = next(digits.batches(1))[1::2]
    alone.update(2 * alone.gradient(digits.images[share], digits.labels[share], BATCH)[1])
    np.testing.assert_array_equal(training.model.parameters, alone.parameters)


def outcome(mode: Mode, pattern: Pattern, step: float, accuracy: float = 0.97) -> TrainingOutcome:
    sleeper = Diary(1, blocks=10, degraded=4, sat_out=2, resyncs=1)
    return TrainingOutcome(mode, pattern, (step, 2 * step), accuracy, 0.0, (sleeper,), (Diary(0, blocks=10, degraded=4),))


def test_report() -> None:
    setting = Setting(2, 2, 0.04, 0.02)
    assert setting.quorum == 1
    assert Setting(4, 2, 0.04, 0.02).quorum == 3
    assert Setting(4, 2, 0.04, 0.02, stragglers=4).quorum == 2
    pattern = Pattern(0.32)
    alone = tuple(outcome(mode, Pattern(), 0.06) for mode in MODES[:2])
    row = tuple(outcome(mode, pattern, step, 0.965) for mode, step in zip(MODES, (0.12, 0.06, 0.08), strict=True))
    results = Results("embedded", setting, alone, (row,))
    assert results.usual == pytest.approx(0.09)
    assert len(list(results.trainings)) == 5
    said = json.loads(to_json(results))
    assert said["best_speed_up"] == 2.0
    assert said["largest_accuracy_loss"] == 0.005
    assert said["iteration_ms"] == 90
    assert [each["policy"] for each in said["trainings"]] == [None, "accept", None, "accept", "carry"]
    assert [each.get("speed_up") for each in said["trainings"]] == [None, None, 1.0, 2.0, 1.5]
    assert said["trainings"][4]["sat_out"] == 2
    assert [each.get("speed_up_bound") for each in said["trainings"]] == [None, None, 2.2, 2.2, 2.2]
    console = Console(width=80, record=True)
    console.print(results_table(results))
    lines = console.export_text().splitlines()
    carry = next(line.split() for line in lines if "carry" in line)
    assert carry == ["carry", "120.0", "120.0", "1.50", "96.5%", "40.0%", "2", "1"]
    assert not any("…" in line for line in lines)
