"""average_gradients: the mean of the ranks' gradients in place, the same bits everywhere. Needs PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from netsum.communicator import Communicator
from netsum.errors import Aborted, NotFinite

from tests.hosts.calls import on_each, ranks

pytestmark = pytest.mark.torch


def model(seed: int) -> Any:
    """A small model of mixed types, one part frozen and one without a gradient, with gradients that follow from the seed."""
    import torch

    torch.manual_seed(seed)
    made = torch.nn.ModuleList(
        [
            torch.nn.Linear(30, 20),
            torch.nn.Linear(5, 3, bias=False),
            torch.nn.Linear(4, 4).double(),
            torch.nn.Linear(6, 2).to(torch.bfloat16),
        ]
    )
    for parameter in made.parameters():
        parameter.grad = torch.randn(parameter.shape).to(parameter.dtype)
    made[1].weight.requires_grad_(False)
    made[0].bias.grad = None if seed == 1 else made[0].bias.grad
    return made


def gradients(made: Any) -> list[Any]:
    import torch

    return [
        np.zeros(parameter.shape) if parameter.grad is None else parameter.grad.to(torch.float64).numpy()
        for parameter in made.parameters()
    ]


@pytest.mark.parametrize("bucket_bytes", [pytest.param(1, marks=pytest.mark.full), 1000, 25 << 20])
def test_gradients_become_their_mean_on_every_rank(bucket_bytes: int) -> None:
    from netsum.integrations.torch import average_gradients

    models = [model(seed) for seed in range(3)]
    before = [gradients(each) for each in models]
    with ranks(3) as communicators:
        outcomes = on_each(
            communicators, lambda comm: average_gradients(models[comm.rank], comm, bucket_bytes=bucket_bytes)
        )
    assert outcomes == [None] * 3
    after = [gradients(each) for each in models]
    frozen = [not parameter.requires_grad for parameter in models[0].parameters()]
    for index, still in enumerate(frozen):
        if still:
            assert all(np.array_equal(old[index], new[index]) for old, new in zip(before, after, strict=True))
            continue
        mean = np.mean([each[index] for each in before], axis=0)
        assert all(np.array_equal(each[index], after[0][index]) for each in after)
        assert np.allclose(after[0][index], mean, rtol=1e-2, atol=1e-6)


def test_a_gradient_that_is_not_finite_changes_nothing_anywhere() -> None:
    from netsum.integrations.torch import average_gradients

    models = [model(seed) for seed in (2, 3)]
    models[1][2].weight.grad[1, 1] = float("nan")
    before = [gradients(each) for each in models]

    def average(comm: Communicator) -> None:
        average_gradients(models[comm.rank], comm, bucket_bytes=1000)

    with ranks(2) as communicators:
        assert [type(each) for each in on_each(communicators, average)] == [Aborted, NotFinite]
        on_each(communicators, Communicator.barrier)
    for old, new in zip(before, [gradients(each) for each in models], strict=True):
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(old, new, strict=True))
