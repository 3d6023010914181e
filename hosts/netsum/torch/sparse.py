# SPDX-License-Identifier: MIT
"""Sparse tensors, as the gradients of ``Embedding(sparse=True)`` are: only what some rank has is sent."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from netsum.collectives.call import Call, Context
from netsum.collectives.elementwise import lanewise
from netsum.collectives.options import ARITHMETIC, INTEGER_MEAN, ReductionOptions
from netsum.collectives.partition import Layout
from netsum.collectives.reductions import reduce_array
from netsum.communicator import Communicator
from netsum.core.progress import Flow, nested
from netsum.errors import UnsupportedError
from netsum.torch.arguments import Operation
from netsum.torch.numpy_view import lend

_NAME = "sparse allreduce"


def check_sparse(op: Operation) -> None:
    """Raise UnsupportedError for an operation that is not defined for sparse tensors: what a rank does not send must add
    nothing."""
    if op.factor is not None:
        raise UnsupportedError("PREMUL_SUM of sparse tensors: multiply them first")
    _check_name(op.name)


def _check_name(op: str) -> None:
    if op not in (*ARITHMETIC, INTEGER_MEAN):
        raise UnsupportedError(f"a reduction of sparse tensors is a {' or '.join(ARITHMETIC)}, not {op!r}")


def reduce_sparse(comm: Communicator, tensor: Tensor, op: str, *, timeout: float | None = None, **options: Any) -> Tensor:
    """The sum or mean over all ranks of tensors in COO format and of the same shape; a new tensor, the same bits on all ranks.

    ``options`` are scale, bits, rounding and nonfinite of :meth:`netsum.Communicator.allreduce`, whose errors this raises. It
    waits for every rank also in a job that degrades. Cost: two calls of it, with a bit for each position (each row of an
    embedding), and the values at the positions that some rank has.
    """
    return comm.compose(_NAME, partial(_prepare, comm, tensor, op, options), timeout)


def _prepare(comm: Communicator, tensor: Tensor, op: str, options: dict[str, Any]) -> Call[Tensor]:
    _check_name(op)
    own = tensor.detach().coalesce().cpu()
    given = ReductionOptions(op, on_late="wait", **options)
    like, degrades = lend(own.values()[:0], values=True).array, comm.descriptor.block_exp_ms > 0
    checked = given.check(like, workers=comm.size, degrade=degrades)

    def flow(context: Context) -> Flow:
        made = yield from _flow(context, comm, own, checked)
        return made.to(tensor.device)

    return Call(_NAME, flow, own.values().nbytes)


def _flow(context: Context, comm: Communicator, own: Tensor, options: ReductionOptions) -> Flow:
    shape = tuple(own.shape[: own.sparse_dim()])
    mine = np.ravel_multi_index(tuple(own.indices().numpy()), shape)
    marks = np.zeros(math.prod(shape), np.bool_)
    marks[mine] = True
    packed, either = np.packbits(marks), ReductionOptions("or", on_late="wait")
    fingerprint = (_NAME, str(own.dtype), tuple(own.shape), options.agreed, f"{len(shape)} sparse")
    (joined,) = yield from nested(lanewise(context, packed, Layout.whole(packed.size), either, fingerprint, None))
    everyones = np.flatnonzero(np.unpackbits(joined, count=len(marks)))
    values = torch.zeros(len(everyones), *own.shape[len(shape) :], dtype=own.dtype)
    values[torch.from_numpy(np.searchsorted(everyones, mine))] = own.values()
    lent = lend(values, values=True)
    (summed,) = yield from reduce_array(context, _NAME, lent.array, Layout.whole(lent.array.size), options, comm.history)
    lent.array[...] = summed
    indices = np.stack(np.unravel_index(everyones, shape))
    return torch.sparse_coo_tensor(indices, values, own.shape, is_coalesced=True, check_invariants=False)
