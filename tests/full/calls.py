# SPDX-License-Identifier: MIT
"""Makes the same call on every rank at once and collects what each got: a result or what it raised."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from netsum.communicator import Communicator

from tests.threads import PATIENCE, returned


@dataclass
class Got:
    """One rank's outcome; ``seconds`` from the common start."""

    rank: int
    result: Any = None
    error: Exception | None = None
    seconds: float = 0.0


def on_all(communicators: Sequence[Communicator], call: Callable[[Communicator], Any]) -> list[Got]:
    """``call(comm)`` on a thread per communicator."""

    def run(rank: int) -> Got:
        got = Got(rank)
        try:
            got.result = call(communicators[rank])
        except Exception as error:
            got.error = error
        got.seconds = time.monotonic() - start
        return got

    start = time.monotonic()
    return returned([partial(run, rank) for rank in range(len(communicators))])


def kinds(got: Sequence[Got]) -> list[type[Exception] | None]:
    """The error of each rank; None if it has a result."""
    return [type(outcome.error) if outcome.error is not None else None for outcome in got]


def results(got: Sequence[Got]) -> list[Any]:
    """The results, if every rank has one."""
    for outcome in got:
        if outcome.error is not None:
            raise AssertionError(f"rank {outcome.rank} raised {outcome.error!r}") from outcome.error
    return [outcome.result for outcome in got]


def allreduce_whole(comm: Communicator, data: Any, **options: Any) -> Any:
    """All ranks' sum in a job that degrades: again while a rank came late that was not to be, as on a busy machine.
    Every rank sees the same result, so all of them repeat it alike."""
    for _ in range(20):
        comm.barrier(timeout=PATIENCE)
        got = comm.allreduce(data, timeout=PATIENCE, **options)
        if not comm.report.degraded:
            return got
    raise AssertionError("in twenty calls at once, some rank was late each time")


def _some_of_each(comm: Communicator) -> list[Any]:
    rng = np.random.default_rng(comm.rank)
    values = rng.standard_normal(20_000).astype(np.float32)
    whole = np.full(30_000, comm.rank + 1)
    parts = comm.reduce_scatter(np.arange(4 * comm.size) * (comm.rank + 1), timeout=PATIENCE)
    return [
        comm.allreduce(values, exact=True, timeout=PATIENCE),
        comm.allreduce(values, scale="predicted", timeout=PATIENCE),
        comm.allreduce(whole, op="max", timeout=PATIENCE),
        comm.broadcast(whole if comm.rank == 1 else np.empty_like(whole), root=1, timeout=PATIENCE),
        comm.all_gather(parts, timeout=PATIENCE).ravel(),
        comm.reduce(whole, root=comm.size - 1, timeout=PATIENCE),
    ]


def check_some_of_each(communicators: Sequence[Communicator]) -> None:
    """Make calls of several kinds on all ranks, and assert that their results are right and alike."""
    got = results(on_all(communicators, _some_of_each))
    size = len(communicators)
    total = size * (size + 1) // 2
    values = [np.random.default_rng(rank).standard_normal(20_000).astype(np.float32) for rank in range(size)]
    exact = np.sum(np.asarray(values, np.float64), axis=0)
    for comm, (summed, predicted, largest, copied, gathered, reduced) in zip(communicators, got, strict=True):
        assert np.abs(summed - exact).max() < 1e-5
        assert np.abs(predicted - exact).max() < 1e-3
        assert (summed == got[0][0]).all()
        assert (predicted == got[0][1]).all()
        assert set(largest) == {size}
        assert set(copied) == {2}
        assert (gathered == np.arange(4 * size) * total).all()
        assert reduced is None if comm.rank != size - 1 else set(reduced) == {total}
