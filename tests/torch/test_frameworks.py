"""Training with torchft, Ray and JAX, each in a program of its own. They are in another environment (scripts/environment)."""

from __future__ import annotations

import re

import pytest

from tests.repository.tree import ROOT
from tests.torch.conftest import PROGRAMS, TRAINING, Run

pytestmark = [
    pytest.mark.training,
    pytest.mark.full,
    pytest.mark.timeout(3600),  # many processes start, each with torch, Ray or JAX
    pytest.mark.parametrize("torch_fabric", ["rootless-embedded"], indirect=True),
]


def test_ray_train_on_two_nodes(run_ranks: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run_ranks(PROGRAMS / "ray_nodes.py", 2, str(ROOT / "examples" / "ray_digits.py"), once=True, python=TRAINING)
    said = capsys.readouterr().out
    found = re.findall(r"rank (\d) of 2, member (\d) of the job, on netsum: accuracy ([0-9.]+)%", said)
    assert {(rank, accuracy) for rank, _, accuracy in found} == {(rank, found[0][2]) for rank in "01"}
    assert {member for _, member, _ in found} == {"0", "1"}
    assert float(found[0][2]) > 90


def test_jax_through_numpy(run_ranks: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run_ranks(ROOT / "examples" / "train_jax.py", 2, python=TRAINING)
    found = re.findall(r"accuracy ([0-9.]+)%, weights (\S+)", capsys.readouterr().out)
    assert len(found) == 2
    assert len(set(found)) == 1, "the same on all ranks"
    assert float(found[0][0]) > 90


def test_a_replica_of_torchft_dies_and_comes_back(run_ranks: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run_ranks(PROGRAMS / "replicas.py", 2, once=True, python=TRAINING)
    said = capsys.readouterr().out
    weights = re.findall(r"weights (\w+) after step (\d+)", said)
    assert len(weights) == 2
    assert len(set(weights)) == 1, "the same on both replicas"
    assert "together again" in said
