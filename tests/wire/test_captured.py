# SPDX-License-Identifier: MIT
"""Packets captured on a switch's wires: codec, scapy and the Wireshark dissector see the same, field by field.

On the program's pipeline alone and on both running switches.
"""

from __future__ import annotations

import random

import pytest
from netsum.packets import IP, UDP, Ether, Lanes, Netsum, Room, dissect
from netsum.wire.codec import Header, parse_header
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, HEADER_FIELDS, Lane, Op, Status

from tests.model.rules import Payload
from tests.protocol import star
from tests.protocol.conftest import pytest_generate_tests, running, target  # noqa: F401 - fixtures, and their targets
from tests.protocol.targets import Target
from tests.wire.conftest import Dissect

pytestmark = pytest.mark.tshark
NAMES = [field.name for field in HEADER_FIELDS]
BELOW = [
    "eth.src", "eth.dst", "ip.src", "ip.dst", "ip.checksum.status", "ip.len", "udp.srcport", "udp.dstport", "udp.length",
]  # fmt: skip
JOB = star.JOBS[star.TRIO]
GOOD = "1"


def traffic(rng: random.Random) -> list[tuple[int, bytes]]:
    """(port, frame) of blocks of every kind, with a repetition, an untrusted sender and a block long gone."""
    sent = []

    def say(member: int, block: int, payload: Payload = (), **fields: int) -> None:
        header = Header(star.TRIO, (JOB.first_block_id + block) & 0xFFFFFFFF, gen_id=block)._replace(**fields)
        frame = star.contribution(star.TRIO, JOB.members[member], header, payload).to_bytes()
        sent.append((JOB.members[member].port, frame))

    kinds = [(op, lane, chunks) for op in (Op.SUM, Op.MAX) for lane in Lane for chunks in (1, 3, 16)]
    for block, (op, lane, chunks) in enumerate(kinds):
        for member in rng.sample(range(3), 3):
            payload = tuple(rng.getrandbits(2048) for _ in range(chunks))
            say(member, block, payload, op=op, lane=lane, lane_cnt=chunks * CHUNK_BYTES >> lane, data_cnt=1)
    last = len(kinds) - 1
    say(0, last, (0,) * 16, gen_id=last)  # repeated, as an empty one with room: the result again
    say(0, 0)  # stale
    say(1, last + 40)  # outside the window: refused
    for member in range(3):
        say(member, last + 1, status=Status.ABORT if member == 1 else Status.OK)
    return sent


def capture(switch: Target) -> list[bytes]:
    """The frames in both directions."""
    frames = []
    for port, frame in traffic(random.Random(3)):
        frames.append(frame)
        frames += [out for _, out in switch.exchange(port, frame)]
    return frames


def below_of(frame: bytes) -> list[str]:
    """The layers below, as scapy sees them."""
    packet = dissect(frame)
    ethernet, ip, udp = packet[Ether], packet[IP], packet[UDP]
    assert bytes(packet) == frame
    return [ethernet.src, ethernet.dst, ip.src, ip.dst, GOOD, str(ip.len), str(udp.sport), str(udp.dport), str(udp.len)]


def test_captured_frames_read_the_same_three_ways(target: Target, wireshark: Dissect) -> None:  # noqa: F811
    frames = capture(target)
    lanes = [f"netsum.lane{lane.bits}" for lane in Lane]
    rows = wireshark(frames, [*BELOW, *(f"netsum.{name}" for name in NAMES), *lanes, "netsum.room"])
    kinds = set()
    for frame, row in zip(frames, rows, strict=True):
        header, payload = parse_header(frame[42:]), frame[42 + HEADER_BYTES :]
        kinds.add((frame[34:36] == b"\x2e\xe0", Status(header.status), bool(payload)))
        assert row[: len(BELOW)] == below_of(frame)
        layer = dissect(frame)[Netsum]
        shown = dict(zip(NAMES, map(int, row[len(BELOW) : len(BELOW) + len(NAMES)]), strict=True))
        assert shown == {name: layer.getfieldval(name) for name in NAMES}
        assert header == layer.header()
        values = dict(zip([*lanes, "room"], row[len(BELOW) + len(NAMES) :], strict=True))
        room = values.pop("room").replace(":", "")
        if header.lane_cnt:
            assert isinstance(layer.payload, Lanes)
            numbers = values.pop(f"netsum.lane{Lane(header.lane).bits}")
            assert numbers == ",".join(map(str, layer.payload.values))
        else:
            assert room == payload.hex() == (layer[Room].load.hex() if payload else "")
        assert not any(values.values())
    # The capture has what it should have: results, with payload and without, and both answers.
    results = {(status, payload) for from_switch, status, payload in kinds if from_switch}
    assert results == {(Status.OK, True), (Status.ABORT, False), (Status.STALE, False), (Status.REFUSED, False)}
