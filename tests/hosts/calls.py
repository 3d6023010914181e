# SPDX-License-Identifier: MIT
"""The same call on every rank at once, and what each got."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
from netsum.communicator import Communicator
from netsum.transports import ImpairedTransport, Impairment
from numpy.typing import NDArray

from tests.hosts.combiners import make_network
from tests.hosts.network import Network
from tests.threads import PATIENCE, together

Array = NDArray[Any]
INTEGERS = ("int8", "int16", "int32", "int64")
FLOATS = ("float16", "float32", "float64")


@contextmanager
def closing_all(communicators: list[Communicator]) -> Iterator[list[Communicator]]:
    """Close the communicators at the end."""
    try:
        yield communicators
    finally:
        for comm in communicators:
            comm.close()


class HasRanks(Protocol):
    """A network that can make the communicators of its ranks."""

    def communicators(self) -> list[Communicator]: ...


N = TypeVar("N", bound=HasRanks)


@contextmanager
def running(network: N) -> Iterator[tuple[N, list[Communicator]]]:
    """A network and its ranks, which are closed at the end."""
    with closing_all(network.communicators()) as communicators:
        yield network, communicators


def ranks(workers: int, **options: Any) -> AbstractContextManager[list[Communicator]]:
    """The communicators of a new job, closed at the end."""
    return closing_all(make_network(workers, **options).communicators())


def over_a_bad_network(network: Network, rate: float, seed: int = 0) -> AbstractContextManager[list[Communicator]]:
    """The ranks of a network, on whose transports packets are lost, doubled and reordered at this rate."""
    faults = Impairment(drop=rate, duplicate=rate, reorder=rate)
    return closing_all(network.communicators(lambda inner, rank: ImpairedTransport(inner, faults, seed + rank)))


def on_each(communicators: Sequence[Communicator], call: Callable[[Communicator], Any]) -> list[Any]:
    """``call(comm)`` on all ranks at once."""
    return together([partial(call, comm) for comm in communicators])


def allreduce(communicators: list[Communicator], arrays: Sequence[Any], **options: Any) -> list[Any]:
    return on_each(communicators, lambda comm: comm.allreduce(arrays[comm.rank], **options))


def once_known(attempt: Callable[[float], list[Any]], timeout: float = 0.5, words: str = "") -> list[Any]:
    """Return the outcomes of ``attempt(timeout)``, once each of them knows whom the call waits for, and has these ``words``. On a
    busy machine half a second may be too short for the members to have heard from each other, so the timeout doubles."""
    outcomes = attempt(timeout)
    while any("not known" in str(outcome) or words not in str(outcome) for outcome in outcomes):
        timeout *= 2
        assert timeout < PATIENCE, outcomes
        outcomes = attempt(timeout)
    return outcomes


def good(outcomes: list[Any]) -> Array:
    """The result, the same bit for bit on all ranks."""
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        assert outcome.dtype == outcomes[0].dtype
        assert outcome.tobytes() == outcomes[0].tobytes()
    first: Array = outcomes[0]
    return first


def data(dtype: str, shape: tuple[int, ...], seed: int, workers: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    if dtype.startswith("int"):
        top = np.iinfo(dtype).max // max(workers, 1)
        return [rng.integers(-top, top, shape).astype(dtype) for _ in range(workers)]
    return [rng.standard_normal(shape).astype(dtype) for _ in range(workers)]
