# SPDX-License-Identifier: MIT
"""One rank's call is wrong while the others send theirs at once: they are told, and the next call is as any other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from netsum.communicator import Communicator
from netsum.errors import (
    AbortedError,
    CallError,
    ClosedError,
    InvalidTimeoutError,
    MismatchError,
    NotFiniteError,
    UnsupportedError,
)

from tests.hosts.calls import allreduce, closing_all, good, on_each
from tests.hosts.combiners import BY_SWITCH, combiner, make_network  # noqa: F401 - each test by a switch and without

Call = Callable[[Communicator], Any]

WORKERS, WRONG_RANK = 3, 1
SHORT, LONG = np.ones(50, np.float32), np.ones(256 * 11, np.float32)
"""Arrays of one block, and of more than fit into the window."""
READ_ONLY = np.zeros(50, np.float32)
READ_ONLY.flags.writeable = False
SPOILT = np.full(50, np.nan, np.float32)

KINDS: dict[str, Call] = {
    "predicted, one block": lambda comm: comm.allreduce(SHORT, scale="predicted"),
    "predicted": lambda comm: comm.allreduce(LONG, scale="predicted"),
    "exact, one block": lambda comm: comm.allreduce(SHORT[:5], exact=True),
    "exact": lambda comm: comm.allreduce(SHORT, exact=True),
    "agreed": lambda comm: comm.allreduce(LONG),
}
"""Calls that are sent at once (the predicted ones once they have been made), and one that is not, though the wrong one may be."""

WRONG: dict[str, tuple[Call, type[Exception]]] = {
    "type": (lambda comm: comm.allreduce(SHORT * 1j), UnsupportedError),
    "type of a predicted call": (lambda comm: comm.allreduce(SHORT > 2, scale="predicted"), UnsupportedError),
    "type of an exact call": (lambda comm: comm.allreduce(SHORT * 1j, exact=True), UnsupportedError),
    "not an array": (lambda comm: comm.allreduce([[1.0], [2.0, 3.0]], scale="predicted"), ValueError),
    "masked": (lambda comm: comm.allreduce(np.ma.masked_less(SHORT, 3)), UnsupportedError),
    "operation": (lambda comm: comm.allreduce(SHORT, "median"), UnsupportedError),
    "operation of an exact call": (lambda comm: comm.allreduce(SHORT, "product", exact=True), UnsupportedError),
    "scale": (lambda comm: comm.allreduce(SHORT, scale="guessed"), UnsupportedError),
    "bits": (lambda comm: comm.allreduce(SHORT, scale="predicted", bits=12), UnsupportedError),
    "rounding": (lambda comm: comm.allreduce(SHORT, scale="predicted", rounding="up"), UnsupportedError),
    "residual": (lambda comm: comm.allreduce(SHORT, scale="predicted", residual=np.zeros(3)), UnsupportedError),
    "nonfinite": (lambda comm: comm.allreduce(SHORT, nonfinite="ignore"), UnsupportedError),
    "on_late": (lambda comm: comm.allreduce(SHORT, on_late="never"), UnsupportedError),
    "contribute": (lambda comm: comm.allreduce(SHORT, contribute=False), UnsupportedError),
    "exact and bits": (lambda comm: comm.allreduce(SHORT, exact=True, bits=8), UnsupportedError),
    "out": (lambda comm: comm.allreduce(SHORT, out=READ_ONLY), UnsupportedError),
    "out of a predicted call": (lambda comm: comm.allreduce(SHORT, out=READ_ONLY, scale="predicted"), UnsupportedError),
    "out of an exact call": (lambda comm: comm.allreduce(SHORT, out=READ_ONLY, exact=True), UnsupportedError),
    "out of a longer exact call": (lambda comm: comm.allreduce(LONG, out=READ_ONLY, exact=True), UnsupportedError),
    "out of a product": (lambda comm: comm.allreduce(SHORT, "product", out=READ_ONLY[:3]), UnsupportedError),
    "not finite": (lambda comm: comm.allreduce(SPOILT), NotFiniteError),
    "not finite in a predicted call": (lambda comm: comm.allreduce(SPOILT, scale="predicted"), NotFiniteError),
    "not finite in a maximum": (lambda comm: comm.allreduce(SPOILT, "max"), NotFiniteError),
    "floats added as they are": (lambda comm: comm.allreduce(SHORT * np.nan, scale="float"), CallError),
    "timeout": (lambda comm: comm.allreduce(SHORT, timeout=-1), InvalidTimeoutError),
    "timeout of a predicted call": (
        lambda comm: comm.allreduce(SHORT, scale="predicted", timeout="x"),  # type: ignore[arg-type]
        InvalidTimeoutError,
    ),
    "timeout of an exact call": (lambda comm: comm.allreduce(SHORT, exact=True, timeout=-1), InvalidTimeoutError),
    "barrier": (lambda comm: comm.barrier(timeout=float("nan")), InvalidTimeoutError),
    "reduce": (lambda comm: comm.reduce(SHORT, root=7), UnsupportedError),
    "reduce_scatter": (lambda comm: comm.reduce_scatter(SHORT, counts=[1, 2]), UnsupportedError),
    "broadcast": (lambda comm: comm.broadcast(SHORT, out=np.zeros(3)), UnsupportedError),
    "gather": (lambda comm: comm.gather(np.array([None])), UnsupportedError),
    "all_gather": (lambda comm: comm.all_gather(SHORT, counts=[1, 2, 3]), UnsupportedError),
    "scatter": (lambda comm: comm.scatter(SHORT, root=WRONG_RANK), UnsupportedError),
    "all_to_all": (lambda comm: comm.all_to_all(SHORT[:5]), UnsupportedError),
    "split": (lambda comm: comm.split(-5), UnsupportedError),
    "tune": (lambda comm: comm.tune(chunks=100), UnsupportedError),
    "in the background": (lambda comm: comm.allreduce_async(SHORT, "median"), UnsupportedError),
    "out in the background": (lambda comm: comm.allreduce_async(SHORT, out=READ_ONLY).wait(), UnsupportedError),
}


def one_wrong(communicators: list[Communicator], wrong: Call, right: Call) -> list[Any]:
    return on_each(communicators, lambda comm: (wrong if comm.rank == WRONG_RANK else right)(comm))


def still_works(communicators: list[Communicator], call: Call) -> None:
    """The next calls are right on every rank: one of another kind, and the same again."""
    assert set(good(allreduce(communicators, [np.ones(3)] * WORKERS)).tolist()) == {3.0}
    assert set(good(on_each(communicators, call)).reshape(-1).tolist()) == {3.0}


def has_ended(communicators: list[Communicator]) -> None:
    """No rank makes another call. A rank that has only seen its own error may begin one before the MismatchError reaches it."""
    assert {type(each) for each in on_each(communicators, Communicator.barrier)} <= {ClosedError, MismatchError}


@pytest.mark.parametrize("kind", KINDS)
def test_the_others_are_told_whatever_is_wrong(kind: str, combiner: str) -> None:  # noqa: F811
    """Members that combine tell in their messages how many blocks go together: a rank that cannot know that ends the
    communicator on every rank. A switch's results say how many the call has."""
    call, communicators = KINDS[kind], list[Communicator]()
    for name, (wrong, error) in WRONG.items():
        if not communicators:
            communicators = make_network(WORKERS).communicators()
            good(on_each(communicators, call))
        outcomes = one_wrong(communicators, wrong, call)
        told, own = {type(outcomes[rank]) for rank in (0, 2)}, outcomes[WRONG_RANK]
        many = kind not in ("predicted, one block", "exact, one block", "agreed") or "exact call" in name
        ended = told == {MismatchError} and combiner not in BY_SWITCH and many
        assert ended or told == {AbortedError}, (name, outcomes)
        assert isinstance(own, error) or (ended and isinstance(own, MismatchError)), (name, own)
        if ended:
            has_ended(communicators)
        else:
            still_works(communicators, call)
            continue
        with closing_all(communicators):
            communicators = []
    with closing_all(communicators):
        pass


def test_where_every_rank_is_wrong_the_call_takes_one_id(combiner: str) -> None:  # noqa: F811
    """Each in another way. Where members combine, one of them believes that the call has several blocks."""
    with closing_all(make_network(3).communicators()) as communicators:
        good(on_each(communicators, KINDS["predicted, one block"]))
        before = communicators[0]._endpoint.submitted
        wrong = [WRONG["out of a predicted call"], WRONG["type"], WRONG["timeout of an exact call"]]
        outcomes = on_each(communicators, lambda comm: wrong[comm.rank][0](comm))
        if combiner in BY_SWITCH:
            assert [type(each) for each in outcomes] == [error for _, error in wrong]
            assert [comm._endpoint.submitted - before for comm in communicators] == [1] * 3
            still_works(communicators, KINDS["predicted, one block"])
        else:
            assert all(isinstance(each, error | MismatchError) for each, (_, error) in zip(outcomes, wrong, strict=True))
            has_ended(communicators)


@pytest.mark.parametrize("size", [5, 3000])
@pytest.mark.parametrize("odd", [0, 3])
@pytest.mark.parametrize("predicts", [False, True])
def test_ranks_that_round_differently_are_told(size: int, odd: int, predicts: bool) -> None:
    """Rounding decides which blocks are in doubt: of sums of four quanta, four ranks that round at random agree on the exponents
    again, and those that round to nearest do not."""

    def call(comm: Communicator, value: float, rounding: str) -> Any:
        return comm.allreduce(np.full(size, value, np.float32), scale="predicted", bits=8, rounding=rounding)

    with closing_all(make_network(4).communicators()) as communicators:
        for rounding in ("nearest", "stochastic")[: 1 + predicts]:
            good(on_each(communicators, partial(call, value=1.0, rounding=rounding)))
        outcomes = on_each(communicators, lambda comm: call(comm, 0.25, "stochastic" if comm.rank == odd else "nearest"))
        assert {type(each) for each in outcomes} == {MismatchError}


@pytest.mark.parametrize("size", [5, 3000])
def test_ranks_that_predict_differently_are_told(size: int) -> None:
    """Their predictions follow from results, so only a fault could make them differ; sums would then be wrong."""
    with closing_all(make_network(2).communicators()) as communicators:
        ones = [np.ones(size, np.float32)] * 2
        good(allreduce(communicators, ones, scale="predicted"))
        (exponents,) = communicators[1]._history.predictions.exponents.values()
        exponents[-1] += 1
        assert {type(each) for each in allreduce(communicators, ones, scale="predicted")} == {MismatchError}
