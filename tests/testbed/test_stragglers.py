# SPDX-License-Identifier: MIT
"""``make stragglers`` as a user sees it; a straggler that is asleep for longer than the switch remembers; and
examples/train_degrade.py, in which a straggler catches up, or cannot."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_controller.state.model import Late
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import RootlessFabric

from tests.system.stragglers.experiment import WINDOW, Experiment, Mode, Pattern, Setting
from tests.testbed.conftest import Refused, Start
from tests.threads import PATIENCE


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
        # A straggler that comes back after the switch has forgotten what it missed skips those steps; no other rank does.
        assert training["blocks"] >= (2 if training["resyncs"] else 3) * 12 * 50
        assert training["iteration_ms_mean"] > 0
        assert training["probability"] > 0 or training["slept_s"] == 0
        if training["job"] == "wait":  # elsewhere a straggler that is far behind catches up instead of sleeping
            assert (training["slept_s"] > 0) == (training["probability"] > 0)
            assert training["degraded"] == training["missed"] == training["sat_out"] == training["resyncs"] == 0
    # A job that waits leaves no rank out: all learn the same.
    assert said["trainings"][0]["accuracy"] == said["trainings"][2]["accuracy"]


@pytest.mark.full
def test_asleep_for_longer_than_the_switch_remembers() -> None:
    """The others train to the end; it wakes, is ResultLostError, and comes back with what they have learnt."""
    # Two of three are the quorum: if a busy machine held one of the others up for block_exp, all would wait for the sleeper.
    setting = Setting(workers=3, steps=90, compute=0.0, block_exp=0.2)
    pattern = Pattern(nap=1, ahead=10 * WINDOW)  # the switch remembers eight windows
    with RootlessFabric(star(3)) as fabric:
        outcome = Experiment(fabric, setting).run(Mode(degrade=True), pattern, usual=0.15)
    assert outcome.difference == 0
    (sleeper,) = outcome.stragglers
    # A busy machine may make any rank late again after they have come together, and they do so once more.
    assert sleeper.behind >= 1
    assert all(diary.resyncs >= 1 for diary in outcome.others)
    assert len(sleeper.ends) < 91
    assert outcome.accuracy > 0.9


@pytest.mark.full
def test_a_worker_that_dies(netsum: Start) -> None:
    command = netsum("stragglers", "--rootless", "--workers", "2", "--steps", "2000")
    command.wait_for("asleep: none, wait")
    while not (workers := [pid for pid, words in command.marked().items() if "stragglers.training" in words]):
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


PROGRAM = Path(__file__).parents[2] / "examples" / "train_degrade.py"
END = re.compile(r"rank (\d): accuracy ([\d.]+)%, sat out (\d+) steps, first column sums to (\S+)")
RANKS = 3


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    with RootlessFabric(star(RANKS)) as fabric:
        yield fabric


def train(fabric: Fabric, window: int, **settings: str) -> list[str]:
    """Train in a job on the fabric; return what its ranks print."""
    name = f"window{window}"
    spec = JobSpec(name=name, members=("h1", "h2", "h3"), window=window, late=Late.DEGRADE, block_exp=20.0, quorum=2)
    job = fabric.create_job(spec)
    children = [
        fabric.spawn(
            host,
            [sys.executable, str(PROGRAM)],
            name=f"{name}.{rank}",
            environment={**settings, **fabric.environment(job, rank)},
        )
        for rank, host in enumerate(spec.members)
    ]
    said = []
    for child in children:
        code = child.wait(PATIENCE)
        said.append(child.last_words(100))
        assert code == 0, said
    fabric.controller.delete_job(name)
    return said


def ends(said: list[str]) -> tuple[list[int], float]:
    """Steps that each rank sat out, and the accuracy; their weights must be equal."""
    found = [END.search(words) for words in said]
    assert all(found), said
    ranks = [match.groups() for match in found if match]
    assert [int(rank[0]) for rank in ranks] == list(range(RANKS))
    assert len({(rank[1], rank[3]) for rank in ranks}) == 1, said
    return [int(rank[2]) for rank in ranks], float(ranks[0][1])


@pytest.mark.full
def test_it_catches_up(fabric: Fabric) -> None:
    """A window of 64: the switch holds 512 blocks, more than the training has."""
    said = train(fabric, 64, STEPS="60", NAP="0.3")
    sat_out, accuracy = ends(said)
    assert sat_out[2] > 0
    assert accuracy > 80
    assert not any("back in step" in words for words in said)


@pytest.mark.full
def test_it_comes_back(fabric: Fabric) -> None:
    """A window of 2: the switch holds 16 blocks, eight steps, and the nap is longer."""
    said = train(fabric, 2, STEPS="60", NAP="8")
    ends(said)
    assert all("back in step" in words for words in said), said
