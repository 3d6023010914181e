"""``make stragglers`` as a user sees it, and a straggler that is asleep for longer than the switch remembers."""

from __future__ import annotations

import os
import signal

import pytest
from netsum_controller.config.topologies import star
from netsum_testbed.rootless import RootlessFabric
from netsum_trials.stragglers.pattern import Pattern
from netsum_trials.stragglers.trial import Mode, Setting, Trial

from tests.testbed.conftest import Refused, Start


@pytest.mark.full
def test_in_mininet(netsum: Start, switch: str) -> None:
    sizes = ("--workers", "3", "--steps", "12", "--compute", "5", "--probabilities", "0.4", "--nap", "0")
    command = netsum("stragglers", "--switch", switch, *sizes)
    command.ends()
    said = command.json()
    assert (said["switch"], said["workers"], said["quorum"], said["steps"]) == (switch, 3, 2, 12)
    jobs = [(each["job"], each["policy"], each["probability"]) for each in said["trainings"]]
    assert jobs[:2] == [("wait", None, 0), ("degrade", "accept", 0)]
    assert jobs[2:] == [("wait", None, 0.4), ("degrade", "accept", 0.4), ("degrade", "carry", 0.4)]
    for training in said["trainings"]:
        assert training["max_weight_difference"] == 0
        assert training["blocks"] >= 3 * 12 * 50
        assert training["iteration_ms_mean"] > 0
        assert (training["slept_s"] > 0) == (training["probability"] > 0)
        if training["job"] == "wait":
            assert training["degraded"] == training["missed"] == training["sat_out"] == training["resyncs"] == 0
    # A job that waits leaves nobody out: whoever sleeps, all learn the same.
    assert said["trainings"][0]["accuracy"] == said["trainings"][2]["accuracy"]


@pytest.mark.full
def test_asleep_for_longer_than_the_switch_remembers() -> None:
    """The others train to the end; it wakes, is Behind, and comes back with what they have learnt."""
    # Two of three are the quorum: if a busy machine held one of the others up for block_exp, all would wait for the sleeper.
    setting = Setting(workers=3, steps=60, compute=0.0, block_exp=0.2)
    with RootlessFabric(star(3)) as fabric:
        outcome = Trial(fabric, setting).run(Mode(degrade=True), Pattern(nap=30), usual=0.15)
    assert outcome.difference == 0
    (sleeper,) = outcome.stragglers
    assert sleeper.behind == 1
    assert [diary.resyncs for diary in outcome.others] == [1, 1]
    assert all(diary.behind == 0 and len(diary.ends) == 61 for diary in outcome.others)
    assert len(sleeper.ends) < 61
    assert outcome.accuracy > 0.9


@pytest.mark.full
def test_a_worker_that_dies(netsum: Start) -> None:
    command = netsum("stragglers", "--rootless", "--workers", "2", "--steps", "2000")
    command.wait_for("asleep: nobody, wait")
    while not (workers := [pid for pid, words in command.marked().items() if "stragglers.worker" in words]):
        assert command.process.poll() is None, command.output
    os.kill(workers[0], signal.SIGKILL)
    command.ends(1)
    assert "failed (exit code -9)" in command.lines[-1]


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["--rootless", "--switch", "bmv2"], 1, "netsum: --rootless: simple_switch_grpc needs network interfaces"),
        (["--probabilities", "0.1,2"], 2, "'0.1,2': each must be within 0..1"),
        (["--probabilities", "often"], 2, "'often' is not a list of numbers like 0,1"),
        (["--stragglers", "5"], 2, "--stragglers 5: there are 4 workers"),
    ],
)
def test_what_cannot_be(refused: Refused, words: list[str], code: int, complaint: str) -> None:
    said, lines = refused("stragglers", *words)
    assert said == code
    (line,) = lines
    assert complaint in line
