# SPDX-License-Identifier: MIT
"""Ranks of one host that sum in shared memory first, held to the model: real windows over real shared memory, the model's switch,
and a network that loses, duplicates, delays and reorders. Every result is that of the same job with a source for each rank."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.core.blocks import Block, BlockBatch, BlockRejected, CallMismatch, id_distance
from netsum.core.endpoint_factory import resume_endpoint
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.descriptor import Descriptor
from netsum.intranode import combination, group, leader_endpoint
from netsum.intranode.leader_endpoint import LeaderEndpoint
from netsum.intranode.member_endpoint import MemberEndpoint
from netsum.intranode.segment import Ring
from netsum.packet_batch import Rows
from netsum.wire.codec import Header
from netsum.wire.schema import CHUNK_BYTES, COMBINING, EVERYONE, HEADER_BYTES, Lane, Op, Outcome, Status

from tests.model.lanes import combine_chunks, join
from tests.model.rules import SwitchModel
from tests.model.test_late_windows import check as check_late
from tests.model.test_late_windows import late_runs
from tests.model.test_late_windows import play as play_late
from tests.model.windows import JOB_ID, Link, Network, Setting, descriptor, runs

Result = tuple[int, int, int, bytes]
"""Status, worker_cnt, data_cnt, payload."""


@st.composite
def hosts(draw: st.DrawFn) -> Setting:
    """Up to 4 hosts of up to 4 ranks, some of which have several."""
    run = draw(runs())
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4).filter(lambda sizes: max(sizes) > 1))
    return replace(run, workers=sum(sizes), hosts=tuple(sizes))


class Call:
    """One block of every rank: what each contributes, and what each must get."""

    def __init__(self, rng: random.Random, workers: int) -> None:
        self.op = rng.choice([*COMBINING, Op.COPY])
        self.lane = Lane.L8 if self.op == Op.COPY else rng.choice(list(Lane))
        self.dest = rng.choice([EVERYONE, EVERYONE, rng.randrange(workers)])
        source = rng.randrange(workers)
        self.blocks = [self._block(rng, workers, is_source=rank == source) for rank in range(workers)]

    def _block(self, rng: random.Random, workers: int, *, is_source: bool) -> Block:
        block = Block(3, self.op, self.lane, dest=self.dest)
        if self.op == Op.COPY:
            block.payload = rng.randbytes(CHUNK_BYTES) if is_source else b""
        elif rng.random() < 0.8:
            most = (1 << self.lane.bits) // workers - 1 if self.op == Op.SUM else (1 << self.lane.bits) - 1
            lanes = [rng.randint(0, most) for _ in range(CHUNK_BYTES // self.lane.bytes)]
            block.payload = join(lanes, self.lane).to_bytes(CHUNK_BYTES, "big")
        else:
            block.room = rng.choice((0, CHUNK_BYTES))
        status = rng.choice((Status.OK,) * 40 + (Status.RANGE, Status.ABORT))
        if status != Status.OK:
            block.status, block.payload, block.room = status, b"", 0
        return block

    def result(self, rank: int) -> Result:
        status = max(block.status for block in self.blocks)
        payloads = [int.from_bytes(block.payload, "big") for block in self.blocks if block.payload]
        payload = b""
        if status == Status.OK and payloads and self.dest in (EVERYONE, rank):
            total = reduce(lambda a, b: combine_chunks(self.op, self.lane, (a,), (b,))[0], payloads)
            payload = total.to_bytes(CHUNK_BYTES, "big")
        if self.op == Op.COPY and self.blocks[rank].payload:
            payload = b""  # the source has it, and may get it or not
        return status, len(self.blocks), len(payloads) if status == Status.OK else 0, payload


def restart(network: Network, epoch: int) -> None:
    """The switch forgets everything, all ranks have reported, and continue from the lowest of the blocks that they lack."""
    needs = [endpoint.block_id(endpoint.prefix) for endpoint in network.endpoints]
    first = min(needs, key=lambda need: id_distance(need, needs[0]))
    job = network.switch.jobs[JOB_ID]._replace(epoch=epoch, first_block_id=first)
    network.switch = SwitchModel({JOB_ID: job})
    network.flying.clear()
    network.rung.clear()
    key = os.urandom(16).hex()
    for rank, endpoint in enumerate(network.endpoints):
        own = replace(descriptor(network.run, rank), epoch=epoch, first_block_id=first, peer_key=key)
        following = resume_endpoint(endpoint, own)
        assert isinstance(following, SwitchEndpoint | LeaderEndpoint | MemberEndpoint), "a contribution is gone"
        network.transports[rank].close()
        network.endpoints[rank] = following
        network.transports[rank] = following.attach(Link(network, network.run.host_of[rank]))
    for rank in range(network.run.workers):
        network.ring(rank)
        network.send(rank)


def play(run: Setting, blocks: int, restarts: Sequence[int] = ()) -> None:
    """Play as many blocks, and check what every rank gets. The switch restarts after each of these numbers of events."""
    rng = random.Random(run.seed)
    with contextlib.closing(Network(run, rng)) as network:
        calls = [Call(rng, run.workers) for _ in range(blocks)]
        got: list[dict[int, Result]] = [{} for _ in network.endpoints]
        for number, call in enumerate(calls):
            for rank, block in enumerate(call.blocks):

                def take(header: Header, payload: memoryview, rank: int = rank, number: int = number) -> None:
                    assert number not in got[rank], "a result is taken once"
                    call = calls[number]
                    own = call.op == Op.COPY and call.blocks[rank].payload
                    data_cnt = header.data_cnt if header.status == Status.OK else 0
                    got[rank][number] = header.status, header.worker_cnt, data_cnt, b"" if own else bytes(payload)

                block.on_result = take
                network.endpoints[rank].submit(block)
        for epoch, events in enumerate(restarts, 2):
            for rank in range(run.workers):
                network.send(rank)
            for _ in range(events):
                if not all(endpoint.idle for endpoint in network.endpoints):
                    network.turn()
            restart(network, epoch)
        network.play()
        assert not any(endpoint.stats.malformed for endpoint in network.endpoints)
        for rank, mine in enumerate(got):
            assert mine == {number: call.result(rank) for number, call in enumerate(calls)}


@given(hosts(), st.integers(1, 40))
def test_results_are_those_of_a_source_for_each_rank(run: Setting, blocks: int) -> None:
    play(run, blocks)


@given(hosts(), st.integers(1, 40), st.lists(st.integers(0, 200), min_size=1, max_size=3))
def test_also_after_restarts_of_the_switch(run: Setting, blocks: int, restarts: list[int]) -> None:
    play(run, blocks, restarts)


class Recorder:
    """Records the results of a batch, by row."""

    def __init__(self, rows: int) -> None:
        self.results: list[bytes] = [b""] * rows

    def record_result(self, row: int, header: Header, payload: memoryview) -> None:
        assert header.status == Status.OK
        self.results[row] = bytes(payload)

    def record_results(self, row: int, header: Header, payloads: Rows) -> None:
        for at, payload in enumerate(payloads, row):
            self.record_result(at, header, payload.data)

    def record_loss(self, row: int) -> None:
        raise AssertionError(f"block {row} is lost")


def alike(op: Op, payloads: Rows | None, number: int) -> tuple[BlockBatch, Recorder]:
    """A batch of blocks that are alike; their payloads have a chunk each. None: they have none."""
    recorder = Recorder(number)
    rows = np.zeros((number, HEADER_BYTES + (0 if payloads is None else CHUNK_BYTES)), np.uint8)
    if payloads is not None:
        rows[:, HEADER_BYTES:] = payloads
    like = Block(3, op, Lane.L8, b"" if payloads is None else rows[0, HEADER_BYTES:].data)
    return BlockBatch(like, rows, recorder), recorder


@given(hosts(), st.integers(1, 60), st.sampled_from([Op.SUM, Op.MAX, Op.COPY]))
def test_batches_of_blocks_that_are_alike(run: Setting, number: int, op: Op) -> None:
    rng = np.random.default_rng(run.seed)
    lanes = rng.integers(0, 256 // run.workers, (run.workers, number, CHUNK_BYTES), np.uint8)
    combined: Rows = lanes[0] if op == Op.COPY else np.max(lanes, 0) if op == Op.MAX else np.sum(lanes, 0, np.uint8)
    with contextlib.closing(Network(run, random.Random(run.seed))) as network:
        recorders = []
        for rank, endpoint in enumerate(network.endpoints):
            batch, recorder = alike(op, None if op == Op.COPY and rank else lanes[rank], number)
            endpoint.submit_all(batch)
            recorders.append(recorder)
        network.play()
        for recorder in recorders[op == Op.COPY :]:
            assert recorder.results == [row.tobytes() for row in combined]


LOSSY = Setting(6, window=4, slots=8, first_block_id=0xFFFFFFF8, loss=0.1, duplication=0.1, seed=0, hosts=(1, 2, 3))


def play_many(run: Setting = LOSSY) -> None:
    for seed in range(10):
        play(replace(run, seed=seed), 30)


def test_with_the_code_as_it_is_the_check_holds() -> None:
    play_many()


def _without_the_last(
    headers: list[Header], sizes: list[int], combine_headers: object = combination.combine_headers
) -> combination.Combination:
    """A leader that forgets a rank, and counts it nevertheless."""
    assert callable(combine_headers)
    combined: combination.Combination = combine_headers(headers, sizes)
    return combined._replace(payloads=combined.payloads[:-1] or combined.payloads)


def _all_in_a_row(ring: Ring, number: int) -> int:
    return len(ring.rows[ring._places(ring.taken, number)])


def _as_it_came(results: leader_endpoint._Results, _row: int, header: Header, payloads: Rows) -> None:
    results._ring.add_results(header, payloads)


def _half_a_window(descriptor: Descriptor) -> tuple[int, int, int]:
    return len(descriptor.local_ranks), max(1, descriptor.window // 2), HEADER_BYTES + CHUNK_BYTES


MUTATIONS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "a rank is left out": (leader_endpoint, "combine_headers", _without_the_last),
    "blocks that are not alike go together": (Ring, "alike", _all_in_a_row),
    "the others lack what a source on their host sends": (leader_endpoint._Results, "record_results", _as_it_came),
    "places are used again after half a window": (group, "shape", _half_a_window),
}


@pytest.mark.parametrize("mutation", list(MUTATIONS))
def test_the_check_can_fail(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, changed = MUTATIONS[mutation]
    monkeypatch.setattr(owner, name, changed)
    with pytest.raises((AssertionError, BlockRejected, CallMismatch)):
        play_many()


@given(late_runs(), st.integers(1, 60))
def test_in_a_job_that_degrades_every_rank_with_a_result_holds_the_same_true_one(run: Setting, blocks: int) -> None:
    """A rank that sleeps makes its host late. The quorum counts workers."""
    rng = random.Random(run.seed)
    cuts = sorted(rng.sample(range(1, run.workers), rng.randrange(run.workers - 1)))
    sizes = tuple(stop - start for start, stop in pairwise((0, *cuts, run.workers)))
    network, taken, passes = play_late(replace(run, hosts=sizes), blocks)
    with contextlib.closing(network):
        for number in range(blocks):
            check_late(run, number, taken, passes[number])
        for endpoint, mine in zip(network.endpoints, taken, strict=True):
            assert set(mine) == set(range(blocks))
            assert endpoint.stats.lost == sum(got is None for got in mine.values())


def test_a_host_is_one_source() -> None:
    run = replace(LOSSY, loss=0.0, duplication=0.0)
    with contextlib.closing(Network(run, random.Random(0))) as network:
        for endpoint in network.endpoints:
            for _ in range(20):
                endpoint.submit(Block(3, Op.SUM, Lane.L32))
        network.play()
        outcomes = network.switch.outcomes
        assert outcomes[JOB_ID, Outcome.ACCEPTED] + outcomes[JOB_ID, Outcome.COMPLETED] == 20 * 3
        assert {record.worker_cnt for record in network.switch.records.values()} == {6}
        assert [member.workers for member in network.switch.jobs[JOB_ID].members] == [1, 2, 3]
        assert [endpoint.active_size for endpoint in network.endpoints] == [6] * 6
