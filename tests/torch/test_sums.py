# SPDX-License-Identifier: MIT
"""What the bits of a training depend on, by the hashes of its weights over fresh launches. Needs PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from netsum import JoinError
from netsum.settings import Environment

from tests.torch.conftest import FABRICS, PROGRAMS, Run

pytestmark = pytest.mark.torch
RANKS = 3
SMALL, LARGE = "0.001", "25"  # MB of a bucket


@pytest.mark.full
@pytest.mark.parametrize("torch_fabric", FABRICS[:1], indirect=True)
def test_exact_sums_depend_on_the_values_alone(run_ranks: Run, tmp_path: Path) -> None:
    def hashes(sums: str, bucket: str, **options: Any) -> set[str]:
        file = tmp_path / "hashes"
        run_ranks(PROGRAMS / "sums.py", RANKS, str(file), sums, bucket, **options)
        return {line.split()[1] for line in file.read_text().splitlines() if line.split()[0] == sums}

    exact = hashes("exact", LARGE) | hashes("environment", SMALL, algorithm="ring")
    assert len(exact) == 1
    hashes("agreed", LARGE)
    assert len(hashes("agreed", LARGE, algorithm="ring")) == 1
    assert len(hashes("agreed", SMALL)) == 2


@pytest.mark.full
@pytest.mark.parametrize("torch_fabric", FABRICS[:1], indirect=True)
def test_losses_are_those_of_gloo(run_ranks: Run, tmp_path: Path) -> None:
    """With two ranks, the exact sum is also what Gloo computes, so all losses are the same. With agreed scales the last bits
    differ, and training makes such differences larger and larger."""
    import torch

    def launch(*groups: str) -> dict[tuple[str, str], list[float]]:
        file = tmp_path / "-".join(groups)
        run_ranks(PROGRAMS / "losses.py", 2, str(file), *groups)
        lines = map(str.split, file.read_text().splitlines())
        return {(name, group): [float.fromhex(loss) for loss in losses] for name, group, *losses in lines}

    found, again = launch("agreed", "exact", "gloo"), launch("agreed")
    assert len(again) == 4
    for (training, group), losses in again.items():
        assert losses == found[training, group], f"{training}: another launch has other bits"
        gloo = found[training.replace("fsdp", "ddp"), "gloo"]
        # torch 2.8's Gloo does not divide in the reduce-scatter that is to compute FSDP2's means.
        assert found[training, "gloo"] == gloo or torch.__version__ < "2.9", training
        assert found[training, "exact"] == gloo, training
        assert losses[:50] == pytest.approx(gloo[:50], rel=1e-5), training
        assert sum(losses[-20:]) == pytest.approx(sum(gloo[-20:]), rel=0.05), training
        assert sum(losses[-20:]) < 0.5 * sum(losses[:20]), training


def test_sums_are_agreed_or_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    from netsum.torch import Options
    from netsum.torch.group_init import open_group

    assert Environment.read({}).sum == "agreed"
    monkeypatch.setenv("NETSUM_SUM", "Exact")
    assert Options.read() == Options("exact")
    monkeypatch.setenv("NETSUM_SUM", "true")
    with pytest.raises(JoinError, match="NETSUM_SUM is 'true', not agreed or exact"):
        Options.read()
    with pytest.raises(ValueError, match="sum is 'fast', not one of agreed, exact"):
        Options("fast")
    with pytest.raises(TypeError, match=r"pg_options is a dict, and netsum takes a netsum\.torch\.Options"):
        open_group(None, {"sum": "exact"})
