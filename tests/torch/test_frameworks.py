# SPDX-License-Identifier: MIT
"""Training with frameworks, each in a program of its own. They are in another environment (scripts/environment)."""

from __future__ import annotations

import re

import pytest

from tests.repository.tree import ROOT
from tests.torch.conftest import PROGRAMS, TRAINING, Run

RANKS = 2
pytestmark = [
    pytest.mark.training,
    pytest.mark.full,
    pytest.mark.timeout(3600),  # many processes start, each with torch and a framework
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


@pytest.mark.parametrize(
    ("example", "steps", "accuracy"),
    [
        ("lightning_digits.py", 540, 90),
        ("accelerate_digits.py", 540, 90),
        ("transformers_trainer.py", 80, 25),
        ("deepspeed_digits.py", 540, 90),
    ],
)
def test_a_framework_learns_and_has_the_same_weights_as_on_gloo(
    run_ranks: Run,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    example: str,
    steps: int,
    accuracy: float,
) -> None:
    """``accuracy`` in percent. Exact sums over two ranks are Gloo's, which adds two numbers and rounds once."""

    def run(backend: str, **options: bool) -> tuple[str, str]:
        """The example's loss and accuracy, and the digest of its weights, the same on all ranks."""
        run_ranks(PROGRAMS / "frameworks.py", RANKS, str(ROOT / "examples" / example), backend, python=TRAINING, **options)
        said = capsys.readouterr().out
        found = re.findall(r"([\w.]+): (\d+) bytes reduced, (\d+) bytes of weights, (\w{64})", said)
        assert len(found) == RANKS
        assert len({digest for *_, digest in found}) == 1
        if backend == "netsum":
            assert {module for module, *_ in found} == {"netsum.torch.process_group"}
            assert all(int(reduced) >= steps * int(weights) for _, reduced, weights, _ in found)
        else:
            assert {(module, reduced) for module, reduced, *_ in found} == {("torch.distributed.distributed_c10d", "0")}
        (result,) = re.findall(rf"{RANKS} ranks on {backend}: (loss [0-9.]+, accuracy [0-9.]+%)", said)
        return result, found[0][-1]

    monkeypatch.setenv("NETSUM_SUM", "exact")
    result, weights = run("netsum")
    assert float(re.findall(r"accuracy ([0-9.]+)%", result)[0]) > accuracy
    assert run("gloo", torchrun=True) == (result, weights)
