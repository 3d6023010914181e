"""torch's own programs on the backend, each rank a process. Needs PyTorch."""

from __future__ import annotations

import pytest

from tests.torch.conftest import Run

pytestmark = pytest.mark.torch


def test_messages_and_groups(run_ranks: Run) -> None:
    run_ranks("messages.py", 3)
