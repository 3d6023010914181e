# SPDX-License-Identifier: MIT
"""torch's modules with parameters and rows at the memory: the same curve as with torch's own."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from netsum.memory.embedding import Table  # noqa: E402
from netsum.torch import MemoryEmbedding, MemoryOptimizer  # noqa: E402

from tests.memory.inside import Inside  # noqa: E402
from tests.threads import together  # noqa: E402


def model(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))


def batch(step: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(12, 20, generator=generator)
    return inputs, (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0).long()


def loss_of(made: Any, step: int, share: slice = slice(None)) -> Any:
    inputs, answers = batch(step)
    return torch.nn.functional.cross_entropy(made(inputs[share]), answers[share])


def trained(made: Any, optimizer: Any, share: slice = slice(None)) -> list[float]:
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.5)
    losses = []
    for step in range(12):
        optimizer.zero_grad()
        loss = loss_of(made, step, share)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("options", "optimizer_of"),
    [
        ({"optimizer": "sgd", "momentum": 0.9}, partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01)),
        ({"optimizer": "adamw"}, partial(torch.optim.AdamW, lr=0.1, weight_decay=0.01)),
    ],
    ids=["sgd", "adamw"],
)
def test_the_curve_is_torchs(options: dict[str, Any], optimizer_of: Any) -> None:
    theirs, ours = model(), model()
    memory = Inside("parameters", options).opened()
    wanted = trained(theirs, optimizer_of(theirs.parameters()))
    losses = trained(ours, MemoryOptimizer(ours.parameters(), memory, lr=0.1, weight_decay=0.01))
    assert losses == pytest.approx(wanted, rel=1e-4)
    assert losses[-1] < losses[0]


def test_two_workers_with_half_the_batch_each_are_as_one() -> None:
    theirs = model()
    wanted = trained(theirs, torch.optim.SGD(theirs.parameters(), lr=0.1))
    inside = Inside("parameters", {"workers": 2})
    models = [model(), model(1)]  # the second has worker 0's values from its first step on
    optimizers = [
        MemoryOptimizer(each.parameters(), inside.opened(), worker=worker, lr=0.1) for worker, each in enumerate(models)
    ]
    models[1].load_state_dict(models[0].state_dict())
    halves = [
        partial(trained, models[0], optimizers[0], slice(0, 6)),
        partial(trained, models[1], optimizers[1], slice(6, 12)),
    ]
    first, second = together(halves)
    assert [(a + b) / 2 for a, b in zip(first, second, strict=True)] == pytest.approx(wanted, rel=1e-4)
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, other)
    assert optimizers[0].made == (12, 2)


def test_lars_leaves_vectors_to_sgd() -> None:
    lars = pytest.importorskip("pytorch_optimizer").LARS
    theirs, ours = model(), model()
    wanted = trained(theirs, lars(theirs.parameters(), lr=10.0, momentum=0.9, weight_decay=1e-4))
    memory = Inside("parameters", {"optimizer": "lars", "momentum": 0.9}).opened()
    losses = trained(ours, MemoryOptimizer(ours.parameters(), memory, lr=10.0, weight_decay=1e-4))
    assert losses == pytest.approx(wanted, rel=1e-4)


def test_an_embedding_learns_as_torchs_does() -> None:
    inside = Inside("table", {"dim": 8, "optimizer": "adagrad", "ram_rows": 16})
    table = Table(inside.opened())
    ours = MemoryEmbedding(table)
    theirs = torch.nn.Embedding(64, 8)
    with torch.no_grad():
        theirs.weight.copy_(torch.from_numpy(table.lookup(np.arange(64))))
    optimizer = torch.optim.Adagrad(theirs.parameters(), lr=0.5)
    for step in range(10):
        generator = torch.Generator().manual_seed(step)
        keys = torch.randint(64, (6, 5), generator=generator)
        wanted = torch.randn(6, 5, 8, generator=generator)
        optimizer.zero_grad()
        losses = [((each(keys) - wanted) ** 2).sum() for each in (ours, theirs)]
        for loss in losses:
            loss.backward()
        optimizer.step()
        ours.push(lr=0.5)
        assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)
    with torch.no_grad():
        ours(torch.arange(4))
    ours.push()  # there is nothing to push
    assert "'model', 8" in repr(ours)
    inside.device.close()
