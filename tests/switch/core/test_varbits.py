# SPDX-License-Identifier: MIT
"""Headers with a varbit field."""

from __future__ import annotations

import json
import random
import struct

import pytest
from netsum_switch.pipeline import load_pipeline

from tests.switch.core.conftest import StartProgram
from tests.switch.core.switches import Switch, ethernet, ones_complement_sum
from tests.switch.harness.controller import PROGRAMS

PLAIN, COPY, TAKE, REMOVE = range(4)
PAYLOAD = b"payload"


def option(kind: int, data: bytes, behind: int = 0xBEEF) -> bytes:
    return struct.pack(">BB", kind, 8 * len(data)) + data + struct.pack(">H", behind)


def run(device: Switch, packet: bytes) -> tuple[int, int, int, int, bytes]:
    """Checksum, error, equal, length in egress, and what follows the result header."""
    [(_, out)] = device.run(1, ethernet() + packet)
    return (*struct.unpack(">HBBH", out[14:20]), out[20:])


@pytest.mark.parametrize(("one", "two"), [(b"", b""), (b"abc", b""), (b"", b"abcdefgh"), (b"abcdefgh", b"x")])
def test_extracted_and_sent(switch: StartProgram, one: bytes, two: bytes) -> None:
    packet = option(PLAIN, one) + option(PLAIN, two) + PAYLOAD
    checksum, error, equal, size, out = run(switch("varbits"), packet)
    assert (error, equal, out) == (0, int(one == two), packet)
    assert size == 14 + 6 + len(packet)
    assert checksum == ones_complement_sum(option(PLAIN, one))


def test_a_copy_has_the_length_too(switch: StartProgram) -> None:
    first, second = option(COPY, b"abc"), option(PLAIN, b"")
    assert run(switch("varbits"), first + second + PAYLOAD)[4] == first + second + option(COPY, b"abc", 0x1234)[:5] + (
        struct.pack(">H", 0x1234) + PAYLOAD
    )


def test_a_field_takes_the_length_of_another(switch: StartProgram) -> None:
    checksum, _, _, _, out = run(switch("varbits"), option(TAKE, b"abc") + option(PLAIN, b"12345") + PAYLOAD)
    taken = struct.pack(">BB", TAKE, 24) + b"12345" + struct.pack(">H", 0xBEEF)
    assert out == taken + option(PLAIN, b"12345") + PAYLOAD
    assert checksum == ones_complement_sum(taken)


def test_removed(switch: StartProgram) -> None:
    second = option(PLAIN, b"12345")
    checksum, _, _, size, out = run(switch("varbits"), option(REMOVE, b"abc") + second + PAYLOAD)
    assert (out, size) == (second + PAYLOAD, 14 + 6 + len(second + PAYLOAD))
    assert checksum == ones_complement_sum(b"")


def test_a_calculation_need_not_be_of_whole_bytes_before_the_varbit() -> None:
    document = json.loads((PROGRAMS / "varbits.json").read_text())
    for calculation in document["calculations"]:
        first, last = ({"type": "hexstr", "value": value, "bitwidth": 4} for value in ("0xa", "0x5"))
        calculation["input"] = [first, *calculation["input"], last]
    pipeline = load_pipeline(json.dumps(document))
    for data in (b"", b"abc", b"abcdefgh"):
        [(_, out)] = pipeline.process(1, ethernet() + option(PLAIN, data) + option(PLAIN, b"") + PAYLOAD)
        whole = option(PLAIN, data)
        moved = (0xA << 8 * len(whole) + 4 | int.from_bytes(whole, "big") << 4 | 0x5).to_bytes(len(whole) + 1, "big")
        assert out[14:16] == struct.pack(">H", ones_complement_sum(moved))


@pytest.mark.parametrize(
    ("packet", "error"),
    [
        pytest.param(struct.pack(">BB", 0, 12) + bytes(30), 6, id="not whole bytes"),
        pytest.param(struct.pack(">BB", 0, 72) + bytes(30), 4, id="longer than the field can be"),
        pytest.param(struct.pack(">BB", 0, 64) + bytes(5), 1, id="longer than the packet"),
    ],
)
def test_lengths_that_do_not_fit(switch: StartProgram, packet: bytes, error: int) -> None:
    _, found, _, _, out = run(switch("varbits"), packet)
    assert (found, out) == (error, packet)


@pytest.mark.parametrize(("before", "most"), [(0, 64), (3, 64), (8, 12_000), (3, 12_000), (9003, 64)])
def test_a_varbit_may_begin_anywhere(before: int, most: int) -> None:
    """Fields of ``before`` bits are before the varbit, and the rest of their last byte is behind it."""
    document = json.loads((PROGRAMS / "varbits.json").read_text())
    kind = next(each for each in document["header_types"] if each["name"] == "option_t")
    kind["fields"] = [
        ["kind", 8, False], ["length", 8, False], *([["odd", before, False]] if before else []), ["data", "*"],
        *([["rest", -before % 8, False]] if before % 8 else []), ["behind", 16, False],
    ]  # fmt: skip
    kind["max_length"] = (8 + 8 + before + most + -before % 8 + 16) // 8
    pipeline = load_pipeline(json.dumps(document))

    def option(number: int, data: bytes, chance: random.Random) -> bytes:
        bits = number << 8 | 8 * len(data)
        bits = bits << before | chance.getrandbits(before + 1) >> 1
        bits = bits << 8 * len(data) | int.from_bytes(data, "big")
        bits = bits << -before % 8 | chance.getrandbits(8) >> 8 - -before % 8
        return (bits << 16 | 0xBEEF).to_bytes((32 + before + 7) // 8 + len(data), "big")

    for seed in range(20):
        chance = random.Random(seed)
        one, two = (chance.randbytes(chance.choice([0, 1, 3, 8 if most == 64 else 31])) for _ in range(2))
        first, second = option(PLAIN, one, chance), option(PLAIN, two, chance)
        [(_, out)] = pipeline.process(1, ethernet() + first + second + PAYLOAD)
        assert out[20:] == first + second + PAYLOAD
        assert out[17] == (one == two)
        copied = option(COPY, one, chance)
        [(_, out)] = pipeline.process(1, ethernet() + copied + second)
        assert out[20:] == copied + second + copied[:-2] + b"\x12\x34"
        taken = option(TAKE, one, chance)
        [(_, out)] = pipeline.process(1, ethernet() + taken + option(PLAIN, two, chance))
        assert len(out) == 20 + len(taken) - len(one) + len(two) + len(second)
