# SPDX-License-Identifier: MIT
"""Bad input gives one clear error in time on every rank that it concerns, and changes nothing else."""

from __future__ import annotations

from typing import Any

import netsum
import numpy as np
import pytest
from netsum import (
    AbortedError,
    CallTimeoutError,
    Communicator,
    NotFiniteError,
    UnauthorizedError,
    UnknownRankError,
    UnsupportedError,
)
from netsum_controller.config.job_spec import JobSpec
from netsum_testbed.fabric import Fabric

from tests.full.calls import kinds, on_all, results
from tests.full.conftest import Members
from tests.threads import PATIENCE


def total(comm: Communicator, array: Any, **options: Any) -> Any:
    return comm.allreduce(array, **{"timeout": PATIENCE, **options})


def still_works(communicators: list[Communicator]) -> None:
    """The next call is right, as if nothing had happened."""
    workers = len(communicators)
    got = results(on_all(communicators, lambda comm: total(comm, np.full(2500, comm.rank + 0.5, np.float32))))
    for array in got:
        assert set(array.tolist()) == {workers * workers / 2}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("op", ["sum", "mean", "max"])
def test_a_number_that_is_none_is_named_on_all_ranks(four: list[Communicator], value: float, op: str) -> None:
    def make(comm: Communicator) -> Any:
        array = np.ones((5, 700), np.float32)
        if comm.rank == 2:
            array[3, 141] = value
        return total(comm, array, op=op)

    got = on_all(four, make)
    assert kinds(got) == [AbortedError, AbortedError, NotFiniteError, AbortedError]
    error = got[2].error
    assert isinstance(error, NotFiniteError)
    assert (error.rank, error.index) == (2, (3, 141))
    assert "rank 2" in str(error)
    assert "[3, 141]" in str(error)
    still_works(four)


@pytest.mark.parametrize("options", [{"scale": "predicted"}, {"exact": True}], ids=str)
@pytest.mark.parametrize("size", [50, 9000])
def test_a_call_of_another_type_is_told_to_those_who_have_sent_theirs_at_once(
    four: list[Communicator], options: dict[str, Any], size: int
) -> None:
    array = np.ones(size, np.float32)
    for _ in range(2):
        assert set(results(on_all(four, lambda comm: total(comm, array, **options)))[0].tolist()) == {4.0}
        got = on_all(four, lambda comm: total(comm, array * 1j if comm.rank == 2 else array, **options))
        assert kinds(got) == [AbortedError, AbortedError, UnsupportedError, AbortedError]
        still_works(four)


def test_a_rank_that_does_not_come_is_named_by_the_others(members: Members) -> None:
    with members(3) as communicators:
        got = on_all(communicators[:2], lambda comm: comm.allreduce(np.ones(5000, np.float32), timeout=2.0))
        assert kinds(got) == [CallTimeoutError] * 2
        for outcome in got:
            assert isinstance(outcome.error, CallTimeoutError)
            assert outcome.error.missing == (2,)
            assert outcome.error.block_id is not None
            assert outcome.seconds >= 2.0


def test_a_wrong_token_and_a_rank_that_is_not_there(fabric: Fabric) -> None:
    job = fabric.create_job(JobSpec(name="guarded", members=tuple(fabric.topology.hosts)[:2], token="the-right-token"))
    url = fabric.controller.serve()
    try:
        with pytest.raises(UnauthorizedError, match="token"):
            netsum.join("guarded", 0, token="the-wrong-token", controller=url, timeout=PATIENCE)
        with pytest.raises(UnknownRankError, match=r"no rank 2"):
            netsum.join("guarded", 2, token="the-right-token", controller=url, timeout=PATIENCE)
        with pytest.raises(UnknownRankError, match=r"no job 'nosuch'"):
            netsum.join("nosuch", 0, token="the-right-token", controller=url, timeout=PATIENCE)
        assert not any(seat.joined for seat in fabric.controller.job("guarded").epoch.seats)
        assert fabric.controller.job("guarded").epoch.number == job.epoch.number
    finally:
        fabric.controller.delete_job("guarded")
