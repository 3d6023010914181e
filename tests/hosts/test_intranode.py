# SPDX-License-Identifier: MIT
"""Several ranks on a host, over the model of the switch: the same bits, and what the others are told when one fails."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import pytest
from netsum import (
    CallTimeoutError,
    Communicator,
    JoinError,
    MismatchError,
    RankLeftError,
)
from netsum.core.endpoint_factory import open_endpoint, open_transport
from netsum.errors import CommunicatorError
from netsum.intranode.identity import host_identity
from netsum.intranode.transport import NoLink
from netsum.wire.schema import Outcome

from tests.hosts.calls import allreduce, closing_all, good, on_each, once_known, over_a_bad_network, running
from tests.hosts.network import JOB_ID, MemoryNetwork, descriptor
from tests.hosts.shared_hosts import HostNetwork, RestartingHosts, local_descriptor
from tests.threads import PATIENCE, returned

SIZES = (3, 1, 2)
WORKERS = sum(SIZES)


def hosts(sizes: Sequence[int] = SIZES, **changes: Any) -> AbstractContextManager[list[Communicator]]:
    return closing_all(HostNetwork(sum(sizes), sizes, **changes).communicators())


def everything(comm: Communicator) -> list[str]:
    """The digests of this rank's results of each kind of call."""
    rng = np.random.default_rng(comm.rank)
    floats, integers = rng.standard_normal(3000).astype(np.float32), rng.integers(-99, 99, 6 * 500)
    results: list[Any] = [
        *(comm.allreduce(floats, op=op) for op in ("sum", "mean", "min", "max")),
        *(comm.allreduce(floats * step, scale="predicted") for step in (1, 1, 100, 0.01)),
        comm.allreduce(floats, exact=True),
        *(comm.allreduce(integers, op=op) for op in ("sum", "min", "and", "or", "xor")),
        comm.allreduce(floats[:7]),
        *(comm.broadcast(floats, root=root) for root in range(comm.size)),
        comm.all_gather(integers),
        comm.reduce_scatter(integers),
        comm.all_to_all(integers),
        *(comm.reduce(floats, root=root) for root in range(comm.size)),
        *(comm.gather(integers, root=root) for root in range(comm.size)),
    ]
    comm.barrier()
    return ["" if result is None else hashlib.sha256(result.tobytes()).hexdigest() for result in results]


@pytest.mark.parametrize("sizes", [(2,), (4,), SIZES])
def test_results_have_the_same_bits_as_with_a_source_for_each_rank(sizes: Sequence[int]) -> None:
    with closing_all(MemoryNetwork(sum(sizes)).communicators()) as communicators:
        apart = returned([partial(everything, comm) for comm in communicators])
    with hosts(sizes) as communicators:
        assert on_each(communicators, everything) == apart
        assert [comm.stats.malformed for comm in communicators] == [0] * sum(sizes)


def test_over_a_bad_network_too() -> None:
    network = HostNetwork(4)
    with over_a_bad_network(network, 0.05) as communicators:
        for step in range(10):
            assert set(good(allreduce(communicators, [np.full(9000, step + rank) for rank in range(4)]))) == {4 * step + 6}
        sent = [comm.stats.retransmissions for comm in communicators]
        assert min(sent[0], sent[2]) > 0
        assert (sent[1], sent[3]) == (0, 0), "nothing is lost in memory"


def test_a_host_sends_and_receives_each_block_once() -> None:
    network = HostNetwork(5, (4, 1))
    with closing_all(network.communicators()) as communicators:
        good(allreduce(communicators, [np.ones(20_000, np.int32)] * 5))
        stats = [comm.stats for comm in communicators]
        assert len({(each.blocks, each.stored) for each in stats}) == 1
        accepted = [network.switch.outcomes[JOB_ID, outcome] for outcome in (Outcome.ACCEPTED, Outcome.COMPLETED)]
        assert sum(accepted) == 2 * stats[0].blocks
        assert {record.worker_cnt for record in network.switch.records.values()} == {5}


def test_a_job_on_one_host_alone_needs_no_switch() -> None:
    network = HostNetwork(4, (4,))
    with closing_all(network.communicators()) as communicators:
        good(allreduce(communicators, [np.ones(20_000, np.int32)] * 4))
        assert not network.switch.outcomes
        assert [comm.active_size for comm in communicators] == [4] * 4
        assert len({(comm.stats.blocks, comm.stats.stored) for comm in communicators}) == 1
        assert [type(each) for each in on_each(communicators, different_calls)] == [MismatchError] * 4


@pytest.mark.parametrize("late", [0, 1, 2])
def test_a_timeout_names_the_rank_of_this_host_that_has_not_come(late: int) -> None:
    timeout, outcomes = 0.5, list[Any]()
    while not outcomes or any(outcome.missing != (late,) for outcome in outcomes):  # others may be late on a busy machine
        assert timeout < PATIENCE, outcomes
        with hosts() as communicators:
            good(allreduce(communicators, [np.ones(10)] * WORKERS))
            others = [comm for comm in communicators[:3] if comm.rank != late]
            outcomes = on_each(others, partial(Communicator.allreduce, x=np.ones(10), timeout=timeout))
        assert all(isinstance(outcome, CallTimeoutError) for outcome in outcomes), outcomes
        timeout *= 2
    assert all(f"waiting for rank {late} on this host, which has not come to it" in str(outcome) for outcome in outcomes)


@pytest.mark.parametrize("late", [0, 1])
def test_a_rank_that_never_joined_is_named(late: int) -> None:
    there = 1 - late

    def attempt(timeout: float) -> list[Any]:
        network = HostNetwork(2)
        with closing_all([Communicator(network.descriptors[there], network.transports[there])]) as communicators:
            return on_each(communicators, lambda comm: comm.allreduce(np.ones(10), timeout=timeout))

    (outcome,) = once_known(attempt, 0.5, "waiting for")
    assert isinstance(outcome, CallTimeoutError)
    assert outcome.missing == (late,)
    assert f"waiting for rank {late} on this host, whose process is not there" in str(outcome)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_rank_that_has_left_ends_the_calls_of_its_host(left: int) -> None:
    with hosts() as communicators:
        good(allreduce(communicators, [np.ones(10)] * WORKERS))
        communicators[left].close()
        for outcome in on_each([comm for comm in communicators[:3] if comm.rank != left], lambda comm: comm.barrier(timeout=600)):
            assert isinstance(outcome, RankLeftError)
            assert outcome.missing == (left,)


@pytest.mark.parametrize("failed", [0, 1, 3, 5])
def test_a_rank_that_fails_half_way_ends_the_communicator_on_all(failed: int) -> None:
    with hosts() as communicators:
        good(allreduce(communicators, [np.ones(10)] * WORKERS))
        communicators[failed]._session.abort()
        others = [comm for comm in communicators if comm.rank != failed]
        outcomes = on_each(others, lambda comm: comm.barrier(timeout=600))
    assert {type(outcome) for outcome in outcomes} == {MismatchError}


def different_calls(comm: Communicator, odd: int = 1) -> Any:
    """Without an opening: the block itself says what the call is."""
    return comm.allreduce(np.ones(50 + (comm.rank == odd), np.float32), exact=True)


@pytest.mark.parametrize("odd", [1, 2, 3, 5])
def test_calls_that_differ_end_on_all_ranks(odd: int) -> None:
    with hosts() as communicators:
        outcomes = on_each(communicators, partial(different_calls, odd=odd))
        refused = [comm.stats.refusals.get("FINGERPRINT_MISMATCH", 0) for comm in communicators]
    assert {type(outcome) for outcome in outcomes} == {MismatchError}
    if odd in (1, 2, 5):  # its leader refuses it
        assert [rank for rank, number in enumerate(refused) if number] == [odd]
        assert "the other ranks made a different call" in str(outcomes[odd])


def test_a_host_whose_call_is_refused_ends_on_all_its_ranks() -> None:
    with hosts((1, 3)) as communicators:
        outcomes = on_each(communicators, lambda comm: comm.allreduce(np.ones(50 + (comm.rank > 0), np.float32), exact=True))
    assert {type(outcome) for outcome in outcomes} == {MismatchError}


def calls(comm: Communicator, number: int) -> list[bytes]:
    return [comm.allreduce(np.arange(3000) + comm.rank + step).tobytes() for step in range(number)]


def expected(workers: int, number: int) -> list[bytes]:
    return [(np.arange(3000) + np.arange(workers)[:, None] + step).sum(0).tobytes() for step in range(number)]


@pytest.mark.parametrize("workers", [3, 5])
def test_calls_go_on_after_the_switch_has_restarted(workers: int) -> None:
    with running(RestartingHosts(workers)) as (network, communicators):
        assert on_each(communicators, lambda comm: calls(comm, 3)) == [expected(workers, 3)] * workers
        network.restart()
        assert on_each(communicators, lambda comm: calls(comm, 3)) == [expected(workers, 3)] * workers
        assert [comm.stats.resumes for comm in communicators] == [1] * workers
        # In the middle: all but one have begun a call, and have no result, when the switch forgets them.
        works = [comm.allreduce_async(np.full(9000, comm.rank)) for comm in communicators[:-1]]
        assert not works[0].finished(0.1)
        network.restart()
        last = communicators[-1].allreduce(np.full(9000, workers - 1))
        assert set(good([*[work.wait() for work in works], last])) == {workers * (workers - 1) // 2}
        assert [comm.stats.resumes for comm in communicators] == [2] * workers


def test_a_rank_without_a_link_says_so() -> None:
    """Another rank of its host has it."""
    link = open_transport(local_descriptor(1, 2))
    assert isinstance(link, NoLink)
    assert (link.recv(0.0), link.fileno()) == ([], None)
    with pytest.raises(CommunicatorError, match="another rank of its host contributes for it"):
        link.send([(b"",)])


def test_a_rank_alone_on_its_host_has_nothing_of_this() -> None:
    alone = local_descriptor(0, 1)
    assert type(open_endpoint(alone)) is type(open_endpoint(descriptor(0, 1)))
    assert (alone.shares_source, alone.leader) == (False, 0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"local_ranks": (1, 2)}, "without rank 0 itself"),
        ({"local_ranks": (1, 0)}, "rising"),
        ({"local_ranks": (0, 0)}, "rising"),
        ({"local_ranks": (0, 4)}, "ranks below 4"),
        ({"local_ranks": (0, 1), "evicted": (1,)}, r"\[1\] were evicted"),
        ({"local_ranks": (0, 1), "peer_key": ""}, "peer_key is ''"),
    ],
)
def test_a_descriptor_whose_local_ranks_make_no_sense_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        descriptor(0, 4, **{"peer_key": "00" * 16, **changes})


def test_a_descriptor_with_local_ranks_comes_back_from_json() -> None:
    own = local_descriptor(1, 3)
    assert type(own).from_json(own.to_json()) == own
    assert (own.shares_source, own.leader) == (True, 0)


def test_processes_that_can_share_memory_have_the_same_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    own = host_identity()
    assert len(own) == 32
    assert host_identity() == own
    others: list[Callable[[], None]] = [
        lambda: monkeypatch.setattr("netsum.intranode.identity.os.geteuid", lambda: 12345),
        lambda: monkeypatch.setattr("netsum.intranode.identity.NETWORK_NAMESPACE", "/proc/self/ns/uts"),
    ]
    for change in others:
        change()
        assert host_identity() not in ("", own)
        own = host_identity()
    monkeypatch.setattr("netsum.intranode.identity.NETWORK_NAMESPACE", "/nowhere")
    assert host_identity() == ""


def test_two_processes_cannot_have_one_rank() -> None:
    own = local_descriptor(1, 2)
    first = open_endpoint(own)
    try:
        with pytest.raises(JoinError, match=r"rank 1 of job 'test', epoch 7, is another process on this host"):
            open_endpoint(own)
    finally:
        first.attach(NoLink()).close()


def test_members_with_files_find_that_they_belong_to_one_run() -> None:
    with hosts(one_run=True) as communicators:
        assert set(good(allreduce(communicators, [np.ones(10)] * WORKERS))) == {WORKERS}


def test_the_log_says_with_whom_memory_is_shared(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "netsum"), hosts():
        joined = [record.getMessage() for record in caplog.records if "joined job" in record.getMessage()]
    shared = "over memory shared by ranks 0, 1, 2 of this host, and udp of rank 0"
    assert [shared in each for each in joined] == [True] * 3 + [False] * 3
    assert joined[3].endswith("over udp")


def test_a_rank_that_cannot_share_memory_is_given_back() -> None:
    network, left = HostNetwork(2), []
    first = open_endpoint(network.descriptors[1])
    try:
        with pytest.raises(JoinError, match="rank 1"):
            Communicator(network.descriptors[1], network.transports[1], leave=lambda: left.append(1))
    finally:
        first.attach(NoLink()).close()
    assert left == [1]
    with pytest.raises(OSError, match="closed"):
        network.transports[1].send([(b"",)])
