# SPDX-License-Identifier: MIT
"""torch's own programs on the backend, each rank a process. Needs PyTorch."""

from __future__ import annotations

import re

import pytest

from tests.repository.tree import ROOT
from tests.torch.conftest import PROGRAMS, Run

pytestmark = [pytest.mark.torch, pytest.mark.full]
ROOTLESS = pytest.mark.parametrize("torch_fabric", ["rootless-embedded"], indirect=True)
"""In a Mininet network one torchrun would have all ranks on one host, whose address is not theirs."""


def test_messages_and_groups(run_ranks: Run) -> None:
    run_ranks(PROGRAMS / "messages.py", 3)


def test_data_parallel_mixed_precision_and_sparse_gradients(run_ranks: Run) -> None:
    run_ranks(PROGRAMS / "training.py", 2, "ddp", "amp", "sparse")


def test_what_else_torch_builds_on_a_process_group(run_ranks: Run) -> None:
    run_ranks(PROGRAMS / "training.py", 4, "fsdp", "tensor_parallel", "checkpoints", "pipeline", "zero", "power")


@pytest.mark.parametrize("algorithm", ["ring", "auto"])
def test_without_a_switch(run_ranks: Run, algorithm: str) -> None:
    run_ranks(PROGRAMS / "training.py", 4, "ddp", "fsdp", algorithm=algorithm)


def test_the_hook_for_those_who_keep_another_backend(run_ranks: Run) -> None:
    run_ranks(PROGRAMS / "training.py", 2, "hooks")


@ROOTLESS
def test_an_example_under_torchrun(run_ranks: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run_ranks(ROOT / "examples" / "ddp_digits.py", 2, torchrun=True)
    assert "weights: the same on all ranks" in capsys.readouterr().out


def test_the_transformer_learns(run_ranks: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run_ranks(ROOT / "examples" / "fsdp_text.py", 2)
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", capsys.readouterr().out)]
    assert losses[-1] < 0.8 * losses[0]


@ROOTLESS
def test_the_transformer_under_torchrun(run_ranks: Run) -> None:
    run_ranks(ROOT / "examples" / "fsdp_text.py", 2, torchrun=True)


@ROOTLESS
@pytest.mark.parametrize("torchrun", [False, True])
def test_large_batches(run_ranks: Run, capsys: pytest.CaptureFixture[str], torchrun: bool) -> None:
    run_ranks(ROOT / "examples" / "large_batch.py", 2, torchrun=torchrun)
    accuracy = dict(re.findall(r"(SGD|LARS|LAMB): accuracy ([0-9.]+)%", capsys.readouterr().out))
    assert float(accuracy["LAMB"]) > float(accuracy["SGD"])
    assert float(accuracy["LARS"]) > 80


@ROOTLESS
@pytest.mark.parametrize("torchrun", [False, True])
def test_who_talks_seldom_learns_too(run_ranks: Run, capsys: pytest.CaptureFixture[str], torchrun: bool) -> None:
    run_ranks(ROOT / "examples" / "local_sgd.py", 2, torchrun=torchrun)
    found = re.findall(r"(\w+): accuracy ([0-9.]+)%, (\d+) kB", capsys.readouterr().out)
    sent = {way: int(bytes_sent) for way, _, bytes_sent in found}
    assert all(float(accuracy) > 93 for _, accuracy, _ in found)
    assert all(sent[way] * 3 < sent["every_step"] for way in ("local_sgd", "elastic", "stale"))


@ROOTLESS
@pytest.mark.parametrize("example", ["train_digits.py", "train_torch.py", "train_degrade.py"])
def test_other_examples_under_torchrun(run_ranks: Run, example: str) -> None:
    options = {"late": "degrade"} if example == "train_degrade.py" else {}
    run_ranks(ROOT / "examples" / example, 2, torchrun=True, **options)


def test_the_classifier_learns(run_ranks: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run_ranks(ROOT / "examples" / "ddp_digits.py", 4)
    said = capsys.readouterr().out
    assert float(re.findall(r"accuracy ([0-9.]+)%", said)[-1]) > 95
    assert "weights: the same on all ranks" in said
