# SPDX-License-Identifier: MIT
"""The host library's window in a job that degrades: ranks sleep, packets are lost, and every rank that holds a result of a block
holds the same one, and one that says truly what is in it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.core.blocks import Block
from netsum.wire.codec import Header
from netsum.wire.schema import CHUNK_BYTES, AgeOp, BlockState, Lane, Op

from tests.model.rules import ALL_RULES
from tests.model.windows import JOB_ID, Network, Setting

Taken = dict[int, tuple[Header, bytes] | None]
"""What a rank has got by block: a result, or None for one that is lost."""


@st.composite
def late_runs(draw: st.DrawFn) -> Setting:
    """Up to 5 workers, windows up to 8, a quorum, up to 10 % of packets lost, and up to three sleeps."""
    workers, endpoint = draw(st.integers(2, 5)), draw(st.integers(1, 8))
    block_exp = draw(st.sampled_from([0.01, 0.05]))
    sleep = st.builds(
        lambda rank, begin, time: (rank, begin, begin + time),
        *(st.integers(0, workers - 1), st.floats(0, 0.2), st.floats(0, 40 * block_exp)),
    )
    return Setting(
        workers=workers,
        window=endpoint,
        slots=draw(st.sampled_from([1, 4])) << (2 * endpoint - 1).bit_length(),
        first_block_id=draw(st.sampled_from([0, 0x7FFFFFF8, 0xFFFFFFF0])),
        loss=draw(st.sampled_from([0.0, 0.01, 0.1])),
        duplication=draw(st.sampled_from([0.0, 0.1])),
        seed=draw(st.integers(0, 2**32)),
        block_exp=block_exp,
        quorum=draw(st.integers(1, workers)),
        scans=draw(st.booleans()),
        sleeps=tuple(draw(st.lists(sleep, max_size=3))),
    )


def play(
    run: Setting, blocks: int, *, firm_every: int = 5, passing_rate: float = 0.1
) -> tuple[Network, list[Taken], list[list[bool]]]:
    """Rank r's payload of a block is the number with only bit 4r set; some pass. The windows' results, and who passed."""
    rng = random.Random(run.seed)
    network = Network(run, rng)
    taken: list[Taken] = [{} for _ in network.endpoints]
    passes = [[rng.random() < passing_rate for _ in network.endpoints] for _ in range(blocks)]
    for number in range(blocks):
        for rank, endpoint in enumerate(network.endpoints):
            passing = passes[number][rank]
            payload = b"" if passing else (1 << 4 * rank).to_bytes(CHUNK_BYTES, "big")
            block = Block(3, Op.SUM, Lane.L32, payload, room=CHUNK_BYTES, no_aging=number % firm_every == 0, passing=passing)

            def take(header: Header, payload: memoryview, mine: Taken = taken[rank], number: int = number) -> None:
                assert number not in mine, "a result is taken once"
                mine[number] = (header, bytes(payload))

            def lose(mine: Taken = taken[rank], number: int = number) -> None:
                assert number not in mine, "what is held is not lost"
                mine[number] = None

            block.on_result, block.on_lost = take, lose
            endpoint.submit(block)
    network.play()
    return network, taken, passes


def check(run: Setting, number: int, taken: list[Taken], passing: list[bool]) -> None:
    """One block's results."""
    results = [(rank, got) for rank, mine in enumerate(taken) if (got := mine[number]) is not None]
    assert len({(payload, header.worker_cnt, header.data_cnt, header.degraded) for _, (header, payload) in results}) <= 1
    for rank, (header, payload) in results:
        total = int.from_bytes(payload, "big")
        members = {each for each in range(run.workers) if total >> 4 * each & 0xF}
        assert total == sum(1 << 4 * each for each in members)
        assert len(members) == header.data_cnt == header.worker_cnt
        assert (rank in members) == (header.age_op != AgeOp.LATE and not passing[rank])
        assert header.degraded == (len(members) < run.workers)
        speaking = {each for each, silent in enumerate(passing) if not silent}
        assert members <= speaking
        if number % 5 == 0:
            assert members == speaking, "no_aging"
        elif members != speaking:
            assert len(members) >= run.quorum


@given(late_runs(), st.integers(1, 60))
def test_every_rank_with_a_result_holds_the_same_true_one(run: Setting, blocks: int) -> None:
    network, taken, passes = play(run, blocks)
    for number in range(blocks):
        check(run, number, taken, passes[number])
    for endpoint, mine in zip(network.endpoints, taken, strict=True):
        assert set(mine) == set(range(blocks))
        assert endpoint.stats.lost == sum(got is None for got in mine.values())


def play_many(run: Setting, seeds: int) -> None:
    """The same on many networks."""
    for seed in range(seeds):
        _, taken, passes = play(replace(run, seed=seed), 40)
        for number in range(40):
            check(run, number, taken, passes[number])


SLEEPS = tuple((rank, 0.001 + 0.1 * rank, 0.1 + 0.1 * rank) for rank in range(3))
SLEEPY = Setting(3, 2, 16, 0, 0.1, 0.1, 0, block_exp=0.01, quorum=2, sleeps=SLEEPS)


def test_with_all_rules_the_check_holds() -> None:
    play_many(SLEEPY, 20)


@pytest.mark.parametrize("rule", ["closed_is_immutable", "marks_partial", "tells_late", "no_aging_waits", "quorum"])
def test_the_check_can_fail(rule: str) -> None:
    with pytest.raises(AssertionError):
        play_many(replace(SLEEPY, rules=replace(ALL_RULES, **{rule: False})), 20)


def test_a_long_sleep_loses_blocks_and_no_firm_one() -> None:
    """The slots have gone round twice when rank 1 wakes up; then it is waited for again."""
    run = Setting(2, 4, 8, 0xFFFFFFF0, 0.0, 0.0, 1, block_exp=0.01, quorum=1, sleeps=((1, 0.0005, 2.0),))
    network, taken, _ = play(run, 100, firm_every=90, passing_rate=0.0)
    lost = [number for number, got in taken[1].items() if got is None]
    assert len(lost) > 50
    assert {0, 90}.isdisjoint(lost)
    held = taken[1][99]
    assert held is not None
    assert held[0].worker_cnt >= 1
    assert {record.state for record in network.switch.records.values()} == {BlockState.DONE}
    assert network.switch.jobs[JOB_ID].block_exp == 10_000
