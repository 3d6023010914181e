# SPDX-License-Identifier: MIT
"""Large calls that go by the switch, by a ring of the ranks, or by both at once: the same bits, and the same errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum import AbortedError, CallTimeoutError, ClosedError, Communicator, CommunicatorError, MismatchError, NotFiniteError
from netsum.collectives.selected_sum import FAILED
from netsum.collectives.way_selection import BOTH, RING
from netsum.descriptor import SWITCH
from netsum.transports import Transport
from netsum.transports.base import Packet

from tests.examples import one_in
from tests.hosts.calls import Array, allreduce, data, good, on_each, running
from tests.hosts.companions import WAYS, CompanionNetwork, class_of, ready, settle
from tests.hosts.network import Around
from tests.hosts.restarts import RestartingNetwork
from tests.threads import until

SIZE = 6000
"""Elements: more than 8 KiB in every type that is tested."""
FIRST = [np.ones(4096, np.float32)]
"""16 KiB."""


def prepared(communicators: list[Communicator]) -> None:
    ready(communicators, lambda comm: comm.allreduce(FIRST[0]))


def by(communicators: list[Communicator], way: str, arrays: Sequence[Array], **options: Any) -> Array:
    """The result of a call that goes this way."""
    divisible = arrays[0].dtype.kind == "f" and options.get("op", "sum") in ("sum", "mean") and not options.get("exact")
    settle(communicators, way if divisible or way != BOTH else RING, arrays[0].nbytes, divisible=divisible)
    return good(allreduce(communicators, arrays, **options))


def plain(workers: int, calls: Sequence[tuple[Sequence[Array], dict[str, Any]]]) -> list[bytes]:
    """The results of these calls by a switch alone."""
    with running(RestartingNetwork(workers)) as (_, communicators):
        return [good(allreduce(communicators, arrays, **options)).tobytes() for arrays, options in calls]


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("float32", {}),
    ("float64", {"op": "mean"}),
    ("float16", {"op": "mean"}),
    ("float32", {"bits": 8}),
    ("float32", {"bits": 16, "scale": "predicted"}),
    ("float64", {"scale": "predicted", "op": "mean"}),
    ("float32", {"nonfinite": "propagate"}),
    ("float32", {"op": "max"}),
    ("float32", {"exact": True}),
    ("int32", {}),
    ("int64", {"op": "min"}),
]


@pytest.mark.parametrize(("dtype", "options"), OPTIONS, ids=str)
def test_every_way_has_the_bits_of_the_switch(dtype: str, options: dict[str, Any]) -> None:
    """Values grow and shrink from call to call, so that predictions are right and wrong."""
    workers, factors = 3, [1.0, 1.5, 2.0**20, 1.0, 0.5, 2.0**-9]
    calls = []
    for seed, factor in enumerate(factors):
        arrays = data(dtype, (SIZE // 3, 3), seed, workers)
        if dtype != "float16" and arrays[0].dtype.kind == "f":
            arrays = [(each * factor).astype(dtype) for each in arrays]
        calls.append((arrays, options))
    if options.get("nonfinite"):
        calls[1][0][1][5, 0], calls[1][0][2][SIZE // 3 - 1, 2] = np.inf, np.nan
    expected = plain(workers, calls)
    with running(CompanionNetwork(workers)) as (network, communicators):
        prepared(communicators)
        order = [BOTH, RING, BOTH, SWITCH, BOTH, RING]
        found = [by(communicators, way, arrays, **options).tobytes() for way, (arrays, _) in zip(order, calls, strict=True)]
        assert found == expected
        assert all(group.stats.blocks > 8 for group in network.groups), "the ring has summed nothing"


@given(st.integers(1, 40_000), st.sampled_from([0.01, 0.2, 0.5, 0.77, 0.99]), st.integers(0, 1000))
@one_in(10)
def test_an_array_of_any_size_is_cut_between_blocks(size: int, part: float, seed: int) -> None:
    arrays = data("float32", (size,), seed, 2)
    with running(CompanionNetwork(2, advice=((1, part),))) as (_, communicators):
        prepared(communicators)
        for comm in communicators:
            for divisible in (True, False):
                kind = class_of(comm, arrays[0].nbytes, divisible=divisible)
                kind.settled = BOTH if divisible else RING
        assert good(allreduce(communicators, arrays)).tobytes() == plain(2, [(arrays, {})])[0]


def test_the_ways_are_tried_in_turn_and_the_fastest_is_kept() -> None:
    """Times are given by hand: the ranks differ, and the slowest counts."""
    with running(CompanionNetwork(2)) as (_, communicators):
        prepared(communicators)
        arrays = data("float32", (SIZE,), 1, 2)
        expected = plain(2, [(arrays, {})])[0]
        kinds = [class_of(comm, arrays[0].nbytes) for comm in communicators]
        for call in range(6):
            assert [kind.settled for kind in kinds] == [None, None]
            assert good(allreduce(communicators, arrays)).tobytes() == expected
            assert [len(kind.times.get(way, ())) for kind in kinds for way in WAYS] == [
                min(2, max(0, call + 1 - 2 * number)) for _ in kinds for number in range(3)
            ]
        kinds[0].times = {SWITCH: [2.0, 3.0], RING: [0.1, 0.1], BOTH: [1.0, 1.5]}
        kinds[1].times = {SWITCH: [2.0, 2.0], RING: [1.2, 1.1], BOTH: [0.5, 0.6]}
        assert good(allreduce(communicators, arrays)).tobytes() == expected
        assert [kind.settled for kind in kinds] == [BOTH, BOTH]
        assert kinds[0].agreed == pytest.approx({SWITCH: 2.0, RING: 1.1, BOTH: 1.0}, rel=2e-3)


def test_the_log_says_the_choice_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "netsum")
    with running(CompanionNetwork(2)) as (_, communicators):
        prepared(communicators)
        for comm in communicators:
            class_of(comm, 24_000).times = {SWITCH: [2.0, 3.0], RING: [1.0, 1.0], BOTH: [0.5, 0.5]}
        for _ in range(3):
            good(allreduce(communicators, data("float32", (SIZE,), 1, 2)))
    said = [record.getMessage() for record in caplog.records if "allreduces of" in record.getMessage()]
    assert len(said) == 2, "once on each rank"
    assert said[0].startswith("allreduces of 16,384 to 32,767 bytes go by switch and ring at once, 40% by the switch")
    assert "switch 2e+03 ms, ring 1e+03 ms, both 500 ms" in said[0]


def test_small_calls_and_those_of_other_kinds_stay_at_the_switch() -> None:
    with running(CompanionNetwork(2)) as (network, communicators):
        good(allreduce(communicators, data("float32", (1000,), 1, 2)))
        on_each(communicators, lambda comm: comm.broadcast(np.ones(SIZE)))
        on_each(communicators, lambda comm: comm.reduce(np.ones(SIZE)))
        good(allreduce(communicators, data("float32", (SIZE,), 1, 2), rounding="stochastic", bits=8))
        assert not network.groups
        assert all(comm._companion is not None and comm._companion._thread is None for comm in communicators)


@pytest.mark.parametrize("way", WAYS)
def test_results_go_into_out_and_calls_overlap(way: str) -> None:
    with running(CompanionNetwork(3)) as (_, communicators):
        prepared(communicators)
        arrays = data("float32", (SIZE,), 5, 3)
        want = by(communicators, way, arrays)
        settle(communicators, RING, 4 * 20_000)
        longer = [np.full(20_000, comm.rank, np.float32) for comm in communicators]

        def several(comm: Communicator) -> None:
            mine, apart, swapped = arrays[comm.rank].copy(), np.empty(SIZE, np.float32), np.empty(SIZE, ">f4")
            works = [
                comm.allreduce_async(mine, out=mine),
                comm.allreduce_async(longer[comm.rank]),
                comm.allreduce_async(arrays[comm.rank], out=apart),
                comm.allreduce_async(np.arange(5)),
                comm.allreduce_async(arrays[comm.rank], out=swapped),
            ]
            results = [work.wait() for work in reversed(works)][::-1]
            assert results[0] is mine
            assert results[2] is apart
            for result in (mine, apart, swapped):
                assert (result == want).all()
            assert (results[1] == 3).all()
            assert works[0].report.blocks >= SIZE * 4 // 1024
            assert works[0].report.min_worker_cnt == 3
            assert works[0].report.quantum > 0

        assert on_each(communicators, several) == [None] * 3


@pytest.mark.parametrize("where", [0, SIZE - 1])
@pytest.mark.parametrize("way", WAYS)
def test_a_value_that_is_not_finite_is_told_and_calls_go_on(way: str, where: int) -> None:
    with running(CompanionNetwork(2)) as (_, communicators):
        prepared(communicators)
        arrays = data("float32", (2, SIZE // 2), 5, 2)
        want = by(communicators, way, arrays)
        arrays[1].reshape(-1)[where] = np.nan
        before = [each.copy() for each in arrays]
        outcomes = on_each(communicators, lambda comm: comm.allreduce(arrays[comm.rank], out=arrays[comm.rank]))
        assert [type(outcome) for outcome in outcomes] == [AbortedError, NotFiniteError]
        assert str(np.unravel_index(where, arrays[1].shape)[1]) in str(outcomes[1])
        for array, as_before in zip(arrays, before, strict=True):
            assert array.tobytes() == as_before.tobytes(), "x is as before the call"
        arrays[1].reshape(-1)[where] = data("float32", (2, SIZE // 2), 5, 2)[1].reshape(-1)[where]
        assert good(allreduce(communicators, arrays)).tobytes() == want.tobytes()


@pytest.mark.parametrize("way", WAYS)
def test_a_wrong_argument_and_another_call_are_told(way: str) -> None:
    with running(CompanionNetwork(2)) as (_, communicators):
        prepared(communicators)
        arrays = data("float32", (SIZE,), 5, 2)
        settle(communicators, way, arrays[0].nbytes)

        def wrong(comm: Communicator) -> Any:
            return comm.allreduce(arrays[comm.rank], out=np.empty(3) if comm.rank else None)

        outcomes = on_each(communicators, wrong)
        assert isinstance(outcomes[0], AbortedError)
        assert "out is float64 (3,)" in str(outcomes[1])
        assert good(allreduce(communicators, arrays)).shape == (SIZE,)
        outcomes = on_each(communicators, lambda comm: comm.allreduce(np.ones(SIZE if comm.rank else 7, np.float32)))
        assert [type(outcome) for outcome in outcomes] == [MismatchError] * 2


class Silent(Around):
    """Sends nothing once it is ``silent``."""

    silent = False

    def send(self, packets: Sequence[Packet]) -> None:
        if not self.silent:
            super().send(packets)


@pytest.mark.parametrize("way", [RING, BOTH])
def test_a_rank_that_others_cannot_reach_any_more_ends_the_call_once(way: str) -> None:
    """It sends nothing in the ring, and the switch still has all of it."""
    made: list[Silent] = []

    def wrap(transport: Transport, rank: int) -> Transport:
        if rank != 1:
            return transport
        made.append(Silent(transport))
        return made[-1]

    with running(CompanionNetwork(3)) as (network, communicators):
        network.wrap = wrap
        prepared(communicators)
        arrays = data("float32", (SIZE,), 5, 3)
        by(communicators, way, arrays)
        made[0].silent = True
        outcomes = on_each(communicators, lambda comm: comm.allreduce(arrays[comm.rank], timeout=0.5))
        assert all(isinstance(outcome, CallTimeoutError | CommunicatorError) for outcome in outcomes), outcomes
        assert any(isinstance(outcome, CallTimeoutError) for outcome in outcomes)
        for comm in communicators:
            with pytest.raises(ClosedError, match="has ended"):
                comm.allreduce(np.ones(3))
        network.wrap = lambda transport, _rank: transport
        assert on_each(communicators, Communicator.resync) == [0] * 3
        prepared(communicators)
        assert by(communicators, way, arrays).shape == (SIZE,)


def test_where_a_rank_cannot_join_the_ring_the_switch_sums_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "netsum")
    with running(CompanionNetwork(2, refuses=[1])) as (_, communicators):
        arrays = data("float32", (SIZE,), 5, 2)
        expected = plain(2, [(arrays, {})])[0]
        good(allreduce(communicators, arrays))
        refused = communicators[1]._companion
        assert refused is not None
        until(lambda: refused.state == FAILED, "the refusal")
        for _ in range(3):
            assert good(allreduce(communicators, arrays)).tobytes() == expected
        assert all(comm._companion and comm._companion.selection.of(24_000, divisible=True) is None for comm in communicators)
    said = [record.getMessage() for record in caplog.records if "by the switch alone" in record.getMessage()]
    assert sorted(said) == [
        "all calls go by the switch alone: a rank cannot reach the others",
        "all calls go by the switch alone: rank 1 has no address for the others",
    ]


def test_jobs_that_degrade_or_have_lost_a_rank_have_no_ring() -> None:
    with running(CompanionNetwork(2, quorum=1)) as (_, communicators):
        assert [comm._companion for comm in communicators] == [None, None]


def test_a_restart_of_the_switch_ends_no_ring() -> None:
    with running(CompanionNetwork(2)) as (network, communicators):
        prepared(communicators)
        arrays = data("float32", (SIZE,), 5, 2)
        want = by(communicators, BOTH, arrays)
        network.restart()
        assert good(allreduce(communicators, arrays)).tobytes() == want.tobytes()
        assert all(comm.stats.resumes == 1 for comm in communicators)


def test_closing_ends_calls_in_both() -> None:
    with running(CompanionNetwork(2)) as (network, communicators):
        prepared(communicators)
        settle(communicators, BOTH, 4 * SIZE)
        work = communicators[0].allreduce_async(np.ones(SIZE, np.float32))
        communicators[0].close()
        with pytest.raises(ClosedError):
            work.wait()
        for group in network.groups:
            if group.rank == 0:
                with pytest.raises(ClosedError):
                    group.allreduce(np.ones(3))
