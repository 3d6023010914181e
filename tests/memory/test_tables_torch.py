# SPDX-License-Identifier: MIT
"""A table's optimizers against torch's."""

from __future__ import annotations

import numpy as np
import pytest
from netsum_memory.tables import TableOptions, update

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", ["sgd", "adagrad"])
def test_steps_are_torchs(name: str) -> None:
    rng = np.random.default_rng(2)
    options = TableOptions.of({"dim": 16, "optimizer": name, "lr": 0.1})
    rows = np.zeros((50, options.width), np.float32)
    rows[:, :16] = rng.normal(size=(50, 16))
    tensor = torch.nn.Parameter(torch.tensor(rows[:, :16]))
    theirs = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}[name]([tensor], lr=0.1)
    for _ in range(20):
        gradients = rng.normal(size=(50, 16)).astype(np.float32)
        tensor.grad = torch.tensor(gradients)
        theirs.step()
        update(options, rows, gradients, 0.1)
    wrong = np.abs(rows[:, :16].astype(np.float64) - tensor.detach().numpy().astype(np.float64)).max()
    assert wrong <= 4 * np.spacing(np.abs(rows[:, :16]).max())
