"""A call that is wrong on one rank only: that rank says what is wrong, the others raise Aborted, and all stay in step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from netsum.communicator import Communicator
from netsum.errors import Aborted, Closed, Desynchronized, Mismatch, Unsupported

from tests.hosts.calls import allreduce, good, on_each, ranks
from tests.hosts.combiners import combiner  # noqa: F401 - each test by a switch and without
from tests.hosts.forking import outcome
from tests.hosts.stragglers import one_late, stragglers

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
    """An argument that is no number or no array, or rows that cannot be cut, must not become a Timeout of the others."""
    given = [np.ones((6, 3))] if name != "barrier" else []
    options = {"root": 1} if name == "reduce" else {}
    with ranks(3) as communicators:
        outcomes = on_each(
            communicators, lambda comm: WRONG[name](comm) if comm.rank == 1 else getattr(comm, name)(*given, **options)
        )
        assert [type(outcomes[rank]) for rank in (0, 2)] == [Aborted] * 2
        assert isinstance(outcomes[1], (TypeError, ValueError))
        assert good(allreduce(communicators, [np.ones(3)] * 3)).tolist() == [3.0] * 3


def test_a_call_in_the_background_that_is_wrong_aborts_the_others_in_its_order() -> None:
    with ranks(2) as communicators:

        def run(comm: Communicator) -> list[Any]:
            works = [comm.allreduce_async(np.full(3, number)) for number in (1.0, 2.0)]
            if comm.rank:
                with pytest.raises(Unsupported, match="median"):
                    comm.allreduce_async(np.ones(3), "median")
            else:
                works.append(comm.allreduce_async(np.ones(3)))
            works.append(comm.allreduce_async(np.full(3, 4.0)))
            return [outcome(work.wait) for work in works]

        zero, one = on_each(communicators, run)
        assert [each.tolist() for each in one] == [[2.0] * 3, [4.0] * 3, [8.0] * 3]
        assert [each.tolist() for each in (zero[0], zero[1], zero[3])] == [[2.0] * 3, [4.0] * 3, [8.0] * 3]
        assert zero[2][0] == "Aborted"


def test_in_calls_with_predicted_scales_too() -> None:
    """An array to put it in is all that is wrong: the rank knows the call's blocks. Of another type it does not: all end."""
    ones = np.ones(3000, np.float32)
    with ranks(2) as communicators:

        def run(wrong: dict[str, Any], array: Any = ones) -> list[Any]:
            return on_each(
                communicators,
                lambda comm: (
                    comm.allreduce(array, scale="predicted", **wrong)
                    if comm.rank
                    else comm.allreduce(ones, scale="predicted")
                ),
            )

        for _ in range(3):
            assert good(run({})).tolist() == [2.0] * 3000
            assert [type(each) for each in run({"out": READ_ONLY})] == [Aborted, Unsupported]
        assert [type(each) for each in run({}, ones * 1j)] == [Mismatch, Unsupported]


def test_a_late_rank_whose_call_is_wrong_is_done_without() -> None:
    """The others do not wait for it, and do not hear of it. It knows how many blocks they had, if only ``out`` is wrong; else
    it cannot go on."""
    with stragglers(3) as (network, communicators):

        def call(comm: Communicator) -> Any:
            return comm.allreduce(np.ones((6, 300)), out=READ_ONLY if comm.rank == 1 else None)

        def worse(comm: Communicator) -> Any:
            return comm.allreduce(np.ones((6, 300)), "median" if comm.rank == 1 else "sum")

        outcomes = one_late(network, communicators, 1, call)
        assert [type(each) for each in outcomes] == [np.ndarray, Unsupported, np.ndarray]
        assert good(allreduce(communicators, [np.ones(3)] * 3)).tolist() == [3.0] * 3
        outcomes = one_late(network, communicators, 1, worse)
        assert [type(each) for each in outcomes] == [np.ndarray, Unsupported, np.ndarray]
        with pytest.raises(Closed) as ended:
            communicators[1].barrier()
        assert isinstance(ended.value.__cause__, Desynchronized)
