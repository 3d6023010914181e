"""Payloads with their zeros left out.

A bit for each word of four bytes, 1 if the word is not zero, the first word's the lowest bit of the first byte, rounded up to
whole words; then the words that are not zero. Sender and receiver know how many bytes it stands for: ``length`` of the header.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

WORD_BYTES: Final = 4
LEAST_BYTES: Final = 64
"""Smaller payloads are sent as they are."""


def _map_bytes(words: int) -> int:
    return -(-words // 32) * WORD_BYTES


def without_zeros(payload: bytes | memoryview) -> bytes | None:
    """The payload with its zeros left out; None if half of its words or more are something else, or if it is small, or no whole
    words."""
    number, odd = divmod(len(payload), WORD_BYTES)
    if odd or len(payload) < LEAST_BYTES:
        return None
    words = np.frombuffer(payload, np.uint32)
    there = words != 0
    if 2 * int(np.count_nonzero(there)) >= number:
        return None
    mapped = np.packbits(there, bitorder="little").tobytes()
    kept: bytes = words[there].tobytes()
    return mapped.ljust(_map_bytes(number), b"\0") + kept


def with_zeros(data: bytes | memoryview, length: int) -> NDArray[np.uint8]:
    """The ``length`` bytes that ``data`` stands for. Raises :class:`ValueError` if that cannot be."""
    number, odd = divmod(length, WORD_BYTES)
    size = _map_bytes(number)
    if odd or len(data) < size:
        raise ValueError(f"{len(data)} bytes without zeros cannot stand for {length} bytes")
    there = np.unpackbits(np.frombuffer(data, np.uint8, size), bitorder="little").view(bool)
    if there[number:].any() or len(data) != size + WORD_BYTES * int(np.count_nonzero(there)):
        raise ValueError(f"{len(data)} bytes without zeros do not agree with their own map of {length} bytes")
    words = np.zeros(number, np.uint32)
    words[there[:number]] = np.frombuffer(data, np.uint32, offset=size)
    return words.view(np.uint8)
