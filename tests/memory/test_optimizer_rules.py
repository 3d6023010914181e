# SPDX-License-Identifier: MIT
"""The optimizers at the memory against torch's, and against pytorch-optimizer's LARS and LAMB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from netsum_memory.optimizer_rules import LocalOptimizer, OptimizerOptions

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

STEPS = 20
ULPS = 4.0
"""What 20 steps may differ by, in units in the last place of a layer's largest parameter: torch fuses multiplications with
additions, here each is rounded."""
SHAPES = ((64, 100), (128,), (30, 50))


def lars(parameters: Any, **options: Any) -> Any:
    return pytest.importorskip("pytorch_optimizer").LARS(parameters, **options)


def lamb(parameters: Any, **options: Any) -> Any:
    lamb_of = pytest.importorskip("pytorch_optimizer").Lamb
    return lamb_of(parameters, weight_decouple=False, adam_debias=True, **options)  # the paper's


CASES: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
    ("sgd", torch.optim.SGD, {"lr": 0.1}),
    ("sgd", torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    ("sgd", torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    ("sgd", torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    ("adam", torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.01}),
    ("adamw", torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.01}),
    ("lars", lars, {"lr": 1.0, "momentum": 0.9, "weight_decay": 1e-4}),
    ("lars", lars, {"lr": 1.0, "momentum": 0.9, "weight_decay": 1e-4, "nesterov": True}),
    ("lamb", lamb, {"lr": 0.01, "weight_decay": 0.01, "eps": 1e-6}),
]


@pytest.mark.parametrize(("name", "optimizer_of", "options"), CASES)
def test_steps_are_torchs(name: str, optimizer_of: Callable[..., Any], options: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    layers = [rng.normal(size=shape).astype(np.float32) for shape in SHAPES]
    tensors = [torch.nn.Parameter(torch.tensor(layer)) for layer in layers]
    theirs = optimizer_of(tensors, **options)
    ours = LocalOptimizer(OptimizerOptions.of({"optimizer": name, **options}), layers)
    # LARS leaves vectors (biases) to SGD without decay: a trust coefficient of 0.
    trust = [None if name != "lars" or layer.ndim > 1 else 0.0 for layer in layers]
    settings = [() if each is None else (options["lr"], 0.0, each) for each in trust]
    for _ in range(STEPS):
        gradients = [rng.normal(size=shape).astype(np.float32) for shape in SHAPES]
        for tensor, gradient in zip(tensors, gradients, strict=True):
            tensor.grad = torch.tensor(gradient)
        theirs.step()
        ours.step([gradients], settings)
    for layer, tensor in zip(layers, tensors, strict=True):
        wrong = np.abs(layer.astype(np.float64) - tensor.detach().numpy().astype(np.float64)).max()
        assert wrong <= ULPS * np.spacing(np.abs(layer).max())
