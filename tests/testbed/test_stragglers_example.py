"""examples/train_degrade.py: a straggler that catches up, and one that cannot."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_controller.state.model import Late
from netsum_testbed.fabric import Fabric
from netsum_testbed.rootless import RootlessFabric

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
        code = child.wait(240)
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
    said = train(fabric, 2, STEPS="60", NAP="3")
    ends(said)
    assert all("back in step" in words for words in said), said
