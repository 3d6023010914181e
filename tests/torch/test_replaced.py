# SPDX-License-Identifier: MIT
"""Scripts that name another backend of torch run on netsum with NETSUM_AS. Needs PyTorch."""

from __future__ import annotations

import pytest
from netsum.torch.backend import replaced

from tests.torch.conftest import FABRICS, PROGRAMS, Run

pytestmark = pytest.mark.torch


@pytest.mark.full
@pytest.mark.parametrize("torch_fabric", FABRICS[:1], indirect=True)
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_a_script_that_names_another_backend(run_ranks: Run, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    monkeypatch.setenv("NETSUM_AS", backend)
    run_ranks(PROGRAMS / "named.py", 3, backend)


def test_only_the_names_of_such_backends_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NETSUM_AS", raising=False)
    assert replaced() == ()
    monkeypatch.setenv("NETSUM_AS", "Gloo, nccl")
    assert replaced() == ("gloo", "nccl")
    monkeypatch.setenv("NETSUM_AS", "gloo,mpi")
    with pytest.raises(ValueError, match="NETSUM_AS is 'gloo,mpi', not gloo or nccl, or both with a comma"):
        replaced()
