"""A rank slept so long that results are gone: it is told, and by which error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from netsum.communicator import Communicator
from netsum.errors import Behind, Desynchronized

from tests.hosts.calls import good, on_each
from tests.hosts.stragglers import AgeingNetwork, stragglers

CALLS = 60
"""Two blocks each, through 64 slots: of the first calls nothing is left."""
SIZE = 200


def sum_of(comm: Communicator, dtype: str, step: int, op: str = "sum") -> Any:
    return comm.allreduce(np.full(SIZE, comm.rank + step, dtype), op, timeout=10.0)


def sleep_through(network: AgeingNetwork, communicators: list[Communicator], dtype: str, op: str = "sum") -> list[Any]:
    """Rank 2 sleeps while the others make their calls; their results."""
    with network.ageing():
        got = on_each(communicators[:2], lambda comm: [sum_of(comm, dtype, step, op) for step in range(CALLS)])
    for first, second in zip(*got, strict=True):
        assert first.tobytes() == second.tobytes()
    results: list[Any] = got[0]
    return results


@pytest.mark.parametrize(("dtype", "op"), [("float32", "sum"), ("float64", "mean"), ("float32", "max")])
def test_what_is_gone_is_behind_and_what_is_still_there_is_taken(dtype: str, op: str) -> None:
    with stragglers(3) as (network, communicators):
        theirs = sleep_through(network, communicators, dtype, op)
        last = communicators[2]
        assert last.behind() > 0
        errors: dict[int, Behind] = {}
        for step in range(CALLS):
            try:
                result = sum_of(last, dtype, step, op)
            except Behind as error:
                errors[step] = error
            else:
                assert result.tobytes() == theirs[step].tobytes()
        assert 0 < len(errors) < CALLS
        assert list(errors) == list(range(len(errors))), "what is still there lies after what is gone"
        for each in errors.values():
            assert 0 < each.report.lost <= each.report.blocks
            assert "resync()" in str(each)
        assert last.stats.lost >= len(errors)
        assert last.behind() == 0
        # It has caught up, and the sums are whole again; only what it computed from the lost ones is not the others'.
        result = good(on_each(communicators, lambda comm: sum_of(comm, dtype, CALLS, op)))
        assert result.shape == (SIZE,)
        assert all(comm.report.degraded == 0 for comm in communicators)


def test_a_lost_agreement_of_integers_cannot_be_gone_on_from() -> None:
    """How wide the others' lanes were nobody can tell it, so it cannot even count their blocks."""
    with stragglers(3) as (network, communicators):
        sleep_through(network, communicators, "int32")
        with pytest.raises(Desynchronized, match=r"resync\(\)"):
            sum_of(communicators[2], "int32", 0)
        with pytest.raises(Exception, match="has ended"):
            communicators[2].barrier()


def test_giving_nothing_while_behind_is_cheap() -> None:
    """It catches up without computing: what is lost is lost, and the rest is not counted as its own."""
    with stragglers(3) as (network, communicators):
        theirs = sleep_through(network, communicators, "float32")
        last, step, got = communicators[2], 0, []
        while last.behind():
            try:
                got.append((step, last.allreduce(np.zeros(SIZE, np.float32), give=False)))
                assert last.report.missed == last.report.blocks == 1
            except Behind:
                pass
            step += 1
        assert step == CALLS
        assert got
        for at, result in got:
            assert result.tobytes() == theirs[at].tobytes()
