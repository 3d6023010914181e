# SPDX-License-Identifier: MIT
"""The host library's window held to the model: real windows talk to the model's switch over a network that loses,
duplicates, delays and reorders, on a clock of its own; every result is the exact one and every rank comes to the end."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from netsum.core.blocks import Block, BlockRejected
from netsum.wire.codec import Header
from netsum.wire.schema import CHUNK_BYTES, EVERYONE, Lane, Op, Status

from tests.model.windows import Network, Setting, contribution, runs


@given(runs())
def test_windows_are_exact_over_the_models_switch(run: Setting) -> None:
    rng = random.Random(run.seed)
    network = Network(run, rng)
    blocks = rng.randrange(1, 40)
    got: list[dict[int, tuple[Header, bytes]]] = [{} for _ in network.endpoints]
    expected: list[tuple[int, int, bytes]] = []
    for number in range(blocks):
        statuses = [rng.choice((Status.OK,) * 12 + (Status.RANGE, Status.ABORT)) for _ in network.endpoints]
        sent = [contribution(rng, status) for status in statuses]
        payloads = [int.from_bytes(block.payload, "big") for block in sent if block.payload]
        total = (sum(payloads) % (1 << (8 * CHUNK_BYTES))).to_bytes(CHUNK_BYTES, "big")
        status = max(block.status for block in sent)
        expected.append((status, len(payloads), total if payloads and status == Status.OK else b""))
        for rank, block in enumerate(sent):

            def take(header: Header, payload: memoryview, rank: int = rank, number: int = number) -> None:
                assert number not in got[rank], "a result is taken once"
                got[rank][number] = (header, bytes(payload))

            block.on_result = take
            network.endpoints[rank].submit(block)
    network.play()
    assert not any(endpoint.stats.malformed for endpoint in network.endpoints)
    for results in got:
        for number, right in enumerate(expected):
            header, payload = results[number]
            assert (header.status, header.data_cnt, payload) == right
            assert (header.worker_cnt, header.dest) == (run.workers, EVERYONE)


def play_many(run: Setting, seeds: int) -> None:
    """Barriers over many networks."""
    for seed in range(seeds):
        network = Network(run, random.Random(seed))
        for endpoint in network.endpoints:
            for _ in range(20):
                endpoint.submit(Block(3, Op.SUM, Lane.L32))
        network.play()


def test_the_check_can_fail() -> None:
    """As many slots as the window has blocks, not twice as many: a rank is told STALE about a block that it needs."""
    run = Setting(3, window=4, slots=8, first_block_id=0, loss=0.1, duplication=0.1, seed=0)
    play_many(run, 10)
    with pytest.raises(BlockRejected, match="STALE"):
        play_many(replace(run, slots=4), 10)
