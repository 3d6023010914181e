# SPDX-License-Identifier: MIT
"""Checksums, hashes, random numbers, and what the parser does with packets that do not fit."""

from __future__ import annotations

import json
import struct
import zlib
from typing import NamedTuple

import pytest

from tests.switch.core.conftest import StartProgram
from tests.switch.core.switches import Switch, crc16, ethernet, ones_complement_sum

RESULT = struct.Struct(">BBHHIHHIHBIH")
SRC, DST = 0x0A000001, 0x0A0000FE
UDP, INNER, ADVANCED, NOTHING = 17, 18, 19, 99
PAYLOAD = b"payload of an odd length!"


class Result(NamedTuple):
    checksum_error: int
    parser_error: int
    csum: int
    crc: int
    crc32: int
    exclusive: int
    ccitt: int
    same: int
    bounded: int
    random: int
    next: int
    with_payload: int


def ipv4(protocol: int, size: int, *, first: int = 0x45, fragment: int = 0, tos: int = 0, wrong: int = 0) -> bytes:
    def header(checksum: int) -> bytes:
        fields = (first, tos, 20 + size, 7, fragment, 64, protocol, checksum, SRC, DST)
        return struct.pack(">BBHHHBBHII", *fields)

    return header(ones_complement_sum(header(0)) ^ wrong)


def udp(payload: bytes, dst_port: int = 9, wrong: int = 0) -> bytes:
    """A UDP header whose checksum is right over its fields and the payload."""
    ports = struct.pack(">HHH", 5, dst_port, 8 + len(payload))
    pseudo = struct.pack(">IIBBH", SRC, DST, 0, UDP, 8 + len(payload))
    return ports + struct.pack(">H", ones_complement_sum(pseudo + ports + payload) ^ wrong)


def run(device: Switch, packet: bytes) -> tuple[Result, bytes]:
    [(port, out)] = device.run(1, ethernet() + packet)
    assert (port, out[:14]) == (1, ethernet())
    return Result(*RESULT.unpack(out[14 : 14 + RESULT.size])), out[14 + RESULT.size :]


def test_checksums_are_verified_and_updated(switch: StartProgram) -> None:
    result, out = run(switch("calculations"), ipv4(UDP, 8 + len(PAYLOAD)) + udp(PAYLOAD) + PAYLOAD)
    assert (result.checksum_error, result.parser_error) == (0, 0)
    assert (out[8], ones_complement_sum(out[:20])) == (63, 0)
    assert out[20:] == udp(PAYLOAD) + PAYLOAD
    assert result.next == int.from_bytes(ipv4(UDP, 8 + len(PAYLOAD))[:4], "big")


@pytest.mark.parametrize(("wrong_ip", "wrong_udp"), [(1, 0), (0, 0x100), (0x8000, 1)])
def test_wrong_checksums(switch: StartProgram, wrong_ip: int, wrong_udp: int) -> None:
    packet = ipv4(UDP, 8 + len(PAYLOAD), wrong=wrong_ip) + udp(PAYLOAD, wrong=wrong_udp) + PAYLOAD
    result, out = run(switch("calculations"), packet)
    assert result.checksum_error == 1
    assert ones_complement_sum(out[:20]) == 0


def test_the_payload_of_a_checksum_is_what_the_parser_left(switch: StartProgram) -> None:
    """Headers after those that the checksum names do not count, contrary to BMv2's documentation."""
    whole = struct.pack(">I", 0x01020304) + PAYLOAD
    device = switch("calculations")
    assert run(device, ipv4(UDP, 8 + len(whole)) + udp(whole, 7) + whole)[0].checksum_error == 1
    inner_left_out = udp(PAYLOAD, 7)[:6]
    pseudo = struct.pack(">IIBBH", SRC, DST, 0, UDP, 8 + len(PAYLOAD))
    checksum = struct.pack(">H", ones_complement_sum(pseudo + inner_left_out + PAYLOAD))
    result, _ = run(device, ipv4(UDP, 8 + len(whole)) + inner_left_out + checksum + whole)
    assert result.checksum_error == 0


def test_a_checksum_is_left_alone_when_its_condition_does_not_hold(switch: StartProgram) -> None:
    _, out = run(switch("calculations"), ipv4(ADVANCED, 0, tos=0xFF, fragment=0x20) + PAYLOAD)
    assert out[10:12] == ipv4(ADVANCED, 0, tos=0xFF, fragment=0x20)[10:12]


def test_a_checksum_over_payload_and_an_invalid_header(switch: StartProgram) -> None:
    device = switch("calculations")
    result, _ = run(device, ipv4(ADVANCED, 0, fragment=0x20) + PAYLOAD)
    assert result.with_payload == ones_complement_sum(struct.pack(">I", SRC) + PAYLOAD)
    result, _ = run(device, ipv4(UDP, 8 + len(PAYLOAD)) + udp(PAYLOAD) + PAYLOAD)
    assert result.with_payload == ones_complement_sum(struct.pack(">IH", SRC, 8 + len(PAYLOAD)) + PAYLOAD)


def bits(*parts: tuple[int, int]) -> bytes:
    """(value, width) end to end, the last byte filled with zeros."""
    number = size = 0
    for value, width in parts:
        number, size = number << width | value, size + width
    return (number << (-size & 7)).to_bytes((size + 7) // 8, "big")


def test_hashes(switch: StartProgram) -> None:
    inner = struct.pack(">I", 0xDEADBEEF)
    result, _ = run(switch("calculations"), ipv4(INNER, 4) + inner + PAYLOAD)
    addresses = struct.pack(">II", SRC, DST)
    assert result.csum == ones_complement_sum(addresses)
    assert result.crc == crc16(bits((SRC, 32), (DST, 32), (0x155, 9), (0xDEADBEEF, 32)))
    assert result.crc32 == zlib.crc32(bits((SRC, 32), (DST, 32), (0x155, 9)))
    assert result.exclusive == (SRC >> 16) ^ (SRC & 0xFFFF) ^ (DST >> 16) ^ (DST & 0xFFFF) ^ 64 << 8
    assert result.ccitt == crc16(b"\x00\x07\x40")
    assert result.same == DST
    assert result.bounded == zlib.crc32(addresses) % 10 + 1000


PRIMES = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261)


def xxh64(data: bytes) -> int:
    """XXH64 with the seed 0, after its specification."""
    first, second, third, fourth, fifth = PRIMES

    def rotated(value: int, distance: int) -> int:
        value %= 1 << 64
        return (value << distance | value >> 64 - distance) % (1 << 64)

    def mixed(lane: int, word: bytes) -> int:
        return rotated(lane + int.from_bytes(word, "little") * second, 31) * first % (1 << 64)

    total, rest = fifth, data
    if len(data) >= 32:
        lanes = [first + second, second, 0, -first]
        while len(rest) >= 32:
            lanes = [mixed(lane, rest[8 * at : 8 * at + 8]) for at, lane in enumerate(lanes)]
            rest = rest[32:]
        total = sum(rotated(lane, distance) for lane, distance in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            total = (total ^ mixed(0, lane.to_bytes(8, "little"))) * first + fourth
    total += len(data)
    while len(rest) >= 8:
        total, rest = rotated(total ^ mixed(0, rest[:8]), 27) * first + fourth, rest[8:]
    if len(rest) >= 4:
        total, rest = rotated(total ^ int.from_bytes(rest[:4], "little") * first, 23) * second + third, rest[4:]
    for byte in rest:
        total = rotated(total ^ byte * fifth, 11) * first
    total %= 1 << 64
    total = (total ^ total >> 33) * second % (1 << 64)
    total = (total ^ total >> 29) * third % (1 << 64)
    return total ^ total >> 32


def test_the_model_of_xxh64() -> None:
    assert xxh64(b"") == 0xEF46DB3751D8E999  # the value that xxHash's authors give


@pytest.mark.parametrize("algorithm", ["xxh64", "bmv2_hash"])
@pytest.mark.parametrize("times", [1, 2, 5, 13])
def test_xxh64(switch: StartProgram, algorithm: str, times: int) -> None:
    """Over 8 bytes, and 10 bytes, many times; of the oldest programs."""

    def form(text: bytes) -> bytes:
        document = json.loads(text)
        for calculation in document["calculations"]:
            if calculation["algo"] == "crc32":
                calculation |= {"algo": algorithm, "input": calculation["input"] * times}
        return json.dumps(document).encode()

    result, _ = run(switch("calculations", form), ipv4(INNER, 4) + struct.pack(">I", 0xDEADBEEF) + PAYLOAD)
    assert result.bounded == xxh64(struct.pack(">II", SRC, DST) * times) % 10 + 1000
    assert result.crc32 == xxh64(bits(*[(SRC, 32), (DST, 32), (0x155, 9)] * times)) & 0xFFFFFFFF


def test_random_numbers_are_in_their_range(switch: StartProgram) -> None:
    device = switch("calculations")
    seen = {run(device, ipv4(ADVANCED, 0, fragment=0x20) + PAYLOAD)[0].random for _ in range(60)}
    assert seen <= set(range(5, 10))
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("packet", "error"),
    [
        pytest.param(ipv4(ADVANCED, 0, fragment=0x20) + PAYLOAD, 0, id="good"),
        pytest.param(ipv4(ADVANCED, 0, fragment=0x3F, first=0x46) + PAYLOAD, 0, id="options are skipped"),
        pytest.param(ipv4(NOTHING, 0) + PAYLOAD, 0, id="no transition matches: no error in BMv2"),
        pytest.param(ipv4(ADVANCED, 0, fragment=0x1F) + PAYLOAD, 0, id="none under a mask"),
        pytest.param(ipv4(UDP, 0, fragment=1) + PAYLOAD, 0, id="none in the second key"),
        pytest.param(ipv4(UDP, 0, first=0x65) + PAYLOAD, 4, id="verify"),
        pytest.param(ipv4(INNER, 0)[:15], 1, id="PacketTooShort in IPv4"),
        pytest.param(ipv4(INNER, 0) + b"abc", 1, id="PacketTooShort behind IPv4"),
        pytest.param(ipv4(INNER, 0, first=0x4F) + PAYLOAD, 1, id="PacketTooShort in advance"),
    ],
)
def test_parser_errors(switch: StartProgram, packet: bytes, error: int) -> None:
    result, out = run(switch("calculations"), packet)
    assert result.parser_error == error
    # What was not parsed leaves as it came; skipped bytes are gone.
    if packet[0] == 0x46:
        assert out[20:] == PAYLOAD[4:]
    elif len(packet) >= 20:
        assert out[20:] == packet[20:]
    else:
        assert out == packet
