# SPDX-License-Identifier: MIT
"""Malformed input: dropped, counted once under the right name, no state changed; the block then completes exactly."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from netsum.frames import PREFIX_BYTES
from netsum.wire.codec import Header
from netsum.wire.schema import HEADER_BYTES, AgeOp, Hop, Lane, Outcome, Status

from tests.protocol import star
from tests.protocol.frame_model import FrameModel
from tests.protocol.frames import RIGHT, Datagram
from tests.protocol.replay import Step, compare_state, replay
from tests.protocol.targets import Target

PAIR = star.JOBS[star.PAIR]
GOOD = Header(star.PAIR, PAIR.first_block_id, gen_id=5, lane_cnt=128, lane=Lane.L32, data_cnt=1)
PAYLOAD = (3, 1 << 2040)


def datagram(member: int = 1, **fields: int) -> Datagram:
    """A contribution of two chunks with some header fields changed."""
    return star.contribution(star.PAIR, PAIR.members[member], GOOD._replace(**fields), PAYLOAD)


def right_udp_checksum(good: Datagram) -> int:
    return Datagram.parse(good.but(udp_checksum=RIGHT).to_bytes()).udp_checksum


BAD: dict[str, tuple[Outcome, Callable[[Datagram], bytes]]] = {
    "payload cut short": (Outcome.MALFORMED, lambda d: d.to_bytes()[:-1]),
    "payload missing": (Outcome.MALFORMED, lambda d: d.to_bytes()[: PREFIX_BYTES + HEADER_BYTES]),
    "body shorter than lane_cnt says": (Outcome.MALFORMED, lambda d: d.but(body=d.body[:-256]).to_bytes()),
    "body longer than lane_cnt says": (Outcome.MALFORMED, lambda d: d.but(body=d.body + bytes(256)).to_bytes()),
    "not whole chunks": (Outcome.MALFORMED, lambda d: d.but(body=d.body + bytes(4)).to_bytes()),
    "17 chunks": (Outcome.MALFORMED, lambda d: d.but(body=d.body + bytes(15 * 256)).to_bytes()),
    "UDP length beyond IPv4's": (Outcome.MALFORMED, lambda d: d.but(udp_length=24 + 768).to_bytes()),
    "UDP length below its header": (Outcome.MALFORMED, lambda d: d.but(udp_length=7).to_bytes()),
    "IPv4 length": (Outcome.MALFORMED, lambda d: d.but(total_length=60).to_bytes()),
    "IPv4 checksum": (Outcome.CHECKSUM, lambda d: d.but(ip_checksum=0x1234).to_bytes()),
    "UDP checksum": (Outcome.CHECKSUM, lambda d: d.but(udp_checksum=right_udp_checksum(d) ^ 1).to_bytes()),
    "payload changed under a UDP checksum": (
        Outcome.CHECKSUM,
        lambda d: d.but(udp_checksum=right_udp_checksum(d), body=d.body[:-1] + b"\1").to_bytes(),
    ),
}
FIELDS: dict[str, dict[str, int]] = {
    "version": {"version": 3},
    "reserved": {"reserved": 1},
    "reserved_flags": {"reserved_flags": 1},
    "reserved_cnt": {"reserved_cnt": 8},
    "version 0": {"version": 0},
    "lane": {"lane": 4},
    "lane 15": {"lane": 15},
    "lane disagrees": {"lane": Lane.L64},
    "lane_cnt": {"lane_cnt": 127},
    "lane_cnt without payload's size": {"lane_cnt": 0xFFFF},
    "lane_cnt whose bytes wrap": {"lane_cnt": 0x2040, "lane": Lane.L64},
    "age_op": {"age_op": 1},
    "early, which only switches say": {"early": 1},
    "key": {"key": 1},
    "give_way, which only results say": {"backoff": 1},
    "a hop that there is not": {"hop": 3},
    "a result from a member": {"hop": Hop.DOWN},
    "degraded, and every worker there": {"degraded": 1},
    "a worker short, and not degraded": {"worker_cnt": 0, "data_cnt": 0, "lane_cnt": 0},
    "a pass with a payload": {"worker_cnt": 0, "degraded": 1},
    "a pass that counts a payload": {"worker_cnt": 0, "degraded": 1, "data_cnt": 0},
    "firm and degraded": {"no_aging": 1, "degraded": 1},
    "aged out": {"age_op": AgeOp.AGED, "degraded": 1},
    "status of an answer": {"status": Status.STALE},
    "RANGE with payload": {"status": Status.RANGE},
    "status 4": {"status": 4},
    "worker_cnt 0": {"worker_cnt": 0, "data_cnt": 0},
    "worker_cnt beyond the member's": {"worker_cnt": 2},
    "data_cnt beyond worker_cnt": {"data_cnt": 2},
    "data_cnt without payload": {"lane_cnt": 0},
    "payload without data_cnt": {"data_cnt": 0},
}


def bad_frames() -> list[tuple[str, Outcome, bytes]]:
    """Every malformed frame with its name and outcome."""
    frames = [(name, outcome, make(datagram())) for name, (outcome, make) in BAD.items()]
    return frames + [(name, Outcome.MALFORMED, datagram(**fields).to_bytes()) for name, fields in FIELDS.items()]


def test_malformed(target: Target) -> None:
    model = FrameModel()
    port = PAIR.members[0].port
    replay([Step(port, datagram(0).to_bytes())], target, model)
    for count, (name, outcome, frame) in enumerate(bad_frames(), 1):
        before = model.switch.outcomes.get((star.PAIR, outcome), 0)
        replay([Step(port, frame, name)], target, model)
        assert model.switch.outcomes[star.PAIR, outcome] == before + 1, name
        assert sum(model.switch.outcomes.values()) == count + 1, name
    sent = target.exchange(port, datagram(1).to_bytes())
    assert sorted(sent) == sorted(model.process(port, datagram(1).to_bytes()))
    assert len(sent) == 2
    for _, frame in sent:
        assert Datagram.parse(frame).payload == b"".join((2 * chunk).to_bytes(256, "big") for chunk in PAYLOAD)
    compare_state(model, target)


@pytest.mark.parametrize("chunks", [0, 1, 2, 7, 15, 16])
def test_a_right_udp_checksum_is_accepted(target: Target, chunks: int) -> None:
    """Correct checksums pass, also over an odd number of bytes, and the one that stands for zero."""
    model = FrameModel()
    member = PAIR.members[0]
    header = Header(star.PAIR, PAIR.first_block_id, gen_id=5, lane_cnt=chunks * 64, data_cnt=int(chunks > 0))
    good = star.contribution(star.PAIR, member, header, tuple(range(1, chunks + 1))).but(udp_checksum=RIGHT)
    replay([Step(member.port, good.to_bytes())], target, model)
    assert model.switch.outcomes == {(star.PAIR, Outcome.ACCEPTED): 1}


def test_unknown_ops_are_refused_and_told(target: Target) -> None:
    model = replay([Step(4, datagram(0, op=op).to_bytes(), f"op {op}") for op in range(7, 16)], target)
    assert model.switch.outcomes == {(star.PAIR, Outcome.UNSUPPORTED): 9}
    assert model.switch.records == {}
