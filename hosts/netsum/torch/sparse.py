"""Sparse tensors, as the gradients of ``Embedding(sparse=True)`` are: only what some rank has is sent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from netsum.collectives.options import ARITHMETIC, INTEGER_MEAN
from netsum.communicator import Communicator
from netsum.errors import Unsupported
from netsum.torch.operations import Operation
from netsum.torch.tensors import lend


def check_sparse(op: Operation) -> None:
    """Raise Unsupported for an operation that is not defined for sparse tensors: what a rank does not send must add nothing."""
    if op.factor is not None:
        raise Unsupported("PREMUL_SUM of sparse tensors: multiply them first")
    if op.name not in (*ARITHMETIC, INTEGER_MEAN):
        raise Unsupported(f"a reduction of sparse tensors is a {' or '.join(ARITHMETIC)}, not {op.name!r}")


def reduce_sparse(comm: Communicator, tensor: Tensor, op: str, **options: Any) -> Tensor:
    """The sum or mean over all ranks of tensors in COO format and of the same shape; a new tensor, the same bits on all ranks.

    ``options`` are those of :meth:`netsum.Communicator.allreduce`, whose errors this raises. Cost: two calls of
    it, with a bit for each position (each row of an embedding), and the values at the positions that some rank has.
    """
    own = tensor.detach().coalesce().cpu()
    shape = own.shape[: own.sparse_dim()]
    mine = np.ravel_multi_index(tuple(own.indices().numpy()), shape)
    marks = np.zeros(math.prod(shape), np.bool_)
    marks[mine] = True
    timeout = options.get("timeout")
    joined = comm.allreduce(np.packbits(marks), "or", late="wait", timeout=timeout)
    everyones = np.flatnonzero(np.unpackbits(joined, count=len(marks)))
    values = torch.zeros(len(everyones), *own.shape[len(shape) :], dtype=own.dtype)
    values[torch.from_numpy(np.searchsorted(everyones, mine))] = own.values()
    lent = lend(values, values=True)
    comm.allreduce(lent.array, op, out=lent.array, **options)
    lent.give_back()
    indices = np.stack(np.unravel_index(everyones, shape))
    made = torch.sparse_coo_tensor(indices, values, tensor.shape, is_coalesced=True, check_invariants=False)
    return made.to(tensor.device)
