# SPDX-License-Identifier: MIT
"""Large calls of ranks on one host: the bits of the call by blocks, and what becomes of a call that goes wrong in the middle."""

from __future__ import annotations

import errno
import os
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from netsum import (
    AbortedError,
    CallTimeoutError,
    ClosedError,
    Communicator,
    Descriptor,
    EvictedError,
    MismatchError,
    NotFiniteError,
    RankLeftError,
    SumOverflowError,
)
from netsum.collectives import whole_call
from netsum.collectives.whole_call import LEAST
from netsum.intranode import call_memory
from netsum.intranode.call_memory import CallMemory
from netsum.intranode.group import LocalGroup
from netsum.intranode.transport import NoLink

from tests.examples import one_in
from tests.hosts.calls import allreduce, closing_all, good, on_each, running
from tests.hosts.network import descriptor
from tests.hosts.restarts import RestartingNetwork
from tests.hosts.shared_hosts import HostNetwork, Hosts, RestartingHosts
from tests.threads import PATIENCE, meanwhile, returned, until

BLOCK = 1024
"""Bytes."""
LARGE = LEAST * BLOCK // 4
"""Lanes of 32 bits of the smallest large call."""


@contextmanager
def small_memory() -> Iterator[None]:
    """Memory that a call fills several times: pieces of 16 to 32 blocks, and room for the results of 192."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(call_memory, "LANE_BYTES", 128 * BLOCK)
        patch.setattr(call_memory, "RESULT_BYTES", 192 * BLOCK)
        yield


@pytest.fixture
def small() -> Iterator[None]:
    with small_memory():
        yield


def one_host(ranks: int, **changes: Any) -> AbstractContextManager[list[Communicator]]:
    network = HostNetwork(ranks, (ranks,), block_bytes=BLOCK, **changes)
    return closing_all(network.communicators(timeout=PATIENCE))


def by_blocks(communicators: list[Communicator]) -> None:
    for comm in communicators:
        comm._memory_use.possible = False


def numbers(rank: int, size: int = LARGE, dtype: str = "float32") -> Any:
    return np.random.default_rng(rank).standard_normal(size).astype(dtype)


def blocks_of(comm: Communicator, call: Callable[[], object]) -> int:
    """The number of blocks that a call takes."""
    before = comm.stats.blocks
    call()
    return comm.stats.blocks - before


@dataclass(frozen=True)
class Reduction:
    """A call: its operation, type, length, the share of its blocks that are zeros, and whose result it is."""

    op: str
    dtype: str
    size: int
    zeros: float
    method: str
    options: dict[str, Any]

    def array(self, rank: int) -> Any:
        rng = np.random.default_rng((rank, self.size))
        largest = 10 if self.dtype == "float16" else 20
        values: Any = rng.standard_normal(self.size) * 2.0 ** rng.integers(-20, largest)
        if self.dtype[0] in "iu":
            values = rng.integers(0, 1 << 20, self.size)
        if self.dtype == "bool":
            values = rng.integers(0, 2, self.size)
        blocks = np.random.default_rng(self.size).random(self.size // 256 + 1) < self.zeros
        values = np.where(np.repeat(blocks, 256)[: self.size], 0, values)
        return values.astype(self.dtype)

    def __call__(self, comm: Communicator) -> Any:
        array = self.array(comm.rank)
        if self.method == "reduce_scatter":
            counts = [self.size // 3, *[0] * (comm.size - 2), self.size - self.size // 3]
            return comm.reduce_scatter(array, self.op, counts=counts)
        if self.method == "reduce":
            return comm.reduce(array, comm.size - 1, self.op)
        if self.method == "in place":
            return comm.allreduce(array, self.op, array, **self.options)
        if self.method == "out":
            return comm.allreduce(array, self.op, np.empty_like(array), **self.options)
        return comm.allreduce(array, self.op, **self.options)


@st.composite
def reductions(draw: st.DrawFn) -> Reduction:
    dtype = draw(st.sampled_from(["float32", "float64", "float16", "int8", "int32", "int64", "uint16", "bool"]))
    ops = ["min", "max"]
    ops += ["sum", "mean"] if dtype.startswith("float") else ["and", "or", "xor"]
    if dtype in ("int32", "int64"):
        ops += ["sum", "integer_mean"]
    op = draw(st.sampled_from(ops))
    method = draw(st.sampled_from(["", "in place", "out", "reduce", "reduce_scatter"]))
    options: dict[str, Any] = {}
    if dtype.startswith("float") and op in ("sum", "mean") and method in ("", "in place", "out"):
        options = draw(st.sampled_from([{}, {"bits": 16}, {"nonfinite": "propagate"}, {"rounding": "stochastic"}]))
    size = draw(st.integers(0, 40 * BLOCK) | st.sampled_from([LARGE, LARGE + 1, 2 * LARGE]))
    return Reduction(op, dtype, size, draw(st.sampled_from([0.0, 0.5, 1.0])), method, options)


@one_in(2, suppress_health_check=[HealthCheck.too_slow])
@given(reductions(), st.integers(2, 4))
def test_results_have_the_bits_of_the_call_by_blocks(call: Reduction, ranks: int) -> None:
    """Each is the first call of its communicators: stochastic rounding follows from a call's number."""
    with small_memory():
        with one_host(ranks, window=64) as communicators:
            together = returned([partial(call, comm) for comm in communicators])
            reports = [comm.report for comm in communicators]
        with one_host(ranks, window=64) as communicators:
            by_blocks(communicators)
            apart = returned([partial(call, comm) for comm in communicators])
            assert reports == [comm.report for comm in communicators]
    for ours, theirs in zip(together, apart, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert (ours.dtype, ours.shape, ours.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes())


def test_a_large_call_takes_few_blocks() -> None:
    with one_host(3) as communicators:
        for comm in communicators:
            large, small = (
                blocks_of(comm, lambda: good(allreduce(communicators, [numbers(rank, size) for rank in range(3)])))  # noqa: B023
                for size in (LARGE, LARGE - BLOCK // 4)
            )
            assert large == 4, "the opening, one of codes, and one for each of two steps"
            assert small == LEAST + 1, "the opening, one of codes, and those of data"


@pytest.mark.usefixtures("small")
def test_results_are_the_callers_own() -> None:
    """What a later call puts into the memory does not change them, wherever they are."""
    with one_host(2) as communicators:
        for options in ({}, {"out": True}):
            arrays = [np.ones(2 * LARGE, np.float32), np.ones(2 * LARGE, np.float32)]
            results = on_each(
                communicators,
                lambda comm: comm.allreduce(arrays[comm.rank], out=arrays[comm.rank] if options else None),  # noqa: B023
            )
            good(allreduce(communicators, [numbers(rank, 2 * LARGE) for rank in range(2)]))
            assert all((result == 2).all() for result in results)


@pytest.mark.usefixtures("small")
def test_calls_in_progress_at_once_and_groups_of_their_own() -> None:
    def calls(comm: Communicator) -> list[Any]:
        given = [numbers(comm.rank + number, size) for number, size in enumerate((LARGE, 10, 3 * LARGE, LARGE + 7, 300))]
        works = [comm.allreduce_async(each, out=each if number % 2 else None) for number, each in enumerate(given)]
        return [work.wait().tobytes() for work in works]

    with one_host(3) as first, one_host(3) as second:
        outcomes = returned([partial(calls, comm) for comm in [*first, *second]])
        by_blocks(first)
        assert outcomes == [*on_each(first, calls), *on_each(first, calls)]


def test_integers_that_do_not_fit_and_values_that_are_not_finite() -> None:
    """The errors and results of a call by blocks; the next call is large again."""
    with one_host(2) as communicators:
        outcomes = allreduce(communicators, [np.full(2 * LARGE, 1 << 30, np.int32)] * 2)
        assert [type(outcome) for outcome in outcomes] == [SumOverflowError] * 2
        bad = [numbers(rank) for rank in range(2)]
        bad[1][5] = np.nan
        assert [type(outcome) for outcome in allreduce(communicators, bad)] == [AbortedError, NotFiniteError]
        passed_on = good(allreduce(communicators, bad, nonfinite="propagate"))
        assert np.flatnonzero(np.isnan(passed_on)).tolist() == [5]
        assert blocks_of(communicators[0], lambda: good(allreduce(communicators, [numbers(0)] * 2))) < LEAST


def test_calls_that_differ_end_on_all_ranks() -> None:
    with one_host(3) as communicators:
        outcomes = allreduce(communicators, [numbers(rank, LARGE + rank) for rank in range(3)])
    assert [type(outcome) for outcome in outcomes] == [MismatchError] * 3


class Held:
    """Rank ``rank`` stops in the middle of its next large call until it is let go on."""

    def __init__(self, patch: pytest.MonkeyPatch, rank: int) -> None:
        self.arrived, self.go_on = threading.Event(), threading.Event()
        encode = whole_call._WholeCall._encode

        def held(call: Any, *arguments: Any) -> None:
            if call._context.rank == rank and not self.go_on.is_set():
                self.arrived.set()
                assert self.go_on.wait(PATIENCE)
            encode(call, *arguments)

        patch.setattr(whole_call._WholeCall, "_encode", held)


@pytest.mark.parametrize("late", [0, 2])
def test_a_timeout_in_the_middle_names_the_rank(monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    held, timeout, outcomes = Held(monkeypatch, late), 0.5, list[Any]()
    while not held.arrived.is_set() or any(outcome.missing != (late,) for outcome in outcomes):
        assert timeout < PATIENCE, outcomes  # others may be late on a busy machine
        held.arrived.clear()
        held.go_on.clear()
        with one_host(3) as communicators:
            others = [comm for comm in communicators if comm.rank != late]
            call = partial(large, timeout=timeout)
            with meanwhile(lambda: on_each([communicators[late]], call), held.go_on.set):  # noqa: B023
                outcomes = on_each(others, call)
        assert all(isinstance(outcome, CallTimeoutError) for outcome in outcomes), outcomes
        timeout *= 2
    assert all(f"waiting for rank {late} on this host, which has not come to it" in str(outcome) for outcome in outcomes)
    assert all(f"0 of {LEAST} blocks done" in str(outcome) for outcome in outcomes)


def large(comm: Communicator, timeout: float | None = None) -> Any:
    return comm.allreduce(numbers(comm.rank), timeout=timeout)


@pytest.mark.parametrize(("failed", "error"), [(0, MemoryError), (1, MemoryError), (1, KeyboardInterrupt)])
def test_a_rank_that_fails_in_the_middle_ends_the_communicator_on_all(
    monkeypatch: pytest.MonkeyPatch, failed: int, error: type[BaseException]
) -> None:
    combine = whole_call._WholeCall._combine

    def fail(call: Any, *arguments: Any) -> None:
        if call._context.rank == failed:
            raise error
        combine(call, *arguments)

    monkeypatch.setattr(whole_call._WholeCall, "_combine", fail)
    arrays = [numbers(rank) for rank in range(3)]
    with one_host(3) as communicators:
        outcomes = on_each(communicators, lambda comm: comm.allreduce(arrays[comm.rank], out=arrays[comm.rank]))
        assert [type(outcomes.pop(failed)), *map(type, outcomes)] == [error, MismatchError, MismatchError]
        assert all((arrays[rank] == numbers(rank)).all() for rank in range(3)), "in place, x is as before"
        assert isinstance(on_each(communicators, large)[0], ClosedError)


def test_a_rank_that_leaves_in_the_middle_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, 1)
    with one_host(2) as communicators:
        work = communicators[0].allreduce_async(numbers(0))
        with meanwhile(lambda: on_each(communicators[1:], large), held.go_on.set):
            assert held.arrived.wait(PATIENCE)
            communicators[1]._endpoint.leave(NoLink())  # as close() does, which here would wait for the thread that is held
            with pytest.raises(RankLeftError) as left:
                work.wait()
            communicators[0].close()  # which ends the other call
        assert left.value.missing == (1,)


@pytest.mark.parametrize("none", [False, True])
def test_ranks_that_share_no_memory_any_more_go_by_blocks(none: bool) -> None:
    """Rank 1 has another memory than the others, as after an epoch that not all have come to; or none."""
    with one_host(3) as communicators:
        expected = good(on_each(communicators, large))
        group: LocalGroup = communicators[1]._endpoint._group  # type: ignore[attr-defined]
        fd, own = CallMemory.create(3), group.call_memory
        assert own is not None
        group.call_memory = None if none else CallMemory(fd, 1, 3)
        os.close(fd)
        results: list[Any] = []
        assert blocks_of(communicators[0], lambda: results.extend(on_each(communicators, large))) > LEAST
        assert good(results).tobytes() == expected.tobytes()
        assert [comm._memory_use.possible for comm in communicators] == [not none] * 3
        if group.call_memory is not None:
            group.call_memory.close()
        group.call_memory = own


def test_a_host_without_memory_goes_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with one_host(2) as communicators:
        monkeypatch.setattr(os, "posix_fallocate", refuse)
        assert good(on_each(communicators, large)).tobytes()
        assert [comm._memory_use.possible for comm in communicators] == [False] * 2


def test_a_leader_that_cannot_make_the_memory_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    create = os.ftruncate

    def refuse(fd: int, size: int) -> None:
        if size == CallMemory.size(2):
            raise OSError(errno.EFBIG, "File too large")
        create(fd, size)

    monkeypatch.setattr(os, "ftruncate", refuse)
    with one_host(2) as communicators:
        assert blocks_of(communicators[0], lambda: good(on_each(communicators, large))) > LEAST
        assert [comm._endpoint.call_memory for comm in communicators] == [None] * 2


class OneHost(RestartingHosts):
    """All ranks are on one host; one of them can be evicted."""

    def __init__(self, ranks: int) -> None:
        self.hosts = Hosts([ranks])
        self.gone: tuple[int, ...] = ()
        RestartingNetwork.__init__(self, ranks)

    def evict(self, rank: int) -> None:
        with self.lock:
            self.restart()
            self.gone = (rank,)
            self.needs[rank] = 1 << 40
            self.evicted.add(rank)

    def describe(self, rank: int, resumes: int | None = None) -> Descriptor:
        own = super().describe(rank, resumes)
        there = tuple(each for each in own.local_ranks if each not in self.gone)
        return replace(own, evicted=self.gone, local_ranks=there or own.local_ranks)


def test_an_epoch_that_resumes_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, 1)
    held.go_on.set()
    with running(OneHost(2)) as (network, communicators):
        expected = good(on_each(communicators, large))
        held.go_on.clear()
        works = [comm.allreduce_async(numbers(comm.rank)) for comm in communicators]
        assert held.arrived.wait(PATIENCE)
        network.restart()
        until(lambda: network.needs, "rank 0 asks what has become of the epoch")
        held.go_on.set()
        result = good([work.wait() for work in works])
        assert result.tobytes() == expected.tobytes()
        assert [comm.stats.resumes for comm in communicators] == [1, 1]
        assert good(on_each(communicators, large)).tobytes() == expected.tobytes()


def test_an_eviction_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on by blocks, and then in memory of their own."""
    held = Held(monkeypatch, 2)
    with running(OneHost(3)) as (network, communicators):
        works = [comm.allreduce_async(numbers(comm.rank)) for comm in communicators]
        assert held.arrived.wait(PATIENCE)
        network.evict(2)
        for _ in range(2):
            result = good([work.wait() for work in works[:2]])
            assert np.allclose(result, numbers(0) + numbers(1), atol=1e-4)
            works = [comm.allreduce_async(numbers(comm.rank)) for comm in communicators[:2]] + works[2:]
        assert blocks_of(communicators[0], lambda: [work.wait() for work in works[:2]]) < LEAST
        held.go_on.set()
        with pytest.raises(EvictedError):
            works[2].wait()


def test_the_memory_is_bounded_and_a_call_needs_no_other() -> None:
    assert CallMemory.size(4) <= 96 << 20
    assert CallMemory.size(64) <= 96 << 20
    arrays = [np.ones(1 << 20, np.float32) for _ in range(2)]
    with one_host(2) as communicators:
        on_each(communicators, large)
        tracemalloc.start()
        try:
            results: Sequence[Any] = on_each(communicators, lambda comm: comm.allreduce(arrays[comm.rank], out=arrays[comm.rank]))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert (good(list(results)) == 2).all()
    assert peak / 2 < 0.4 * arrays[0].nbytes


def test_only_ranks_of_one_host_that_wait_for_all_have_such_memory() -> None:
    with closing_all(HostNetwork(3).communicators()) as communicators:
        good(on_each(communicators, large))
        assert [comm._endpoint.call_memory for comm in communicators] == [None] * 3
    assert not descriptor(0, 2).on_one_host
    with one_host(2, block_exp_ms=1000.0) as communicators:
        assert [comm._memory_use.possible for comm in communicators] == [False] * 2
