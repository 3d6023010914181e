# SPDX-License-Identifier: MIT
"""The window of a job without a switch: the switch's rules, what a member is told when others do not come, and how it leaves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from netsum import CallTimeoutError, ClosedError, Communicator, MismatchError
from netsum.core.blocks import Block
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.descriptor import CHAIN, HOST_ALGORITHMS, MULTICAST
from netsum.peers import peer_endpoint
from netsum.peers.peer_endpoint import PeerEndpoint
from netsum.wire.codec import Header
from netsum.wire.schema import CHUNK_BYTES, EVERYONE, Lane, Op, Status
from netsum_testbed.verify.cells import KINDS

from tests.hosts.calls import allreduce, closing_all, good, on_each, once_known, over_a_bad_network
from tests.hosts.cells import cell_of, check
from tests.hosts.network import JOB_ID, contribution, job, reply_bytes
from tests.hosts.network import descriptor as switch_descriptor
from tests.hosts.peers import PeerNetwork, memory_peers, peer_descriptor
from tests.model.rules import SwitchModel

Result = tuple[Any, ...]


def of(header: Header, payload: memoryview) -> Result:
    """The part of a result that a collective sees."""
    names = (
        "block_id", "op", "lane", "status", "dest", "worker_cnt", "data_cnt", "gen_id", "degraded", "age_op", "lane_cnt",
    )  # fmt: skip
    return (*(getattr(header, name) for name in names), bytes(payload))


def by_switch(batches: list[list[list[Block]]], workers: int) -> list[list[Result]]:
    """The results of each rank when the model of the switch combines; ``batches[number][rank]`` are blocks."""
    described = [switch_descriptor(rank, workers, window=256, block_exp_ms=1000.0) for rank in range(workers)]
    # No block is ever old enough to be closed; so ranks may pass.
    patient = job(described[0])._replace(block_exp=1_000_000_000, quorum=workers, window=256)
    switch = SwitchModel({JOB_ID: patient})
    endpoints = [SwitchEndpoint(each) for each in described]
    got = collect(batches, endpoints)
    for _ in range(3):  # packets, then those with room for what came as a notice
        for rank, endpoint in enumerate(endpoints):
            for packet in endpoint.poll(0.0):
                for reply in switch.step(contribution(b"".join(packet), rank)).replies:
                    endpoints[reply.port - 1].receive([memoryview(reply_bytes(reply))], 0.0)
    assert all(endpoint.idle for endpoint in endpoints)
    return got


def by_peers(batches: list[list[list[Block]]], workers: int, algorithm: str) -> list[list[Result]]:
    """The results of each rank when the members combine."""
    endpoints = [
        PeerEndpoint(peer_descriptor(rank, workers, job_id=JOB_ID, window=256, algorithm=algorithm)) for rank in range(workers)
    ]
    transports = memory_peers(range(workers))
    got = collect(batches, endpoints)
    for _ in range(200):
        for rank, endpoint in enumerate(endpoints):
            transports[rank].send(endpoint.poll(0.0))
            for packet in transports[rank].recv(0.0):
                endpoint.receive([packet], 0.0)
    assert all(endpoint.idle for endpoint in endpoints)
    return got


def collect(batches: list[list[list[Block]]], endpoints: list[Any]) -> list[list[Result]]:
    got: list[list[Result]] = [[] for _ in endpoints]
    for batch in batches:
        for rank, blocks in enumerate(batch):
            for number, block in enumerate(blocks):
                submitted = replace(block, more=number < len(blocks) - 1)
                submitted.on_result = lambda header, payload, to=got[rank]: to.append(of(header, payload))
                endpoints[rank].submit(submitted)
    return got


@st.composite
def batches(draw: st.DrawFn, workers: int) -> list[list[list[Block]]]:
    """Batches of blocks as ranks that make the same calls may have them: with payload, empty, passed, or given up."""
    made = []
    for gen in range(draw(st.integers(1, 3))):
        batch: list[list[Block]] = [[] for _ in range(workers)]
        for _ in range(draw(st.integers(1, 5))):
            op = draw(st.sampled_from(list(Op)))
            lane = draw(st.sampled_from(list(Lane)))
            dest = draw(st.sampled_from([EVERYONE, *range(workers)]))
            size = CHUNK_BYTES * draw(st.integers(1, 4))
            source = draw(st.integers(0, workers - 1))
            rng = np.random.default_rng(draw(st.integers(0, 10**6)))
            for rank in range(workers):
                block = Block(gen, op, lane, dest=dest, room=size)
                what = draw(st.sampled_from(["data", "data", "data", "empty", "range", "abort", "passing"]))
                if what == "data" and (op != Op.COPY or rank == source):
                    lanes = rng.integers(0, 256 // workers, size, dtype=np.uint8) if op == Op.SUM else rng.bytes(size)
                    block.payload, block.room = bytes(lanes), 0
                elif what == "range":
                    block.status = Status.RANGE
                elif what == "abort":
                    block.status = Status.ABORT
                elif what == "passing":
                    block.passing = True
                if op == Op.COPY:
                    block.source = source
                batch[rank].append(block)
        made.append(batch)
    return made


def copies(workers: int, *, passing: bool = False, given: Sequence[bool] = (False,)) -> list[list[list[Block]]]:
    """A batch of COPY blocks from the last rank, which has a payload only where ``given`` says so."""
    source, size = workers - 1, CHUNK_BYTES

    def of_rank(rank: int, there: bool) -> Block:
        if rank == source and there:
            return Block(0, Op.COPY, Lane.L8, bytes([7]) * size, source=source)
        return Block(0, Op.COPY, Lane.L8, room=size, passing=passing and rank == source, source=source)

    return [[[of_rank(rank, there) for there in given] for rank in range(workers)]]


def half_given_up(workers: int) -> list[list[list[Block]]]:
    """A batch of two sums, of which the last rank gives the second up."""
    payload = bytes(range(8)) * (CHUNK_BYTES // 8)
    first, second = (Block(0, Op.SUM, Lane.L8, payload) for _ in range(2))
    up = Block(0, Op.SUM, Lane.L8, room=CHUNK_BYTES, status=Status.ABORT)
    return [[[first, second if rank < workers - 1 else up] for rank in range(workers)]]


@given(st.integers(1, 6).flatmap(batches), st.sampled_from(["auto", *HOST_ALGORITHMS, CHAIN, MULTICAST]))
@example(copies(2), CHAIN)
@example(copies(3, passing=True), CHAIN)
@example(copies(4), MULTICAST)
@example(copies(3, given=(True, False, True)), CHAIN)
@example(copies(3, given=(False, True, False)), CHAIN)
@example(half_given_up(2), CHAIN)
@example(half_given_up(4), MULTICAST)
def test_results_are_the_switchs_bit_for_bit(given_batches: list[list[list[Block]]], algorithm: str) -> None:
    workers = len(given_batches[0])
    expected = [sorted(each) for each in by_switch(given_batches, workers)]
    assert [sorted(each) for each in by_peers(given_batches, workers, algorithm)] == expected


@pytest.mark.parametrize(
    ("algorithm", "workers"),
    [
        pytest.param(algorithm, workers, marks=[pytest.mark.full] if workers > 3 else [])
        for algorithm, workers in zip((*HOST_ALGORITHMS, CHAIN), (2, 5, 9, 3, 3), strict=True)
    ],
)
def test_cells_by_each_algorithm_over_a_bad_network(algorithm: str, workers: int) -> None:
    with over_a_bad_network(PeerNetwork(workers, algorithm=algorithm), 0.02) as communicators:
        order = np.random.default_rng(workers).permutation(len(KINDS))[:15]
        check(communicators, [cell_of(KINDS[which], workers, 1025, 5, index) for index, which in enumerate(order)])
        assert sum(comm.stats.retransmissions for comm in communicators) > 0


def test_a_rank_that_does_not_come_is_named_where_nothing_has_come_from_it() -> None:
    def attempt(timeout: float) -> list[Any]:
        with closing_all(PeerNetwork(4, algorithm="ring").communicators()) as communicators:
            return allreduce(communicators[:3], [np.ones(3000)] * 3, timeout=timeout)

    for outcome in once_known(attempt):
        assert isinstance(outcome, CallTimeoutError)
        assert outcome.missing == (3,), str(outcome)
        assert "rank 3, which has not come to it" in str(outcome)


@pytest.fixture
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_endpoint, "LINGER", 0.3)


@pytest.mark.usefixtures("_hurried")
def test_a_rank_that_is_dead_is_named_and_one_that_left_too() -> None:

    def attempt(timeout: float) -> list[Any]:
        with closing_all(PeerNetwork(3).communicators()) as communicators:
            good(allreduce(communicators, [np.ones(3)] * 3))
            communicators[2].close()
            return allreduce(communicators[:2], [np.ones(3000)] * 2, timeout=timeout)

    assert ["rank 2, which has left" in str(outcome) for outcome in once_known(attempt)] == [True] * 2

    silent = PeerNetwork(2)
    silent.transports[1].deliver = lambda _packet: None
    one, other = silent.communicators()
    work = other.allreduce_async(np.ones(3))
    with pytest.raises(CallTimeoutError, match="rank 1, from which nothing has come") as caught:
        one.allreduce(np.ones(3), timeout=0.5)
    assert caught.value.missing == (1,)
    assert not work.done()
    for comm in (one, other):
        comm.close()


def test_what_is_lost_at_the_end_of_a_call_is_repaired_after_it() -> None:
    """Rank 0 has its result and calls nothing more; the others still lack what it sent."""
    network = PeerNetwork(2, algorithm="parameter_server")
    with closing_all(network.communicators()) as communicators:
        deliver = network.transports[0].deliver
        assert deliver is not None
        lost: list[bytes] = []
        network.transports[0].deliver = lambda packet: lost.append(packet) if len(lost) < 5 else deliver(packet)
        assert good(allreduce(communicators, [np.ones(3)] * 2)).tolist() == [2.0] * 3
        assert len(lost) == 5


@pytest.mark.usefixtures("_hurried")
def test_a_leaving_rank_waits_until_the_others_have_what_it_sent_but_not_forever() -> None:
    network = PeerNetwork(2)
    one, other = network.communicators()
    good(allreduce([one, other], [np.ones(3)] * 2))
    network.transports[1].deliver = lambda _packet: None
    one.allreduce_async(np.ones(3))
    begun = time.monotonic()
    one.close()
    assert time.monotonic() - begun >= peer_endpoint.LINGER, "nothing was acknowledged"
    other.close()


def test_different_algorithms_are_told_by_name() -> None:
    network = PeerNetwork(3)
    network.descriptors[1] = replace(network.descriptors[1], algorithm="ring")
    with closing_all(network.communicators()) as communicators:
        outcomes = allreduce(communicators, [np.ones(3)] * 3)
        assert all(isinstance(outcome, MismatchError) for outcome in outcomes), outcomes
        assert any("runs the algorithm ring, rank" in str(outcome) for outcome in outcomes)


def ragged(comm: Communicator, number: int) -> Any:
    """Blocks that no two collectives would submit on two ranks, straight into the window."""
    for row in range(number):
        comm._session.submit(Block(0, Op.SUM, Lane.L32, bytes(CHUNK_BYTES), more=row < number - 1))
    return comm.barrier(timeout=60.0)


@pytest.mark.parametrize("sizes", [(2, 3, 3), (3, 2, 3), (1, 3, 2)])
def test_batches_that_differ_are_a_mismatch_on_every_rank(sizes: tuple[int, ...]) -> None:
    communicators = PeerNetwork(3).communicators()
    outcomes = on_each(communicators, lambda comm: ragged(comm, sizes[comm.rank]))
    assert [type(outcome) for outcome in outcomes] == [MismatchError] * 3
    for comm in communicators:
        with pytest.raises(ClosedError):
            comm.barrier()
        comm.close()
