# SPDX-License-Identifier: MIT
"""The mean of all ranks' gradients, for a training loop without DistributedDataParallel.

::

    for images, labels in batches:
        optimizer.zero_grad()
        loss(model(images), labels).backward()
        average_gradients(model, comm)
        optimizer.step()

All ranks then hold the same gradients bit for bit, and so the same weights if they began with the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import torch

from netsum.collectives.call import part_of
from netsum.communicator import Communicator
from netsum.core.progress import Work
from netsum.torch.numpy_view import shapes_of
from netsum.torch.sparse import reduce_sparse

BUCKET_BYTES: Final = 25 << 20
"""Gradients sent together: many small calls each cost a round trip, and one call for all would wait for the last copy."""


def average_gradients(
    model: torch.nn.Module,
    comm: Communicator,
    *,
    bucket_bytes: int = BUCKET_BYTES,
    scale: str = "agreed",
    timeout: float | None = None,
) -> None:
    """Replace every gradient by its mean over the ranks, in place.

    Args:
        model: the same model on every rank. Parameters that need a gradient but have none count as zeros, and get one, so that
            ranks that used different parts of the model still make the same calls.
        comm: the job.
        bucket_bytes: gradients of one dtype are sent together up to this many bytes.
        scale, timeout: as in :meth:`netsum.Communicator.allreduce`.

    float16, float32 and float64 travel as they are, bfloat16 as float32. Gradients may be on any device; they are
    copied through the host's memory. Raises what ``allreduce`` raises (MismatchError also if the gradients' shapes differ between
    ranks); then the gradients are as they were.

    Cost: one allreduce a bucket, all in progress at once, and for each sparse gradient that of
    :func:`~netsum.torch.sparse.reduce_sparse`.
    """
    gradients = list(_gradients(model))
    sparse = [gradient for gradient in gradients if gradient.is_sparse]
    averages = [reduce_sparse(comm, gradient, "mean", scale=scale, timeout=timeout) for gradient in sparse]
    buckets = list(_buckets((gradient for gradient in gradients if not gradient.is_sparse), bucket_bytes))
    works: list[Work[Any]] = []
    for bucket in buckets:
        with part_of("in average_gradients", *shapes_of(bucket)):
            works.append(comm.allreduce_async(_flatten(bucket), op="mean", scale=scale, timeout=timeout))
    # All results first: if one call fails, no gradient has changed.
    means = [work.wait() for work in works]
    for bucket, mean in zip(buckets, means, strict=True):
        _scatter(bucket, mean)
    with torch.no_grad():
        for gradient, average in zip(sparse, averages, strict=True):
            gradient.copy_(average)


def _gradients(model: torch.nn.Module) -> Iterator[Any]:
    for parameter in model.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            yield parameter.grad


def _buckets(gradients: Iterable[Any], limit: int) -> Iterator[list[Any]]:
    """Neighbors of the same dtype, up to ``limit`` bytes; a larger one alone."""
    bucket: list[Any] = []
    size = 0
    for gradient in gradients:
        length = gradient.numel() * gradient.element_size()
        if bucket and (bucket[0].dtype != gradient.dtype or size + length > limit):
            yield bucket
            bucket, size = [], 0
        bucket.append(gradient)
        size += length
    if bucket:
        yield bucket


def _flatten(bucket: list[Any]) -> np.ndarray[Any, Any]:
    flat = torch.cat([gradient.detach().reshape(-1) for gradient in bucket]).cpu()
    if flat.dtype == torch.bfloat16:  # numpy has none
        flat = flat.float()
    array: np.ndarray[Any, Any] = flat.numpy()
    return array


def _scatter(bucket: list[Any], mean: np.ndarray[Any, Any]) -> None:
    flat = torch.from_numpy(mean)
    start = 0
    with torch.no_grad():
        for gradient in bucket:
            stop = start + gradient.numel()
            gradient.copy_(flat[start:stop].reshape(gradient.shape))
            start = stop
