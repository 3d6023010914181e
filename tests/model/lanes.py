"""Integer arithmetic of a chunk, written for clearness: a lane is a Python int, no bit tricks."""

from __future__ import annotations

from netsum.wire.schema import CHUNK_BYTES, Lane

CHUNK_BITS = CHUNK_BYTES * 8


def split(chunk: int, lane: Lane) -> list[int]:
    """The lanes of a chunk, first on the wire first."""
    data = chunk.to_bytes(CHUNK_BYTES, "big")
    return [int.from_bytes(data[at : at + lane.bytes], "big") for at in range(0, CHUNK_BYTES, lane.bytes)]


def join(lanes: list[int], lane: Lane) -> int:
    """The chunk of so many lanes."""
    return int.from_bytes(b"".join(value.to_bytes(lane.bytes, "big") for value in lanes), "big")


def add_chunks(held: tuple[int, ...], ours: tuple[int, ...]) -> tuple[int, ...]:
    """One addition a chunk, modulo 2^2048, as the switch does it; biased lanes never carry into each other."""
    held = held + (0,) * (len(ours) - len(held))
    return tuple((a + b) & ((1 << CHUNK_BITS) - 1) for a, b in zip(held, ours, strict=False))


def max_chunks(held: tuple[int, ...], ours: tuple[int, ...], lane: Lane) -> tuple[int, ...]:
    """Lane-wise unsigned maximum."""
    held = held + (0,) * (len(ours) - len(held))
    return tuple(
        join([max(a, b) for a, b in zip(split(x, lane), split(y, lane), strict=True)], lane)
        for x, y in zip(held, ours, strict=False)
    )
