# SPDX-License-Identifier: MIT
"""Compressed sums where a member is evicted, is replaced by another process, or comes back: the numbers are those of the ranks
that are there, the same on all of them, and nothing counts twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from netsum import CallTimeoutError, Communicator
from netsum.compression import ErrorFeedback, Rotated, TopBlocks, _Levels

from tests.hosts.calls import Array, closing_all, data, good, on_each, running
from tests.hosts.network import MemoryNetwork
from tests.hosts.peers import PeerNetwork
from tests.hosts.restarts import RestartingNetwork

WORKERS = 3
GONE = 2
LEFT = (0, 1)
Make = Callable[[Communicator], Any]
MAKERS: dict[str, Make] = {
    "8 bits": lambda comm: Rotated(comm, 8, seed=5),
    "4 bits": lambda comm: Rotated(comm, 4, seed=5),
    "top blocks": lambda comm: TopBlocks(comm, 0.5),
}
every_compressor = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def averaging(compressors: list[Any], arrays: list[Array], op: str = "mean") -> Callable[[Communicator], Array]:
    """The call of each rank."""
    return lambda comm: compressors[comm.rank].allreduce(arrays[comm.rank], op)


@pytest.mark.parametrize("how", ["in place", "in place, degrade", "peers, a new epoch"])
@every_compressor
def test_a_mean_is_of_the_ranks_that_are_left(how: str, make: Make) -> None:
    """Ones, which every way to compress carries almost exactly, and to which the evicted rank has contributed earlier."""
    if how.startswith("peers"):
        addresses = tuple("" if rank == GONE else f"127.0.0.1:{rank + 1}" for rank in range(WORKERS))
        network: Any = PeerNetwork(WORKERS, evicted=(GONE,), peers=addresses)
    else:
        network = MemoryNetwork(WORKERS, **({"block_exp_ms": 1000.0} if "degrade" in how else {}))
    ones = [np.ones(700, np.float32)] * WORKERS
    with closing_all(network.communicators()) as communicators:
        compressors = [make(comm) for comm in communicators]
        if how.startswith("in place"):
            good(on_each(communicators, averaging(compressors, ones)))
            with network.lock:
                network.evict(GONE)
        left = [communicators[rank] for rank in LEFT]
        for op, wanted in (("mean", 1), ("sum", 2)):
            results = [good(on_each(left, averaging(compressors, ones, op))) for _ in range(40)]
            np.testing.assert_allclose(np.mean(results, axis=0), wanted, rtol=0.2)


def test_in_the_moment_of_an_eviction_each_row_is_of_the_same_ranks() -> None:
    """Whichever packet it precedes, each row of values that are rotated together is close to the mean of all ranks, or to that
    of the ranks left. A block of three chunks has no power of two of values."""
    arrays = [np.full(2048, value, np.float32) for value in (4.0, 6.0, 11.0)]
    seen: set[tuple[bool, ...]] = set()
    passed, moment = 1, 0
    while passed > moment:
        network = MemoryNetwork(WORKERS, block_bytes=768)
        passed, moment = 0, moment + 1
        step = network.switch.step

        def counted(packet: Any, network: MemoryNetwork = network, step: Any = step, moment: int = moment) -> Any:
            nonlocal passed
            passed += 1
            if passed == moment:
                network.evict(GONE)
            return step(packet)

        network.switch.step = counted  # type: ignore[method-assign, assignment]
        with closing_all(network.communicators()) as communicators:
            compressors = [Rotated(comm, 8) for comm in communicators]
            outcomes = on_each(communicators, averaging(compressors, arrays))
        rows = good([outcomes[rank] for rank in LEFT]).reshape(-1, 256).mean(axis=1)
        of_all, of_left = (np.abs(rows - mean) < 0.5 for mean in (7.0, 5.0))
        assert (of_all | of_left).all(), (moment, rows)
        seen.add((bool(of_all.all()), bool(of_left.all())))
    assert seen >= {(True, False), (False, True)}


def test_the_sum_of_bytes_with_two_numbers_tells_them_apart_for_any_number_of_ranks_in_it() -> None:
    rng = np.random.default_rng(1)
    steps, lost = np.ones((1, 2, 1), np.float32), np.zeros((1, 2, 256), np.float32)
    for workers in range(1, 8):
        lanes = _Levels(workers, 4, 15 // (2 * workers), False, steps, rng, lost)
        for ranks in range(1, workers + 1):
            values = rng.integers(-lanes.levels, lanes.levels + 1, (ranks, 1, 512)).astype(np.float32)
            values[:, :, :2] = [[lanes.levels, -lanes.levels]]
            summed = np.sum([lanes.encode(each, range(1)).astype(np.int64) for each in values], axis=0)
            assert summed.max() <= 255
            counts = np.array([ranks])
            got = lanes.decode(summed.astype(np.uint8), range(1), counts, counts)
            np.testing.assert_array_equal(got, values.sum(axis=0))


@every_compressor
def test_after_a_resync_all_ranks_rotate_alike(make: Make) -> None:
    """Rank 0 has made an attempt more than rank 1, which did not take part."""
    arrays = data("float32", (600,), 4, 2)
    with running(RestartingNetwork(2)) as (_, communicators):
        compressors = [make(comm) for comm in communicators]
        for _ in range(2):
            good(on_each(communicators, averaging(compressors, arrays)))
        with pytest.raises(CallTimeoutError):
            compressors[0].allreduce(arrays[0], timeout=0.05)
        assert on_each(communicators, Communicator.resync) == [0, 0]
        check(communicators, compressors, arrays)


@every_compressor
def test_a_process_that_replaces_another_rotates_as_the_others_do(make: Make) -> None:
    arrays = data("float32", (600,), 4, 2)
    with running(RestartingNetwork(2)) as (network, communicators):
        compressors = [make(comm) for comm in communicators]
        for _ in range(3):
            good(on_each(communicators, averaging(compressors, arrays)))
        communicators[1].close()
        communicators[1] = network.communicator(1)
        compressors[1] = make(communicators[1])
        assert on_each(communicators, Communicator.resync) == [0, 0]
        check(communicators, compressors, arrays)


def check(communicators: list[Communicator], compressors: list[Any], arrays: list[Array]) -> None:
    """The results have the right direction at once, and in the long run the right size."""
    results = [good(on_each(communicators, averaging(compressors, arrays, "sum"))) for _ in range(20)]
    true, mean = np.sum(arrays, axis=0), np.mean(results, axis=0)
    assert np.corrcoef(results[0], true)[0, 1] > 0.8
    assert np.linalg.norm(mean - true) < 0.2 * np.linalg.norm(true)


@every_compressor
def test_what_was_kept_of_a_step_does_not_count_when_it_is_repeated(make: Make) -> None:
    """The bits after a resync are those of compressors that have kept nothing."""
    arrays = data("float32", (600,), 4, 2)
    outcomes = []
    for keeps in (True, False):
        with running(RestartingNetwork(2)) as (_, communicators):
            compressors = [make(comm) for comm in communicators]
            good(on_each(communicators, averaging(compressors, arrays)))
            assert on_each(communicators, Communicator.resync) == [0, 0]
            if not keeps:
                compressors = [make(comm) for comm in communicators]
            outcomes.append(good(on_each(communicators, averaging(compressors, arrays))).tobytes())
    assert outcomes[0] == outcomes[1]


def test_what_is_kept_lasts_while_the_epoch_is_resumed() -> None:
    """The switch restarts, and the calls go on: nothing is repeated that was done."""
    arrays = [np.repeat(np.array([2.0, 1.5], np.float32), 32)] * 2
    with running(RestartingNetwork(2)) as (network, communicators):
        compressors = [TopBlocks(comm, 0.5) for comm in communicators]
        first = good(on_each(communicators, averaging(compressors, arrays, "sum")))
        epoch = network.epoch
        network.restart()
        second = good(on_each(communicators, averaging(compressors, arrays, "sum")))
        assert network.epoch == communicators[0].descriptor.epoch > epoch
    assert first.tolist() == [4.0] * 32 + [0.0] * 32
    assert second.tolist() == [0.0] * 32 + [6.0] * 32


def test_what_a_call_keeps_after_a_resync_is_of_the_epoch_before() -> None:
    """A call that ended just before it may be finished by another thread just after it."""
    with running(RestartingNetwork(2)) as (_, communicators):
        feedback = ErrorFeedback(communicators[0])
        zeros, ones = np.zeros(3, np.float32), np.ones(3, np.float32)
        _, keep = feedback.begin("bucket", zeros)
        keep(ones)
        given, late = feedback.begin("bucket", zeros)
        assert given.tolist() == [1.0] * 3
        on_each(communicators, Communicator.resync)
        given, _ = feedback.begin("bucket", zeros)
        late(ones)
        assert given.tolist() == feedback.begin("bucket", zeros)[0].tolist() == [0.0] * 3
