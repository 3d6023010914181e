"""The same beginning on every rank."""

from __future__ import annotations

import numpy as np
import torch

from netsum.collectives.call import part_of
from netsum.communicator import Communicator
from netsum.torch.numpy_view import lend, shapes_of


def broadcast_parameters(
    model: torch.nn.Module, comm: Communicator, root: int = 0, *, timeout: float | None = None
) -> None:
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
