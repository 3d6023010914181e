# SPDX-License-Identifier: MIT
"""Collectives that cannot succeed: refused before anything is sent, or ended in step on every rank."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from netsum import AbortedError, Communicator, MismatchError, NotFiniteError, SumOverflowError, UnsupportedError

from tests.hosts.calls import on_each, ranks
from tests.hosts.combiners import combiner  # noqa: F401 - each test by a switch and without

Call = Callable[[Communicator], Any]

X = np.arange(6, dtype=np.float32)
READ_ONLY = np.zeros(6, np.float32)
READ_ONLY.flags.writeable = False

UNSUPPORTED: dict[str, tuple[Call, str]] = {
    "no such operation": (lambda comm: comm.reduce(X, op="prod"), "'prod' is not one of sum, mean"),
    "no mean of integers": (lambda comm: comm.reduce_scatter(X.astype(int), "mean"), "not an integer"),
    "no bits of floats": (lambda comm: comm.allreduce(X, "and"), "cannot be reduced with op='and'"),
    "no sum of bools": (lambda comm: comm.reduce(X > 2), "cannot be reduced with op='sum'"),
    "no sum of complex numbers": (lambda comm: comm.reduce(X * 1j), "complex64|<c8"),
    "a masked array": (lambda comm: comm.reduce(np.ma.masked_less(X, 3)), "masks cannot be sent"),
    "nor to exchange": (lambda comm: comm.all_gather(np.ma.masked_less(X, 3)), "masks cannot be sent"),
    "out that is masked": (lambda comm: comm.allreduce(X, out=np.ma.masked_less(X, 3)), "plain numpy array"),
    "no such root": (lambda comm: comm.broadcast(X, root=2), "root 2 is not one of the 2 ranks"),
    "a negative root": (lambda comm: comm.gather(X, root=-1), "root -1"),
    "a negative root of a broadcast": (lambda comm: comm.broadcast(X, root=-1), "root -1"),
    "no such root of a reduction": (lambda comm: comm.reduce(X, root=7), "root 7"),
    "no such root of a scatter": (lambda comm: comm.scatter(X, root=9), "root 9"),
    "rows that cannot be halved": (
        lambda comm: comm.reduce_scatter(X[:5]),
        "5 rows cannot be divided into 2 equal parts",
    ),
    "nor here": (lambda comm: comm.all_to_all(X[:3]), "3 rows cannot be divided"),
    "too few counts": (lambda comm: comm.reduce_scatter(X, counts=[6]), r"2 numbers of rows.*\[6\]"),
    "a negative count": (lambda comm: comm.reduce_scatter(X, counts=[7, -1]), r"\[7, -1\]"),
    "counts of other rows": (lambda comm: comm.reduce_scatter(X, counts=[3, 4]), "add up to 7 rows, the array has 6"),
    "counts that are not ours": (lambda comm: comm.all_gather(X, counts=[5, 5]), "this rank 5 rows, its array has 6"),
    "nor of a gather": (lambda comm: comm.gather(X, counts=[7, 7]), "this rank 7 rows"),
    "no matrix": (lambda comm: comm.all_to_all(X, counts=[3, 3]), "2 x 2 matrix"),
    "a matrix of fractions": (lambda comm: comm.all_to_all(X, counts=np.full((2, 2), 1.5)), "2 x 2 matrix"),
    "a negative matrix": (lambda comm: comm.all_to_all(X, counts=[[7, -1], [3, 3]]), "2 x 2 matrix"),
    "too few arrays": (lambda comm: comm.all_gather_list(X, [np.zeros(6, "f4")]), "2 numbers of rows"),
    "an array of other rows": (
        lambda comm: comm.all_gather_list(X, [np.zeros(6, "f4"), np.zeros((6, 2), "f4")]),
        r"the array for rank 1 is float32 \(6, 2\), not float32 \(6,\)",
    ),
    "an array that is read-only": (
        lambda comm: comm.all_gather_list(X, [X.copy(), READ_ONLY]),
        "the array for the rows of rank 1 is not C-contiguous, or read-only",
    ),
    "one array too many": (
        lambda comm: comm.all_to_all_list([X[:2]] * 3, [X[:3].copy()] * 2),
        "there must be 2 arrays.*there are 3",
    ),
    "objects": (lambda comm: comm.broadcast(np.array([None])), "holds objects"),
    "out of another type": (lambda comm: comm.broadcast(X, out=np.zeros(6)), "out is float64"),
    "out of another shape": (
        lambda comm: comm.all_gather(X, out=np.zeros(6, "f4")),
        r"\(6,\), the result float32 \(12,\)",
    ),
    "out of another part": (lambda comm: comm.reduce_scatter(X, out=np.zeros(6, "f4")), r"the result float32 \(3,\)"),
    "out that is a list": (lambda comm: comm.all_to_all(X, out=[0.0] * 6), "plain numpy array, not list"),  # type: ignore[arg-type]
    "out that is read-only": (lambda comm: comm.allreduce(X, out=READ_ONLY), "read-only"),
    "nothing to carry": (lambda comm: comm.reduce(X, on_late="carry"), "on_late='carry' is for allreduce"),
    "nor here to carry": (lambda comm: comm.reduce_scatter(X, on_late="carry"), "on_late='carry' is for allreduce"),
    "lanes of no such width": (lambda comm: comm.allreduce(X, bits=12), "bits is 12, not one of 8, 16, 32"),
    "short lanes for integers": (lambda comm: comm.allreduce(X.astype(int), bits=8), "sums and means of floats"),
    "short lanes for a maximum": (lambda comm: comm.allreduce(X, "max", bits=8), "sums and means of floats"),
    "a product for one": (lambda comm: comm.reduce(X, op="product"), "op='product' is for allreduce"),
    "a product of bools": (lambda comm: comm.allreduce(X > 2, "product"), "cannot be reduced with op='product'"),
    "no such rounding": (lambda comm: comm.allreduce(X, rounding="up"), "'up' is not one of nearest, stochastic"),
}


@pytest.mark.parametrize("what", UNSUPPORTED)
def test_what_cannot_be_is_refused_and_takes_one_id_on_every_rank(what: str) -> None:
    call, match = UNSUPPORTED[what]
    with ranks(2) as communicators:
        for outcome in on_each(communicators, call):
            assert isinstance(outcome, UnsupportedError)
            assert re.search(match, str(outcome))
        assert [comm._endpoint.submitted for comm in communicators] == [1, 1]
        assert [total.tolist() for total in on_each(communicators, lambda comm: comm.allreduce(X))] == [(2 * X).tolist()] * 2


def test_where_out_and_counts_do_not_count_they_are_not_looked_at() -> None:
    with ranks(2) as communicators:
        wrong = np.zeros(3)
        got = on_each(communicators, lambda comm: comm.reduce(X, out=None if comm.rank == 0 else wrong))
        assert got[0].tolist() == (2 * X).tolist()
        assert got[1] is None


@pytest.mark.parametrize("name", ["reduce", "reduce_scatter"])
@pytest.mark.parametrize("op", ["sum", "mean", "min", "max"])
def test_not_finite_is_raised_where_it_is_and_the_others_are_told(name: str, op: str) -> None:
    def run(comm: Communicator, array: Any) -> Any:
        return getattr(comm, name)(array, op=op)

    spoilt = np.zeros((4, 300), np.float32)
    spoilt[3, 7] = np.nan
    with ranks(3) as communicators:
        given = [np.zeros((6, 300), np.float32), np.concatenate([spoilt, spoilt[:2]]), np.zeros((6, 300), np.float32)]
        outcomes = on_each(communicators, lambda comm: run(comm, given[comm.rank]))
        assert [type(each) for each in outcomes] == [AbortedError, NotFiniteError, AbortedError]
        assert (outcomes[1].rank, outcomes[1].index) == (1, (3, 7))
        usable = on_each(communicators, lambda comm: run(comm, np.ones((3, 2))))
        assert {float(each.max()) for each in usable if each is not None} == {3.0 if op == "sum" else 1.0}


def test_a_sum_that_does_not_fit_is_the_roots_error() -> None:
    with ranks(3) as communicators:
        outcomes = on_each(communicators, lambda comm: comm.reduce(np.array([1, 100], np.int8), root=1))
        assert [type(each) for each in outcomes] == [type(None), SumOverflowError, type(None)]
        again = on_each(communicators, lambda comm: comm.reduce(np.array([1, 40], np.int8), root=1))
        assert again[1].tolist() == [3, 120]


def test_a_part_that_does_not_fit_is_the_error_of_the_rank_that_gets_it() -> None:
    with ranks(3) as communicators:
        given = np.repeat(np.array([1, 200, 3], np.uint8), 2000)
        outcomes = on_each(communicators, lambda comm: comm.reduce_scatter(given))
        assert isinstance(outcomes[1], SumOverflowError)
        assert [set(outcomes[rank].tolist()) for rank in (0, 2)] == [{3}, {9}]
        assert on_each(communicators, lambda comm: comm.allreduce(1)) == [3] * 3


def test_products_that_do_not_fit_or_are_not_finite() -> None:
    with ranks(3) as communicators:
        outcomes = on_each(communicators, lambda comm: comm.allreduce(np.array([1, 6], np.int8), "product"))
        assert [type(each) for each in outcomes] == [SumOverflowError] * 3
        given = [np.full((2, 2), [1.0, np.inf if rank == 1 else 2.0]) for rank in range(3)]
        outcomes = on_each(communicators, lambda comm: comm.allreduce(given[comm.rank], "product"))
        assert [type(each) for each in outcomes] == [AbortedError, NotFiniteError, AbortedError]
        assert (outcomes[1].rank, outcomes[1].index) == (1, (0, 1))
        outcomes = on_each(communicators, lambda comm: comm.allreduce(np.array([-128, 4], np.int16), "product"))
        assert [type(each) for each in outcomes] == [SumOverflowError] * 3
        least = [np.array([value], np.int64) for value in (-(2**31), 2**31, 2)]
        outcomes = on_each(communicators, lambda comm: comm.allreduce(least[comm.rank], "product"))
        assert [each.tolist() for each in outcomes] == [[-(2**63)]] * 3


def test_a_value_that_no_lane_holds_is_every_ranks_error() -> None:
    with ranks(2) as communicators:
        outcomes = on_each(communicators, lambda comm: comm.reduce(np.full(3, 2**63, np.uint64), root=1))
        assert [type(each) for each in outcomes] == [SumOverflowError] * 2


DIFFERENT: dict[str, tuple[Call, Call]] = {
    "collective": (lambda comm: comm.allreduce(X), lambda comm: comm.reduce(X)),
    "exchange": (lambda comm: comm.all_gather(X), lambda comm: comm.broadcast(X)),
    "root": (lambda comm: comm.reduce(X, root=0), lambda comm: comm.reduce(X, root=1)),
    "operation": (lambda comm: comm.reduce(X, op="min"), lambda comm: comm.reduce(X, op="max")),
    "type": (lambda comm: comm.broadcast(X), lambda comm: comm.broadcast(X.astype(np.int32))),
    "shape": (lambda comm: comm.broadcast(X.reshape(2, 3)), lambda comm: comm.broadcast(X.reshape(3, 2))),
    "fields of a type": (
        lambda comm: comm.broadcast(np.zeros(3, [("a", "f4"), ("b", "i4")])),
        lambda comm: comm.broadcast(np.zeros(3, [("a", "i4"), ("b", "f4")])),
    ),
    "fields of rows": (
        lambda comm: comm.all_gather(np.zeros(3, [("a", "f4"), ("b", "i4")])),
        lambda comm: comm.all_gather(np.zeros(3, [("b", "f4"), ("a", "i4")])),
    ),
    "rows": (lambda comm: comm.all_gather(X), lambda comm: comm.all_gather(X[:5])),
    "counts": (
        lambda comm: comm.reduce_scatter(X, counts=[2, 4]),
        lambda comm: comm.reduce_scatter(X, counts=[4, 2]),
    ),
    "matrix": (
        lambda comm: comm.all_to_all(X, counts=[[3, 3], [3, 3]]),
        lambda comm: comm.all_to_all(X, counts=[[2, 4], [3, 3]]),
    ),
    "product": (lambda comm: comm.allreduce(X, "product"), lambda comm: comm.all_gather(X[None])),
    "shape of factors": (
        lambda comm: comm.allreduce(X.reshape(2, 3), "product"),
        lambda comm: comm.allreduce(X.reshape(3, 2), "product"),
    ),
    "nothing": (lambda comm: comm.all_gather(X[:0]), lambda comm: comm.barrier()),
    "lanes": (lambda comm: comm.allreduce(X, bits=8), lambda comm: comm.allreduce(X, bits=16)),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_different_calls_are_a_mismatch_on_both_ranks(what: str) -> None:
    with ranks(2) as communicators:
        outcomes = on_each(communicators, lambda comm: DIFFERENT[what][comm.rank](comm))
    assert [type(each) for each in outcomes] == [MismatchError] * 2
