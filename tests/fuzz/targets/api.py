# SPDX-License-Identifier: MIT
"""A target of the coverage-guided fuzzer: a function that takes any bytes, and what to watch while it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class FuzzTarget:
    """``take`` gets any bytes and raises when something that must not happen has happened. ``seeds`` are inputs that come
    far; ``largest`` is the length of inputs, in bytes."""

    take: Callable[[bytes], None]
    seeds: Sequence[bytes]
    largest: int = 4096


def cut(data: bytes, most: int) -> list[bytes]:
    """An input as several packets, each after its length (two bytes, less than ``most``)."""
    packets = []
    while data:
        size = int.from_bytes(data[:2], "big") % most
        packets.append(data[2 : 2 + size])
        data = data[2 + size :]
    return packets


def joined(packets: Iterable[bytes]) -> bytes:
    """The input that :func:`cut` makes these packets of."""
    return b"".join(len(packet).to_bytes(2, "big") + packet for packet in packets)
