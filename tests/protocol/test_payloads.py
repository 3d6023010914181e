# SPDX-License-Identifier: MIT
"""The arithmetic of the program against Python ints: every operation, lane width and payload size."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import reduce

import pytest
from netsum.wire.codec import Header
from netsum.wire.schema import CHUNK_BYTES, MAX_CHUNKS, Lane, Op, Outcome

from tests.model.lanes import CHUNK_BITS, ORACLES, join, split
from tests.model.rules import Payload
from tests.protocol import star
from tests.protocol.frames import Datagram, chunk_bytes
from tests.protocol.replay import Step, replay
from tests.protocol.targets import InProcess, Target
from tests.protocol.traffic import lanes_in, random_payload

MEMBERS = star.JOBS[star.TRIO].members
FIRST = star.JOBS[star.TRIO].first_block_id


COMBINING = tuple(op for op in Op if op != Op.COPY)


def combined(op: Op, lane: Lane, payloads: list[Payload]) -> Payload:
    """The right block, straight from the definition."""
    if op == Op.SUM:
        return tuple(sum(chunks) % (1 << CHUNK_BITS) for chunks in zip(*payloads, strict=True))
    lanes = [[split(chunk, lane) for chunk in payload] for payload in payloads]
    columns = [zip(*chunks, strict=True) for chunks in zip(*lanes, strict=True)]
    ones = (1 << lane.bits) - 1
    return tuple(join([reduce(ORACLES[op], values) & ones for values in column], lane) for column in columns)


def block(rng: random.Random, index: int, op: Op, lane: Lane, chunks: int) -> Iterator[tuple[Step, Payload]]:
    """One block: each member's frame in random order, with its payload."""
    for member in rng.sample(MEMBERS, len(MEMBERS)):
        payload = random_payload(rng, chunks)
        header = Header(star.TRIO, (FIRST + index) & 0xFFFFFFFF, gen_id=index & 0xFFFF, op=op, lane=lane)
        header = header._replace(lane_cnt=lanes_in(chunks, lane), data_cnt=1)
        frame = star.contribution(star.TRIO, member, header, payload).to_bytes()
        yield Step(member.port, frame, f"{op.name} {lane.name} {chunks} chunks"), payload


@pytest.mark.parametrize(
    "lane",
    [pytest.param(lane, id=lane.name, marks=[pytest.mark.full] if lane in (Lane.L16, Lane.L8) else []) for lane in Lane],
)
def test_a_thousand_random_packets_of_a_width(target: Target, lane: Lane) -> None:
    rng = random.Random(int(lane))
    steps: list[Step] = []
    kinds = [(op, chunks) for op in COMBINING for chunks in range(1, MAX_CHUNKS + 1)]
    for index in range(352):
        op, chunks = kinds[index % len(kinds)]
        steps += [step for step, _ in block(rng, index, op, lane, chunks)]
    assert len(steps) > 1000
    model = replay(steps, target)
    assert model.switch.outcomes[star.TRIO, Outcome.COMPLETED] == 352


@pytest.mark.parametrize("op", COMBINING)
def test_results_by_definition(op: Op) -> None:
    rng = random.Random(7)
    target = InProcess(star.items())
    index = 0
    for lane in Lane:
        for chunks in range(1, MAX_CHUNKS + 1):
            steps = list(block(rng, index, op, lane, chunks))
            right = combined(op, lane, [payload for _, payload in steps])
            *_, sent = [target.exchange(step.port, step.frame) for step, _ in steps]
            assert [Datagram.parse(frame).payload for _, frame in sent] == [chunk_bytes(right)] * 3
            index += 1


@pytest.mark.parametrize("chunks", range(1, MAX_CHUNKS + 1))
def test_a_copy_comes_out_as_it_went_in(target: Target, chunks: int) -> None:
    """One member has the payload; who is last, with or without it, does not matter."""
    rng = random.Random(chunks)
    steps = []
    for index in range(3):
        (_, payload), *_ = block(rng, index, Op.COPY, Lane.L64, chunks)
        for turn, member in enumerate(MEMBERS):
            header = Header(star.TRIO, (FIRST + index) & 0xFFFFFFFF, gen_id=1, op=Op.COPY, lane=Lane.L64)
            body = (0,) * chunks
            if turn == index:
                header, body = header._replace(lane_cnt=lanes_in(chunks, Lane.L64), data_cnt=1), payload
            steps.append(Step(member.port, star.contribution(star.TRIO, member, header, body).to_bytes()))
    model = replay(steps, target)
    assert model.switch.outcomes[star.TRIO, Outcome.COMPLETED] == 3


def test_biased_lanes_never_carry(target: Target) -> None:
    """Three members with B = floor((2^w - 1) / 2n) and all lanes at either end: lane sums are exact."""
    for index, lane in enumerate(Lane):
        bias = ((1 << lane.bits) - 1) // 6
        count = CHUNK_BYTES >> lane
        values = [0 if each % 2 else 2 * bias for each in range(count)]
        sent = []
        for member in MEMBERS:
            header = Header(star.TRIO, (FIRST + index) & 0xFFFFFFFF, gen_id=1, lane=lane, lane_cnt=count, data_cnt=1)
            frame = star.contribution(star.TRIO, member, header, (join(values, lane),)).to_bytes()
            sent = target.exchange(member.port, frame)
        sums = split(int.from_bytes(Datagram.parse(sent[0][1]).payload, "big"), lane)
        assert sums == [3 * value for value in values]
