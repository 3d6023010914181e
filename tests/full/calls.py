"""Makes the same call on every rank at once and collects what each got: a result or what it raised."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

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
