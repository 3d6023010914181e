# SPDX-License-Identifier: MIT
"""Embeddings and optimizers whose state is in memory devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from netsum.collectives.call import part_of
from netsum.communicator import Communicator
from netsum.memory.array import MemoryArray
from netsum.memory.embedding import Table
from netsum.memory.parameters import Parameters, PushResult
from netsum.torch.numpy_view import lend, shapes_of

# The same beginning on every rank.


def broadcast_parameters(model: torch.nn.Module, comm: Communicator, root: int = 0, *, timeout: float | None = None) -> None:
    """Give every rank the root's parameters and buffers (such as running means), in place and bit for bit.

    The model is the same on every rank but for its values, which may be of any dense type and on any device. Raises what
    :meth:`netsum.Communicator.broadcast` raises; then the values are as they were. Cost: one broadcast.
    """
    tensors = [*model.parameters(), *model.buffers()]
    lent = [lend(tensor) for tensor in tensors]
    parts = [each.array.view(np.uint8) for each in lent]
    flat = np.concatenate([np.empty(0, np.uint8), *parts])
    with part_of("in broadcast_parameters", *shapes_of(tensors)):
        comm.broadcast(flat, root, out=flat, timeout=timeout)
    start = 0
    for each, part in zip(lent, parts, strict=True):
        part[...] = flat[start : start + len(part)]
        each.give_back()
        start += len(part)


# ``torch.nn.Embedding`` with its rows in a table at the memory (docs/memory.md).


class MemoryEmbedding(torch.nn.Module):  # type: ignore[misc]
    """Looks up rows by key, of which there may be any: 64 bits. It has no parameters: after ``backward()``, :meth:`push` sends
    the gradients of the rows that were used, and the table's optimizer takes its step where the rows are."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.table = table
        self.embedding_dim = table.dim
        self._used: list[tuple[np.ndarray[tuple[int], np.dtype[np.uint64]], Tensor]] = []

    def forward(self, keys: Tensor) -> Tensor:
        unique, inverse = np.unique(keys.detach().cpu().numpy().reshape(-1), return_inverse=True)
        rows = torch.from_numpy(self.table.lookup(unique)).to(keys.device)
        if torch.is_grad_enabled():
            rows.requires_grad_()
            self._used.append((unique, rows))
        places = torch.from_numpy(inverse).to(keys.device)
        return torch.nn.functional.embedding(places, rows).reshape(*keys.shape, self.embedding_dim)

    def push(self, lr: float | None = None) -> None:
        """Send the gradients of all rows looked up since the last time; ``lr`` instead of the table's learning rate."""
        used, self._used = self._used, []
        with_gradients = [(keys, rows.grad.cpu().numpy()) for keys, rows in used if rows.grad is not None]
        if with_gradients:
            keys, gradients = (np.concatenate(parts) for parts in zip(*with_gradients, strict=True))
            self.table.push(keys, gradients, lr=lr)

    def extra_repr(self) -> str:
        return f"{self.table.memory.name!r}, {self.embedding_dim}"


# torch's interface of an optimizer for one that is at the memory (docs/memory.md).


class MemoryOptimizer(torch.optim.Optimizer):  # type: ignore[misc]
    """Pushes gradients to a region of kind "parameters" and gets the parameters back. Which optimizer it is, the region's options
    say; learning rate, weight decay and trust coefficient may differ between parameter groups and steps, so torch's schedulers
    work. The optimizer's state is at the memory, not in ``state_dict``.

    Attributes:
        made: what became of the last push.
    """

    def __init__(
        self,
        params: Iterable[Any],
        memory: MemoryArray,
        *,
        worker: int = 0,
        comm: Communicator | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        trust: float | None = None,
    ) -> None:
        """Give the parameters of all workers the memory's values, or if no step was made yet, those of worker 0.

        Args:
            params: parameters, or parameter groups; the same on all workers. Any floating type on any device; the memory has
                float32.
            memory: the region, of :func:`netsum.memory.open`.
            worker, comm: see :func:`netsum.memory.parameters`.
            lr, weight_decay, trust: instead of the region's own. LARS leaves vectors (biases and the like) alone: their trust
                coefficient is 0, and they have no weight decay.
        """
        own = memory.descriptor.options
        self._lars = own.get("optimizer") == "lars"
        defaults = {
            "lr": float(own.get("lr", 0.01)) if lr is None else lr,
            "weight_decay": float(own.get("weight_decay", 0.0)) if weight_decay is None else weight_decay,
            "trust": _trust(own) if trust is None else trust,
        }
        super().__init__(params, defaults)
        layers = [tensor.detach().to("cpu", torch.float32).contiguous().clone().numpy() for tensor in self._tensors()]
        self.made = PushResult(0, 0)
        self._parameters = Parameters(memory, layers, worker=worker, comm=comm)
        self._parameters.begin()
        self._put()

    def _tensors(self) -> list[Tensor]:
        return [tensor for group in self.param_groups for tensor in group["params"]]

    def _put(self) -> None:
        with torch.no_grad():
            for tensor, layer in zip(self._tensors(), self._parameters.layers, strict=True):
                tensor.copy_(torch.from_numpy(layer))

    def _settings(self) -> list[tuple[float, float, float]]:
        made = []
        for group in self.param_groups:
            for tensor in group["params"]:
                alone = self._lars and tensor.ndim <= 1
                made.append((float(group["lr"]), float(group["weight_decay"]), 0.0 if alone else float(group["trust"])))
        return made

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Push the gradients (zeros, where there are none), and give the parameters the values that come of it. Raises what
        :meth:`netsum.memory.Parameters.step` raises; then the parameters are as they were."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        pushed = [torch.zeros_like(tensor) if tensor.grad is None else tensor.grad for tensor in self._tensors()]
        gradients = [gradient.detach().to("cpu", torch.float32).numpy() for gradient in pushed]
        self.made = self._parameters.step(gradients, self._settings())
        self._put()
        return loss

    def average(self) -> None:
        """Mode elastic: parameters and the memory's move towards each other."""
        for tensor, layer in zip(self._tensors(), self._parameters.layers, strict=True):
            layer[...] = tensor.detach().to("cpu", torch.float32).numpy()
        self.made = self._parameters.average()
        self._put()

    def leave(self) -> None:
        """This worker pushes no more: no worker waits for it."""
        self._parameters.leave()


def _trust(options: Any) -> float:
    given = options.get("trust")
    return float({"lars": 1e-3, "lamb": 1.0}.get(options.get("optimizer"), 0.0) if given is None else given)
