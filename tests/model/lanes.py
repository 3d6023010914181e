# SPDX-License-Identifier: MIT
"""Integer arithmetic of a chunk, written for clearness: a lane is a Python int, no bit tricks."""

from __future__ import annotations

from collections.abc import Callable
from operator import add, and_, or_, xor
from typing import Final

from netsum.wire.schema import CHUNK_BYTES, Lane, Op

CHUNK_BITS = CHUNK_BYTES * 8

# By hand, not from the schema: what each operation makes of two lanes, before it is cut to the lane's width.
ORACLES: Final[dict[Op, Callable[[int, int], int]]] = {
    Op.SUM: add,
    Op.MIN: min,
    Op.MAX: max,
    Op.AND: and_,
    Op.OR: or_,
    Op.XOR: xor,
}


def split(chunk: int, lane: Lane) -> list[int]:
    """The lanes of a chunk, first on the wire first."""
    data = chunk.to_bytes(CHUNK_BYTES, "big")
    return [int.from_bytes(data[at : at + lane.bytes], "big") for at in range(0, CHUNK_BYTES, lane.bytes)]


def join(lanes: list[int], lane: Lane) -> int:
    """The chunk of so many lanes."""
    return int.from_bytes(b"".join(value.to_bytes(lane.bytes, "big") for value in lanes), "big")


def combine_chunks(op: Op, lane: Lane, held: tuple[int, ...], ours: tuple[int, ...]) -> tuple[int, ...]:
    """The slot's contents after another payload, chunk by chunk."""
    held = held + (0,) * (len(ours) - len(held))
    return tuple(_combine(op, lane, a, b) for a, b in zip(held, ours, strict=False))


def _combine(op: Op, lane: Lane, a: int, b: int) -> int:
    """A SUM is one addition modulo 2^2048, as the switch does it: biased lanes never carry into each other."""
    if op == Op.SUM:
        return (a + b) & ((1 << CHUNK_BITS) - 1)
    ones = (1 << lane.bits) - 1
    return join([ORACLES[op](x, y) & ones for x, y in zip(split(a, lane), split(b, lane), strict=True)], lane)
