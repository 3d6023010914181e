# SPDX-License-Identifier: MIT
"""Calls that cannot succeed: one clear error, the right one on every rank, and whether the communicator goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import netsum
import numpy as np
import pytest
from netsum.communicator import Communicator
from netsum.errors import (
    AbortedError,
    CallError,
    CallTimeoutError,
    ClosedError,
    CommunicatorError,
    DesynchronizedError,
    InvalidTimeoutError,
    MismatchError,
    NotFiniteError,
    RejectedError,
    SumOverflowError,
    UnsupportedError,
)

from tests.hosts.calls import allreduce, data, good, on_each, ranks
from tests.hosts.combiners import BY_SWITCH, combiner  # noqa: F401 - each test by a switch and without
from tests.hosts.forking import outcome as outcome_of
from tests.hosts.network import JOB_ID, MemoryNetwork
from tests.hosts.stragglers import one_late, stragglers


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("scale", ["agreed", "predicted"])
@pytest.mark.parametrize("op", ["sum", "max"])
def test_not_finite_is_named_where_it_is_and_aborts_the_others(bad: float, scale: str, op: str) -> None:
    arrays = data("float32", (30, 40), 1, 3)
    with ranks(3) as communicators:
        good(allreduce(communicators, arrays, scale=scale, op=op))
        spoilt = [each.copy() for each in arrays]
        spoilt[1][7, 9] = bad
        outcomes = allreduce(communicators, spoilt, scale=scale, op=op)
        assert [type(each) for each in outcomes] == [AbortedError, NotFiniteError, AbortedError]
        assert (outcomes[1].rank, outcomes[1].index) == (1, (7, 9))
        assert isinstance(outcomes[1], ValueError)
        assert "rank 1" in str(outcomes[1])
        assert "[7, 9]" in str(outcomes[1])
        good(allreduce(communicators, arrays, scale=scale, op=op))


@pytest.mark.parametrize(("dtype", "values"), [("int8", [100, 28]), ("int32", [2**31 - 1, 1]), ("int64", [2**62, 2**62])])
def test_a_sum_that_does_not_fit_is_an_error_on_every_rank(dtype: str, values: list[int]) -> None:
    with ranks(2) as communicators:
        outcomes = allreduce(communicators, [np.array([0, value], dtype) for value in values])
        assert [type(each) for each in outcomes] == [SumOverflowError] * 2
        assert isinstance(outcomes[0], OverflowError)
        assert good(allreduce(communicators, [np.array([1, 2], dtype)] * 2)).tolist() == [2, 4]


def test_sums_at_the_very_ends_of_a_type() -> None:
    with ranks(2) as communicators:
        low, high = allreduce(communicators, [np.array([-64, 63], np.int8), np.array([-64, 64], np.int8)])
        assert low.tolist() == high.tolist() == [-128, 127]
        ends = good(allreduce(communicators, [np.array([-(2**62) + 1, 2**62 - 1])] * 2))
        assert ends.tolist() == [-(2**63) + 2, 2**63 - 2]


CALLED: dict[str, Callable[[Communicator], Any]] = {
    "barrier": lambda c: c.barrier(),
    "allreduce float64 (5,) sum": lambda c: c.allreduce(np.ones(5)),
    "allreduce float64 (5,) mean": lambda c: c.allreduce(np.ones(5), op="mean"),
    "allreduce float64 (5,) sum predicted": lambda c: c.allreduce(np.ones(5), scale="predicted"),
    "allreduce float32 (5,) sum": lambda c: c.allreduce(np.ones(5, np.float32)),
    "allreduce float64 (5000,) sum": lambda c: c.allreduce(np.ones(5000)),
    "allreduce float64 (3,) sum": lambda c: c.allreduce(np.ones(3)),
    "allreduce float64 (2, 3) sum": lambda c: c.allreduce(np.ones((2, 3))),
    "allreduce float64 (3, 2) sum": lambda c: c.allreduce(np.ones((3, 2))),
    "broadcast root 0 float64 (5,)": lambda c: c.broadcast(np.ones(5), 0),
    "broadcast root 1 float64 (5,)": lambda c: c.broadcast(np.ones(5), 1),
}
"""Calls, by what a mismatch says of them."""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("allreduce float64 (2, 3) sum", "allreduce float64 (3, 2) sum"),
        ("allreduce float64 (5000,) sum", "allreduce float64 (3,) sum"),
        ("allreduce float32 (5,) sum", "allreduce float64 (5,) sum"),
        ("allreduce float64 (5,) sum", "allreduce float64 (5,) mean"),
        ("allreduce float64 (5,) sum", "allreduce float64 (5,) sum predicted"),
        ("barrier", "allreduce float64 (5,) sum"),
        ("broadcast root 0 float64 (5,)", "broadcast root 1 float64 (5,)"),
    ],
)
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("called_before", [False, True])
def test_different_calls_are_a_mismatch_that_names_both(one: str, other: str, workers: int, called_before: bool) -> None:
    """The rank in the middle makes the other call."""
    with ranks(workers) as communicators:
        if called_before:
            on_each(communicators, Communicator.barrier)
        outcomes = on_each(communicators, lambda comm: CALLED[other if comm.rank == 1 else one](comm))
        for rank, outcome in enumerate(outcomes):
            ours, theirs = (other, one) if rank == 1 else (one, other)
            assert isinstance(outcome, MismatchError)
            assert str(outcome).endswith(f": this rank's is {ours}, another rank's is {theirs}")
        for outcome in on_each(communicators, Communicator.barrier):
            assert isinstance(outcome, ClosedError)


def test_a_mismatch_of_several_calls_says_so() -> None:
    with ranks(3) as communicators:
        outcomes = on_each(communicators, lambda comm: comm.allreduce(np.ones(5 + 7 * comm.rank)))
    for rank, outcome in enumerate(outcomes):
        assert isinstance(outcome, MismatchError)
        assert f"this rank's is allreduce float64 ({5 + 7 * rank},) sum, the others made several" in str(outcome)


def test_a_mismatch_of_counts_that_the_first_block_has_no_room_for() -> None:
    counts = [3] * 20
    with ranks(20) as communicators:
        outcomes = on_each(
            communicators,
            lambda comm: comm.all_gather(np.ones(3), counts=[*counts[1:], 4] if not comm.rank else counts),
        )
    for outcome in outcomes:
        assert "another rank's has other options, or counts" in str(outcome)


@pytest.mark.parametrize("size", [5, 5000])
@pytest.mark.parametrize("options", [{"scale": "predicted"}, {"exact": True}], ids=str)
def test_different_calls_without_an_opening_are_a_mismatch_too(size: int, options: dict[str, Any]) -> None:
    """Their blocks look alike but for the digest of the call."""
    ones, ops = np.ones(size, np.float32), ("sum", "mean")
    with ranks(2) as communicators:
        for op in ops:
            good(allreduce(communicators, [ones] * 2, op=op, **options))
        outcomes = on_each(communicators, lambda comm: comm.allreduce(ones, op=ops[comm.rank], **options))
    for rank, outcome in enumerate(outcomes):
        assert isinstance(outcome, MismatchError)
        assert f"allreduce float32 ({size},) {ops[rank]}" in str(outcome)


@pytest.mark.parametrize(
    ("array", "options"),
    [
        (np.ones(3, np.int32), {"op": "mean"}),
        (np.ones(3), {"op": "median"}),
        (np.ones(3), {"scale": "guessed"}),
        (np.ones(3, np.complex64), {}),
        (np.ones(3, np.uint8), {"op": "mean"}),
        (np.ones(3, bool), {}),
        (["a"], {}),
        (np.ones(3), {"out": np.ones(4)}),
        (np.ones(3), {"out": np.ones(3, np.float32)}),
        (np.ones(3), {"out": [1.0, 2.0, 3.0]}),
    ],
    ids=str,
)
def test_what_does_not_go_on_one_rank_aborts_the_others(array: Any, options: dict[str, Any]) -> None:
    """It ends the call as a NaN does, and the next call works for everyone."""
    with ranks(3) as communicators:
        for _ in range(2):
            outcomes = on_each(
                communicators,
                lambda comm: comm.allreduce(array, **options) if comm.rank == 1 else comm.allreduce(np.ones(3000)),
            )
            assert [type(each) for each in outcomes] == [AbortedError, UnsupportedError, AbortedError]
            assert isinstance(outcomes[1], TypeError)
            assert good(allreduce(communicators, [np.ones(3)] * 3)).tolist() == [3.0] * 3


def test_a_rank_that_does_not_come_is_a_timeout_that_names_block_and_ranks() -> None:
    network = MemoryNetwork(3)
    asked: list[int] = []

    def explain(block: int) -> tuple[str, tuple[int, ...]]:
        asked.append(block)
        return "waiting for rank 2 (h3)", (2,)

    communicators = network.communicators(explain=explain)[:2]
    outcomes = allreduce(communicators, [np.ones(100)] * 2, timeout=0.3)
    for outcome in outcomes:
        assert isinstance(outcome, CallTimeoutError)
        assert isinstance(outcome, TimeoutError)
        assert (outcome.block_id, outcome.missing) == (4096, (2,))
        assert "4096" in str(outcome)
        assert "rank 2 (h3)" in str(outcome)
    assert asked == [4096, 4096]
    with pytest.raises(ClosedError):
        communicators[0].barrier()


def test_a_new_epoch_is_told_by_name() -> None:
    network = MemoryNetwork(2)
    communicators = network.communicators()
    on_each(communicators, Communicator.barrier)
    job = network.switch.jobs[JOB_ID]
    members = tuple(member._replace(udp_port=member.udp_port + 100) for member in job.members)
    network.switch.jobs[JOB_ID] = job._replace(epoch=8, first_block_id=90000, members=members)
    for outcome in on_each(communicators, Communicator.barrier):
        assert isinstance(outcome, DesynchronizedError)
        assert isinstance(outcome, CommunicatorError)


def test_a_job_that_is_gone_is_refused_by_name() -> None:
    network = MemoryNetwork(2)
    communicators = network.communicators()
    on_each(communicators, Communicator.barrier)
    del network.switch.jobs[JOB_ID]
    for outcome in on_each(communicators, Communicator.barrier):
        assert isinstance(outcome, RejectedError)
        assert outcome.reason == "UNKNOWN_JOB"


def test_closing_ends_calls_under_way_and_leaves_once() -> None:
    left: list[bool] = []
    network = MemoryNetwork(2)
    comm = Communicator(network.descriptors[0], network.transports[0], leave=lambda: left.append(True))
    with comm:
        work = comm.allreduce_async(np.ones(3))
    with pytest.raises(ClosedError):
        work.wait()
    for call in (comm.barrier, lambda: comm.allreduce(1.0), lambda: comm.allreduce_async(1.0)):
        with pytest.raises(ClosedError, match="closed"):
            call()
    comm.close()
    assert left == [True]
    network.transports[1].close()


def test_an_interrupt_comes_through_and_ends_the_communicator() -> None:
    network = MemoryNetwork(2)
    comm = network.communicators()[0]

    def interrupted(timeout: float | None) -> list[memoryview]:  # noqa: ARG001 - as a signal handler would raise there
        raise KeyboardInterrupt

    network.transports[0].recv = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        comm.barrier()
    with pytest.raises(ClosedError):
        comm.barrier()
    comm.close()


def test_every_call_error_is_a_call_error() -> None:
    assert all(
        issubclass(each, CallError)
        for each in (AbortedError, SumOverflowError, MismatchError, NotFiniteError, CallTimeoutError, UnsupportedError)
    )


BAD_TIMEOUTS = (-1, -0.5, "x", "3", float("nan"), True, [1.0])


@pytest.mark.parametrize("bad", BAD_TIMEOUTS, ids=repr)
def test_a_timeout_that_is_none_is_said(bad: Any) -> None:
    """It is neither a CallTimeoutError, nor a TypeError from inside, nor a call without a timeout."""
    said = pytest.raises(ValueError, match=r"timeout is .*, not a number of seconds")
    with ranks(2) as communicators:
        outcomes = on_each(communicators, lambda comm: comm.barrier(timeout=bad))
        assert [type(outcome) for outcome in outcomes] == [InvalidTimeoutError] * 2
        work = communicators[0].allreduce_async(np.ones(3))
        with said:
            work.wait(timeout=bad)
        assert good([communicators[1].allreduce(np.ones(3)), work.wait()]).tolist() == [2.0] * 3
    network = MemoryNetwork(1)
    with said:
        Communicator(network.descriptors[0], network.transports[0], timeout=bad)
    with said, Communicator(network.descriptors[0], network.transports[0]) as comm:
        comm.resync(timeout=bad)
    with said:
        netsum.join(descriptor=network.descriptors[0], transport=network.transports[0], timeout=bad)
    with pytest.raises(ValueError, match=r"call_timeout is .*, not a number of seconds"):
        netsum.join(descriptor=network.descriptors[0], transport=network.transports[0], call_timeout=bad)


READ_ONLY = np.zeros((6, 3))
READ_ONLY.flags.writeable = False

WRONG: dict[str, Callable[[Communicator], Any]] = {
    "allreduce": lambda comm: comm.allreduce(np.ones((6, 3)), out=READ_ONLY),
    "reduce": lambda comm: comm.reduce(np.ones((6, 3)), root=1, out=READ_ONLY),
    "reduce_scatter": lambda comm: comm.reduce_scatter(np.ones((6, 3)), out=READ_ONLY),
    "broadcast": lambda comm: comm.broadcast(np.ones((6, 3)), out=READ_ONLY),
    "all_gather": lambda comm: comm.all_gather(np.ones((6, 3)), counts=[1, 2]),
    "gather": lambda comm: comm.gather(np.ones((6, 3)), timeout=-1),
    "scatter": lambda comm: comm.scatter([[1.0], [2.0, 3.0]]),
    "all_to_all": lambda comm: comm.all_to_all(np.ones((5, 3))),
    "barrier": lambda comm: comm.barrier(timeout=float("nan")),
}


@pytest.mark.parametrize("name", WRONG)
def test_whatever_is_wrong_in_whichever_call_the_others_are_told(name: str) -> None:
    """An argument that is no number or no array, or rows that cannot be cut, must not become a CallTimeoutError of the others."""
    given = [np.ones((6, 3))] if name != "barrier" else []
    options = {"root": 1} if name == "reduce" else {}
    with ranks(3) as communicators:
        outcomes = on_each(
            communicators, lambda comm: WRONG[name](comm) if comm.rank == 1 else getattr(comm, name)(*given, **options)
        )
        assert [type(outcomes[rank]) for rank in (0, 2)] == [AbortedError] * 2
        assert isinstance(outcomes[1], (TypeError, ValueError))
        assert good(allreduce(communicators, [np.ones(3)] * 3)).tolist() == [3.0] * 3


def test_a_call_in_the_background_that_is_wrong_aborts_the_others_in_its_order() -> None:
    with ranks(2) as communicators:

        def run(comm: Communicator) -> list[Any]:
            works = [comm.allreduce_async(np.full(3, number)) for number in (1.0, 2.0)]
            if comm.rank:
                with pytest.raises(UnsupportedError, match="median"):
                    comm.allreduce_async(np.ones(3), "median")
            else:
                works.append(comm.allreduce_async(np.ones(3)))
            works.append(comm.allreduce_async(np.full(3, 4.0)))
            return [outcome_of(work.wait) for work in works]

        zero, one = on_each(communicators, run)
        assert [each.tolist() for each in one] == [[2.0] * 3, [4.0] * 3, [8.0] * 3]
        assert [each.tolist() for each in (zero[0], zero[1], zero[3])] == [[2.0] * 3, [4.0] * 3, [8.0] * 3]
        assert zero[2][0] == "AbortedError"


def test_in_calls_with_predicted_scales_too(combiner: str) -> None:  # noqa: F811
    """An array to put it in is all that is wrong: the rank knows the call's blocks. Of another type it does not, and where
    members combine, nothing tells it: all end."""
    ones = np.ones(3000, np.float32)
    with ranks(2) as communicators:

        def run(wrong: dict[str, Any], array: Any = ones) -> list[Any]:
            return on_each(
                communicators,
                lambda comm: (
                    comm.allreduce(array, scale="predicted", **wrong) if comm.rank else comm.allreduce(ones, scale="predicted")
                ),
            )

        for _ in range(3):
            assert good(run({})).tolist() == [2.0] * 3000
            assert [type(each) for each in run({"out": READ_ONLY})] == [AbortedError, UnsupportedError]
        told = AbortedError if combiner in BY_SWITCH else MismatchError
        assert [type(each) for each in run({}, ones * 1j)] == [told, UnsupportedError]


def test_a_late_rank_whose_call_is_wrong_is_done_without() -> None:
    """The others do not wait for it, and do not hear of it. It knows how many blocks they had, if only ``out`` is wrong; else
    it cannot go on."""
    with stragglers(3) as (network, communicators):

        def call(comm: Communicator) -> Any:
            return comm.allreduce(np.ones((6, 300)), out=READ_ONLY if comm.rank == 1 else None)

        def worse(comm: Communicator) -> Any:
            return comm.allreduce(np.ones((6, 300)), "median" if comm.rank == 1 else "sum")

        outcomes = one_late(network, communicators, 1, call)
        assert [type(each) for each in outcomes] == [np.ndarray, UnsupportedError, np.ndarray]
        assert good(allreduce(communicators, [np.ones(3)] * 3)).tolist() == [3.0] * 3
        outcomes = one_late(network, communicators, 1, worse)
        assert [type(each) for each in outcomes] == [np.ndarray, UnsupportedError, np.ndarray]
        with pytest.raises(ClosedError) as ended:
            communicators[1].barrier()
        assert isinstance(ended.value.__cause__, DesynchronizedError)
