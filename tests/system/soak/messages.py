# SPDX-License-Identifier: MIT
"""Messages between the soak and its workers: what a worker tells, and what it must know before it begins. All of it may pass
between processes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations
from typing import Final

import numpy as np
from netsum.report import Report
from netsum.transports.impairment import ImpairmentCounts
from netsum_testbed.links import Opening
from netsum_testbed.verify import data
from netsum_testbed.verify.data import Array
from numpy.typing import NDArray

from tests.system.soak.cases import RoundCall, RoundPlan

JOIN_TIMEOUT: Final = 30.0
"""Seconds within which the controller must let a rank in."""
RESYNC_TIMEOUT: Final = 30.0
"""Seconds that a rank waits for the others in a resync."""

ANSWERING: Final = 4.0
"""Seconds by which a call may outlast its timeout: one question to the controller about the epoch (1 s at most) and one about
whom the block waits for (3 s at most)."""
SCHEDULING: Final = 2.0
"""Additional seconds, for a machine on which threads and switches wait for a processor."""
LATE: Final = ANSWERING + SCHEDULING
"""An error is late if it comes more than this after the call's timeout."""


@dataclass(frozen=True)
class WorkerSetup:
    """Everything that a worker needs to join as a rank. ``first``: it is the rank's first worker, not the successor of a killed
    one. ``spoil``: its transport applies the scenario's packet faults."""

    plan: RoundPlan
    rank: int
    job: str
    token: str
    controller: str
    opening: Opening
    first: bool = True
    spoil: bool = True


@dataclass(frozen=True)
class WorkerMessage:
    """Something that a rank says, and ``when``; all processes of a machine share ``time.monotonic()``."""

    rank: int
    when: float = field(default_factory=time.monotonic, kw_only=True)


@dataclass(frozen=True)
class Joined(WorkerMessage):
    """The rank has joined and made no call yet."""


@dataclass(frozen=True)
class Began(WorkerMessage):
    """It begins the steps from ``step`` up to ``stop``, each with that timeout, after its sleep (``when``)."""

    step: int
    timeout: float
    stop: int


@dataclass(frozen=True)
class Failure:
    """An error that a call raised: the error's name, whether it is netsum's, its text, and whom a CallTimeoutError names."""

    name: str
    ours: bool
    text: str
    missing: tuple[int, ...] = ()


@dataclass(frozen=True)
class NotJoined(WorkerMessage):
    """The controller did not let it in; it first asked at ``begun`` and asks again."""

    failure: Failure
    begun: float


@dataclass(frozen=True)
class Answer(WorkerMessage):
    """The outcome of a step. ``since``: the epoch in which the communicator last started over; ``late``: seconds past the call's
    timeout, minus those for which the rank was stalled."""

    step: int
    since: int
    result: Array | None
    report: Report
    begun: float
    failure: Failure | None = None
    late: float = 0.0


@dataclass(frozen=True)
class Resyncing(WorkerMessage):
    """It starts a resync."""


@dataclass(frozen=True)
class Resynced(WorkerMessage):
    """Its resync has ended; after a ``failure`` it tries again. ``wrong``: a complaint about the state that it took over."""

    begun: float
    failure: Failure | None = None
    late: float = 0.0
    wrong: str = ""


@dataclass(frozen=True)
class Evicted(WorkerMessage):
    """It heard that it was evicted, and waits to be admitted."""


@dataclass(frozen=True)
class Finished(WorkerMessage):
    """It has made all calls and waits for orders."""


@dataclass(frozen=True)
class Left(WorkerMessage):
    """Its last word, with counts over all epochs."""

    counts: ImpairmentCounts
    retransmissions: int
    resumes: int


@dataclass(frozen=True)
class Crashed(WorkerMessage):
    """The worker itself failed, with this traceback."""

    trace: str


# What the ranks contribute; where sums may be partial, numbers whose sum tells whose are in it.


def contribution(step: RoundCall, rank: int) -> Array:
    """Arguments that a rank passes to a step's call.

    In a tagged step, a rank's elements are ``1 << rank`` modulo ``1 << workers``, so that a sum tells whose are in it. They
    are whole numbers, so small that every sum of them is exact.
    """
    cell = step.cell
    if not step.tagged:
        return data.contribution(cell, rank)
    modulus = 1 << cell.workers
    bits = {"int8": 7, "int16": 15, "float16": 11}.get(cell.kind.dtype, 20)
    most = max(0, ((1 << bits) - modulus) // (modulus * cell.workers))
    rest = np.random.default_rng([*cell.seed, rank, 0x50]).integers(0, most, cell.size, endpoint=True)
    return data.lay_out(cell, ((1 << rank) + modulus * rest).astype(cell.kind.dtype))


# Finds whose contributions are in a partial result from the numbers alone, which are chosen so that sums tell.


def subsets_of(ranks: Sequence[int]) -> list[tuple[int, ...]]:
    """All subsets but the empty one, the largest first."""
    return [chosen for size in range(len(ranks), 0, -1) for chosen in combinations(ranks, size)]


def combined(op: str, inputs: Sequence[Array], chosen: Sequence[int]) -> Array:
    """The call's result if these ranks' inputs are in it; inputs are whole numbers, so that sums are exact."""
    dtype, parts = inputs[0].dtype, [inputs[rank] for rank in chosen]
    if op == "max":
        return np.asarray(reduce(np.maximum, parts))
    wide = np.float64 if dtype.kind == "f" else np.int64
    total = np.sum([part.astype(wide) for part in parts], axis=0)
    result: Array = np.asarray(total / len(chosen) if op == "mean" else total).astype(dtype)
    return result


@dataclass(frozen=True)
class Members:
    """Subsets of ranks that can be in each part of a result: ``matches[subset, part]`` for each of ``subsets``. Parts have
    ``width`` elements (the last may have fewer) and lie within a block, so that the same ranks are in all of a part."""

    subsets: list[tuple[int, ...]]
    matches: NDArray[np.bool_]
    width: int

    @property
    def unexplained(self) -> NDArray[np.intp]:
        """Parts that no subset explains."""
        return np.flatnonzero(~self.matches.any(axis=0))

    @property
    def ambiguous(self) -> bool:
        """True if several subsets explain a part."""
        return bool((self.matches.sum(axis=0) > 1).any())

    def among(self, keep: Sequence[bool]) -> NDArray[np.bool_]:
        """Per part, whether one of the kept subsets explains it."""
        return np.asarray(self.matches[np.array(keep, np.bool_)].any(axis=0))

    def at_least(self, size: int) -> NDArray[np.bool_]:
        """Per part, whether a subset of so many ranks explains it."""
        return self.among([len(subset) >= size for subset in self.subsets])

    def with_rank(self, rank: int) -> NDArray[np.bool_]:
        """Per part, whether a subset with this rank explains it."""
        return self.among([rank in subset for subset in self.subsets])

    def exactly(self, ranks: Sequence[int]) -> NDArray[np.bool_]:
        """Per part, whether these ranks explain it."""
        return self.among([subset == tuple(ranks) for subset in self.subsets])


def members_of(op: str, inputs: Sequence[Array], result: Array, width: int) -> Members:
    """Find who is in a result. Inputs and result have the same shape and dtype, and are compared bit for bit, ``width`` elements
    at a time."""
    subsets = subsets_of(range(len(inputs)))
    flat = [array.reshape(-1) for array in inputs]
    wanted = result.reshape(-1)
    starts = np.arange(0, wanted.size, width)
    if not starts.size:
        return Members(subsets, np.zeros((len(subsets), 0), np.bool_), width)
    same = np.array([_same(combined(op, flat, subset), wanted) for subset in subsets], np.bool_)
    return Members(subsets, np.logical_and.reduceat(same, starts, axis=1), width)


def _same(one: Array, other: Array) -> NDArray[np.bool_]:
    bits = f"u{other.dtype.itemsize}"
    return np.asarray(np.ascontiguousarray(one).view(bits) == np.ascontiguousarray(other).view(bits))
