"""Bad input gives one clear error in time on every rank that it concerns, and changes nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import netsum
import numpy as np
import pytest
from netsum.communicator import Communicator
from netsum.errors import (
    Aborted,
    BadTimeout,
    CommunicatorError,
    DoesNotFit,
    Mismatch,
    NoSuchMember,
    NotFinite,
    Timeout,
    Unauthorized,
    Unsupported,
)
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.controller import Controller
from netsum_controller.errors import SwitchError
from netsum_testbed.fabric import Fabric

from tests.full.calls import PATIENCE, kinds, on_all, results
from tests.full.conftest import Members


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
def test_a_number_that_is_none_is_named_and_everyone_told(four: list[Communicator], value: float, op: str) -> None:
    def make(comm: Communicator) -> Any:
        array = np.ones((5, 700), np.float32)
        if comm.rank == 2:
            array[3, 141] = value
        return total(comm, array, op=op)

    got = on_all(four, make)
    assert kinds(got) == [Aborted, Aborted, NotFinite, Aborted]
    error = got[2].error
    assert isinstance(error, NotFinite)
    assert (error.rank, error.index) == (2, (3, 141))
    assert "rank 2" in str(error)
    assert "[3, 141]" in str(error)
    still_works(four)


@pytest.mark.parametrize("change", ["shape", "dtype", "op", "longer"])
def test_ranks_that_disagree_all_learn_it(members: Members, change: str) -> None:
    def make(comm: Communicator) -> Any:
        array: Any = np.ones((20, 30), np.float32)
        op = "sum"
        if comm.rank == 1:
            array = {"shape": array[:19], "dtype": array.astype(np.int32), "longer": np.ones(90000, np.float32)}.get(
                change, array
            )
            op = "max" if change == "op" else "sum"
        return total(comm, array, op=op)

    with members(3) as communicators:
        assert kinds(on_all(communicators, make)) == [Mismatch] * 3
        for outcome in on_all(communicators, lambda comm: total(comm, np.ones(4, np.float32))):
            assert isinstance(outcome.error, CommunicatorError)


@pytest.mark.parametrize(("dtype", "value"), [("int8", 100), ("int16", 30000), ("int32", 2**30), ("int64", 2**62)])
def test_a_sum_that_does_not_fit_its_dtype_is_an_error_and_never_wraps(
    four: list[Communicator], dtype: str, value: int
) -> None:
    got = on_all(four, lambda comm: total(comm, np.array([1, value, 2], dtype)))
    assert kinds(got) == [DoesNotFit] * 4
    still_works(four)


@pytest.mark.parametrize(
    ("array", "op"),
    [
        (np.ones(3, np.int32), "mean"),
        (np.ones(3, np.complex64), "sum"),
        (np.ones(3, np.float32), "median"),
        (np.array(["a"]), "sum"),
    ],
    ids=["mean of integers", "complex", "median", "text"],
)
def test_what_is_not_supported_is_said_and_no_data_is_sent(four: list[Communicator], array: Any, op: str) -> None:
    sent = [comm.stats.blocks for comm in four]
    got = on_all(four, lambda comm: total(comm, array, op=op))
    assert kinds(got) == [Unsupported] * 4
    assert [comm.stats.blocks for comm in four] == [blocks + 1 for blocks in sent]
    still_works(four)


def test_what_is_wrong_on_one_rank_aborts_the_others(four: list[Communicator]) -> None:
    out = np.zeros(3000, np.float32)
    out.flags.writeable = False
    wrongs: list[dict[str, Any]] = [{"out": out}, {"op": "median"}, {"timeout": -1.0}]
    for wrong in wrongs:

        def call(comm: Communicator, wrong: dict[str, Any] = wrong) -> Any:
            return total(comm, np.ones(3000, np.float32), **(wrong if comm.rank == 2 else {}))

        got = on_all(four, call)
        assert kinds(got) == [Aborted, Aborted, BadTimeout if "timeout" in wrong else Unsupported, Aborted]
    still_works(four)


def test_a_rank_that_does_not_come_is_named_by_the_others(members: Members) -> None:
    with members(3) as communicators:
        got = on_all(communicators[:2], lambda comm: comm.allreduce(np.ones(5000, np.float32), timeout=2.0))
        assert kinds(got) == [Timeout] * 2
        for outcome in got:
            assert isinstance(outcome.error, Timeout)
            assert outcome.error.missing == (2,)
            assert outcome.error.block_id is not None
            assert outcome.seconds >= 2.0


def test_a_wrong_token_and_a_rank_that_is_not_there(fabric: Fabric) -> None:
    job = fabric.create_job(JobSpec(name="guarded", members=tuple(fabric.topology.hosts)[:2], token="the-right-token"))
    url = fabric.controller.serve()
    try:
        with pytest.raises(Unauthorized, match="token"):
            netsum.join("guarded", 0, token="the-wrong-token", controller=url, timeout=PATIENCE)
        with pytest.raises(NoSuchMember, match=r"no rank 2"):
            netsum.join("guarded", 2, token="the-right-token", controller=url, timeout=PATIENCE)
        with pytest.raises(NoSuchMember, match=r"no job 'nobody'"):
            netsum.join("nobody", 0, token="the-right-token", controller=url, timeout=PATIENCE)
        assert not any(seat.joined for seat in fabric.controller.job("guarded").epoch.seats)
        assert fabric.controller.job("guarded").epoch.number == job.epoch.number
    finally:
        fabric.controller.delete_job("guarded")


def test_an_unreachable_switch_is_said_and_nothing_stored(fabric: Fabric, tmp_path: Path) -> None:
    topology = fabric.topology
    name, switch = next(iter(topology.switches.items()))
    gone = switch.model_copy(update={"p4runtime": f"unix:{tmp_path}/nobody.sock"})
    alone = topology.model_copy(update={"switches": {name: gone}})
    with Controller(alone, tmp_path / "state.db", connect_timeout=0.5) as controller:
        with pytest.raises(SwitchError, match=rf"{name}.*nobody\.sock"):
            controller.create_job(JobSpec(name="lost", members=tuple(topology.hosts)[:2], algorithm="switch"))
        assert controller.jobs() == []
