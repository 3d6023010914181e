"""torch's own programs on the backend, each rank a process. Needs PyTorch."""

from __future__ import annotations

import pytest

from tests.torch.conftest import Run

pytestmark = pytest.mark.torch


def test_messages_and_groups(run_ranks: Run) -> None:
    run_ranks("messages.py", 3)


def test_data_parallel_and_mixed_precision(run_ranks: Run) -> None:
    run_ranks("training.py", 2, "ddp", "amp")


@pytest.mark.full
def test_what_else_torch_builds_on_a_process_group(run_ranks: Run) -> None:
    run_ranks("training.py", 4, "fsdp", "tensor_parallel", "checkpoints", "zero", "power")


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ["ring", "auto"])
def test_without_a_switch(run_ranks: Run, algorithm: str) -> None:
    run_ranks("training.py", 4, "ddp", "fsdp", algorithm=algorithm)


@pytest.mark.full
def test_the_hook_for_those_who_keep_another_backend(run_ranks: Run) -> None:
    run_ranks("training.py", 2, "hooks")
