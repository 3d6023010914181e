# SPDX-License-Identifier: MIT
"""The contribution that a leader makes of those of its host's ranks is what the model of the switch makes of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.core.blocks import Block, Contributions
from netsum.intranode.combination import combine_headers, combine_payloads
from netsum.wire.codec import Header, pack_header, parse_header
from netsum.wire.schema import CHUNK_BYTES, EVERYONE, HEADER_BYTES, MAX_CHUNKS, Lane, Op, Outcome, Status

from tests.hosts.network import FIRST_UDP_PORT, JOB_ID, chunks, descriptor, job
from tests.model.lanes import join
from tests.model.rules import Packet, SwitchModel

FIRST = descriptor(0, 1).first_block_id


@dataclass
class Given:
    """One rank's contribution."""

    header: Header
    payload: bytes


@st.composite
def contributions(draw: st.DrawFn) -> list[Given]:
    """Of 2 to 5 ranks, most of which make the same call."""
    ranks = draw(st.integers(2, 5))
    op, lane = draw(st.sampled_from(list(Op))), draw(st.sampled_from(list(Lane)))
    rarely = st.sampled_from([False] * 9 + [True])
    given_ = []
    for rank in range(ranks):
        block = Block(3, op, lane, no_aging=draw(st.booleans()))
        status = draw(st.sampled_from([Status.OK] * 6 + [Status.RANGE, Status.ABORT, Status.MISMATCH]))
        if status == Status.OK and draw(st.booleans() if op == Op.COPY else st.sampled_from([True, True, False])):
            most = ((1 << lane.bits) - 1) // ranks if op == Op.SUM else (1 << lane.bits) - 1
            number = 1 + draw(rarely)
            seeds = draw(st.lists(st.integers(0, most), min_size=4, max_size=4))
            lanes = [seeds[at % 4] for at in range(CHUNK_BYTES // lane.bytes)]
            block.payload = join(lanes, lane).to_bytes(CHUNK_BYTES, "big") * number
        elif status == Status.OK:
            block.passing, block.room = draw(st.booleans()), draw(st.sampled_from([0, CHUNK_BYTES]))
        block.status = status
        if draw(rarely):
            name, value = draw(
                st.sampled_from([("gen", 4), ("dest", 1), ("call_fingerprint", 5), ("op", Op.MIN), ("lane", Lane.L8)])
            )
            setattr(block, str(name), value)
        header = Contributions(descriptor(rank, ranks, block_exp_ms=50.0)).header(FIRST, block)
        given_.append(Given(header, bytes(block.payload) or bytes(block.room)))
    return given_


def of_the_switch(given_: list[Given]) -> tuple[SwitchModel, list[int]]:
    """The model after these contributions in the order of ranks, one of which is still to come from another host; and the ranks
    that it refused, each of which has then said MISMATCH."""
    switch = SwitchModel({JOB_ID: job(descriptor(0, len(given_) + 1))})
    refused = []
    for rank, each in enumerate(given_):
        for again in (False, True):
            header = each.header._replace(status=Status.MISMATCH, lane_cnt=0, data_cnt=0) if again else each.header
            payload = () if again else chunks(each.payload)
            outcome = switch.step(Packet(rank + 1, FIRST_UDP_PORT + rank, header, payload)).outcome
            if outcome == Outcome.ACCEPTED:
                break
            assert outcome == Outcome.FINGERPRINT_MISMATCH
            refused.append(rank)
    return switch, refused


@given(contributions())
def test_a_combination_is_what_the_switch_makes_of_the_contributions(given_: list[Given]) -> None:
    switch, refused = of_the_switch(given_)
    (record,) = switch.records.values()
    headers = [each.header for each in given_]
    combined = combine_headers(headers, [HEADER_BYTES + len(each.payload) for each in given_])
    block = combined.block
    assert list(combined.refused) == refused
    assert (block.status, block.worker_cnt, block.passing) == (record.status, record.worker_cnt, record.degraded)
    if record.fingerprinted:
        assert (block.call_fingerprint, block.gen, block.dest, block.op, block.lane) == record.fingerprint
        assert block.no_aging == record.no_aging
    if record.status != Status.OK:
        assert (combined.payloads, block.data_cnt, block.room) == ((), 0, 0)
        return
    assert block.data_cnt == record.data_cnt == len(combined.payloads)
    if not combined.payloads:
        assert block.room == max(len(each.payload) for each in given_)
        return
    parts = [np.frombuffer(given_[at].payload, np.uint8).reshape(1, -1) for at in combined.payloads]
    out = np.zeros_like(parts[0])
    combine_payloads(block.op, block.lane, parts, out)
    assert chunks(out.tobytes()) == record.buffer


@given(
    st.sampled_from([op for op in Op if op.p4]),
    st.sampled_from(list(Lane)),
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(1, MAX_CHUNKS),
    st.integers(0, 2**32),
)
def test_many_blocks_at_once_are_combined_lane_by_lane(op: Op, lane: Lane, ranks: int, blocks: int, size: int, seed: int) -> None:
    """Also where places of a ring are not next to each other, and sums are modulo 2^w."""
    rng = np.random.default_rng(seed)
    places = rng.integers(0, 256, (ranks, blocks, HEADER_BYTES + size * CHUNK_BYTES + 8), np.uint8)
    parts = [rows[:, HEADER_BYTES:-8] for rows in places]
    out = np.zeros((blocks, HEADER_BYTES + size * CHUNK_BYTES), np.uint8)
    combine_payloads(op, lane, parts, out[:, HEADER_BYTES:])
    native = [part.copy().view(f">u{lane.bytes}").astype(f"u{lane.bytes}") for part in parts]
    right = native[0]
    for other in native[1:]:
        right = {
            Op.SUM: np.add,
            Op.MIN: np.minimum,
            Op.MAX: np.maximum,
            Op.AND: np.bitwise_and,
            Op.OR: np.bitwise_or,
            Op.XOR: np.bitwise_xor,
        }[op](right, other)
    assert (out[:, HEADER_BYTES:].copy().view(f">u{lane.bytes}") == right).all()
    assert not out[:, :HEADER_BYTES].any()


def test_a_second_copy_is_refused() -> None:
    copy = Header(JOB_ID, FIRST, op=Op.COPY, lane=Lane.L8, lane_cnt=256, data_cnt=1)
    combined = combine_headers([copy, copy._replace(lane_cnt=0, data_cnt=0), copy], [HEADER_BYTES + CHUNK_BYTES] * 3)
    assert combined.refused == (2,)


@pytest.mark.parametrize(
    "changes",
    [{"op": 15}, {"lane": 9}, {"status": Status.REFUSED}, {"lane_cnt": 63, "data_cnt": 1}, {"lane_cnt": 65, "data_cnt": 1}],
)
def test_what_makes_no_sense_is_refused_and_ends_the_call(changes: dict[str, int]) -> None:
    right = Header(JOB_ID, FIRST, lane_cnt=64, data_cnt=1)
    wrong = parse_header(pack_header(right._replace(**changes)))
    combined = combine_headers([right, wrong], [HEADER_BYTES + CHUNK_BYTES] * 2)
    assert combined.refused == (1,)
    assert (combined.block.status, combined.block.dest) == (Status.MISMATCH, EVERYONE)
