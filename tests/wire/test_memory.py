# SPDX-License-Identifier: MIT
"""Packets of memory in the network: codec, numpy, scapy and Wireshark against the schema's bits; payloads without zeros."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.packets import Memory, dissect
from netsum.wire.codec import with_zeros, without_zeros
from netsum.wire.memory import (
    MAX_PAYLOAD,
    MAX_SEGMENTS,
    MEMORY_DTYPE,
    MEMORY_FIELDS,
    MEMORY_HEADER_BYTES,
    MEMORY_PORT,
    MEMORY_VERSION,
    Flag,
    Instruction,
    LaneType,
    MemoryHeader,
    MemoryStatus,
    pack_memory,
    parse_memory,
    split_memory,
)
from netsum.wire.schema import positions

from tests.wire.conftest import Dissect
from tests.wire.strategies import memory_headers, paths, udp_frame


def bits_of(header: MemoryHeader) -> str:
    values = {**header._asdict(), "reserved": 0}
    return "".join(f"{values[field.name]:0{field.bits}b}" for field in MEMORY_FIELDS)


@given(memory_headers, paths, st.binary(max_size=64))
def test_a_packet_is_the_schemas_bits_and_comes_apart_again(header: MemoryHeader, path: list[int], payload: bytes) -> None:
    packet = pack_memory(header, path) + payload
    header = header._replace(segments=len(path))
    assert packet[:56] == int(bits_of(header), 2).to_bytes(56, "big")
    assert parse_memory(packet) == header
    segments, rest = split_memory(header, memoryview(packet))
    assert (list(segments), bytes(rest)) == (path, payload)


@given(memory_headers)
def test_numpy_sees_the_same_fields(header: MemoryHeader) -> None:
    (row,) = np.frombuffer(pack_memory(header), MEMORY_DTYPE)
    for field, _ in positions(MEMORY_FIELDS):
        if field.name not in ("version", "reserved"):
            assert int(row[field.name]) == getattr(header, field.name)
    assert int(row["version"]) >> 4 == header.version


@given(memory_headers, paths, st.binary(max_size=64))
def test_scapy_reads_what_the_codec_writes_and_writes_it_again(header: MemoryHeader, path: list[int], payload: bytes) -> None:
    packet = pack_memory(header, path) + payload
    layer = Memory(packet)
    assert layer.header() == header._replace(segments=len(path))
    assert layer.path == path
    fields = {**header._asdict(), "segments": None}
    built = Memory(**fields, path=path)
    assert bytes(built / payload if payload else built) == packet


def test_scapy_fills_in_counts_and_knows_the_port() -> None:
    layer = Memory(bytes(Memory(instruction="WRITE", flags="REPEAT", path=[1, 2]) / b"12345678"))
    assert (layer.segments, layer.length, layer.header().flags) == (2, 8, Flag.REPEAT)
    packet = dissect(udp_frame(bytes(layer), source_port=5, destination_port=MEMORY_PORT))
    assert packet[Memory].sprintf("%instruction% %flags% %lane%") == "WRITE REPEAT BYTES"


@given(st.binary(max_size=MEMORY_HEADER_BYTES - 1))
def test_a_short_header_is_an_error_that_says_so(data: bytes) -> None:
    with pytest.raises(ValueError, match=f"56 bytes, this packet has {len(data)}"):
        parse_memory(data)


@pytest.mark.parametrize(("segments", "room"), [(1, 7), (MAX_SEGMENTS + 1, 8 * MAX_SEGMENTS + 8), (255, 0)])
def test_segments_that_are_not_there_are_an_error(segments: int, room: int) -> None:
    header = MemoryHeader(Instruction.NOP, segments=segments)
    packet = memoryview(pack_memory(header) + bytes(room))
    with pytest.raises(ValueError, match=f"cannot hold {segments} segments"):
        split_memory(header, packet)


@pytest.mark.parametrize("lane", list(LaneType))
def test_lane_types_are_numpys(lane: LaneType) -> None:
    assert np.dtype(lane.dtype).itemsize == lane.bytes
    assert lane == LaneType.BYTES or np.dtype(lane.dtype).name.upper() == lane.name


@given(st.integers(1, 64), st.sets(st.integers(0, 63)), st.randoms(use_true_random=False))
def test_zeros_are_left_out_if_there_are_more_than_half(words: int, there: set[int], rng: random.Random) -> None:
    payload = b"".join(rng.randbytes(3) + b"\1" if word in there else bytes(4) for word in range(words))
    kept = sum(word < words for word in there)
    short = without_zeros(payload)
    if 2 * kept >= words or words < 16:
        assert short is None
    else:
        assert short is not None
        assert len(short) == -(-words // 32) * 4 + 4 * kept
        assert with_zeros(short, len(payload)).tobytes() == payload


@given(st.binary(max_size=80), st.integers(0, MAX_PAYLOAD))
def test_what_stands_for_nothing_is_an_error(data: bytes, length: int) -> None:
    try:
        whole = with_zeros(data, length)
    except ValueError as error:
        assert "without zeros" in str(error)  # noqa: PT017 - most data are wrong, some are right
    else:
        assert len(whole) == length
        there = np.count_nonzero(whole.view(np.uint32)) if length else 0
        assert len(data) >= 4 * there


@pytest.mark.tshark
def test_wireshark_sees_every_field(wireshark: Dissect) -> None:
    rng = random.Random(3)
    names = [field.name for field in MEMORY_FIELDS]
    packets = []
    for _ in range(60):
        values = {field.name: rng.getrandbits(field.bits) for field in MEMORY_FIELDS if field.name != "reserved"}
        path = [rng.getrandbits(64) for _ in range(rng.randint(0, MAX_SEGMENTS))]
        header = MemoryHeader(**{**values, "version": MEMORY_VERSION, "segments": len(path)})
        packets.append((header, path, rng.randbytes(rng.randint(0, 40))))
    frames = [udp_frame(pack_memory(header, path) + payload, destination_port=MEMORY_PORT) for header, path, payload in packets]
    flags = [f"netsum_memory.flags.{flag.name}".lower() for flag in Flag]
    fields = [*(f"netsum_memory.{name}" for name in names), "netsum_memory.segment", "netsum_memory.payload", *flags]
    for (header, path, payload), row in zip(packets, wireshark(frames, fields), strict=True):
        shown = dict(zip(fields, row, strict=True))
        expected = {**header._asdict(), "reserved": 0}
        assert {name: int(shown[f"netsum_memory.{name}"]) for name in names} == expected
        assert shown["netsum_memory.segment"] == ",".join(f"{segment:#018x}" for segment in path)
        assert shown["netsum_memory.payload"].replace(":", "") == payload.hex()
        bits = [shown[name].lower() in ("1", "true") for name in flags]
        assert bits == [bool(header.flags & flag) for flag in Flag]


@pytest.mark.tshark
def test_wireshark_tells_in_a_line_what_a_reply_says(wireshark: Dissect) -> None:
    header = MemoryHeader(Instruction.READ, address=0x10000, length=64, client=7, sequence=9)
    refused = pack_memory(header._replace(status=MemoryStatus.BOUNDS, flags=Flag.REPLY))
    frames = [udp_frame(refused, source_port=MEMORY_PORT, destination_port=5), udp_frame(b"x" * 60, source_port=12001)]
    rows = wireshark(frames, ["_ws.col.Protocol", "_ws.col.Info"])
    line = "READ BOUNDS 64 at 0x0000000000010000, client 0000000000000007 sequence 9"
    assert rows[0] == ["netsum memory", line]
    assert rows[1][0] == "UDP"
