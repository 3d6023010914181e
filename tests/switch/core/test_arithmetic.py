# SPDX-License-Identifier: MIT
"""Every operator, against Python's integers."""

from __future__ import annotations

import random

import pytest

from tests.switch.core.conftest import StartProgram
from tests.switch.core.switches import ethernet

# (name, bits) in the order of the packet.
OPERANDS = {"op": 8, "a": 32, "b": 32, "small": 8, "odd": 13, "rest": 3, "wide": 2048, "other": 2048}
RESULTS = {
    "sum": 32, "difference": 32, "product": 32, "left": 32, "right": 32, "bits": 32, "joined": 64, "slice": 16,
    "negated": 8, "saturated_sum": 8, "saturated_difference": 8, "signed_sum": 8, "signed_saturated": 8,
    "signed_right": 8, "signed_less": 8, "less": 8, "odd": 13, "chosen": 3, "wide": 2048, "wide_left": 1024,
}  # fmt: skip
SOURCE = 0x0123456789AB


def pack(widths: dict[str, int], values: dict[str, int]) -> bytes:
    bits = 0
    for name, width in widths.items():
        bits = bits << width | values[name] & (1 << width) - 1
    return bits.to_bytes(sum(widths.values()) // 8, "big")


def unpack(widths: dict[str, int], data: bytes) -> dict[str, int]:
    bits, values = int.from_bytes(data, "big"), {}
    for name in reversed(widths):
        values[name] = bits & (1 << widths[name]) - 1
        bits >>= widths[name]
    return values


def signed(value: int) -> int:
    return (value & 0xFF ^ 0x80) - 0x80


def expected(v: dict[str, int]) -> dict[str, int]:
    a, b = v["a"], v["b"]
    low_a, low_b, top = a & 0xFF, b & 0xFF, (1 << 2048) - 1
    return {
        "sum": a + b, "difference": a - b, "product": a * b, "left": a << v["small"], "right": a >> v["small"],
        "bits": (a & b | 0x00FF0000) ^ ~b, "joined": a << 32 | b, "slice": a >> 8, "negated": -v["small"],
        "saturated_sum": min(255, low_a + low_b), "saturated_difference": max(0, low_a - low_b),
        "signed_sum": low_a + low_b,
        "signed_saturated": min(127, max(-128, signed(a) + signed(b))), "signed_right": signed(a) >> 2,
        "signed_less": int(signed(a) < signed(b)), "less": int(a < b and a != 0), "odd": v["odd"] - 1,
        "chosen": v["rest"] if v["op"] == 1 else v["odd"] >> 10, "wide": v["wide"] + v["other"] & top,
        "wide_left": v["wide"] << v["small"],
    }  # fmt: skip


def edge(width: int, chance: random.Random) -> int:
    return chance.choice([0, 1, (1 << width) - 1, 1 << width - 1, chance.getrandbits(width), chance.getrandbits(width)])


@pytest.mark.parametrize("seed", range(12))
def test_operators(switch: StartProgram, seed: int) -> None:
    chance = random.Random(seed)
    device = switch("arithmetic")
    for _ in range(20):
        operands = {name: edge(width, chance) for name, width in OPERANDS.items()}
        operands["op"] &= 1
        [(port, out)] = device.run(1, ethernet(src=SOURCE) + pack(OPERANDS, operands) + b"rest")
        assert port == 1
        assert out[:14] == ethernet(src=SOURCE)
        want = expected(operands)
        size = sum(RESULTS.values()) // 8
        got = unpack(RESULTS, out[14 : 14 + size])
        assert got == unpack(RESULTS, pack(RESULTS, want))
        # Writes to slices, and everything that was not written comes back as it was.
        operands["a"] = operands["a"] & ~0xFF00 | operands["small"] << 8
        field = ((1 << 48) - 1) << 64
        operands["wide"] = operands["wide"] & ~field | SOURCE << 64
        assert out[14 + size :] == pack(OPERANDS, operands) + b"rest"
