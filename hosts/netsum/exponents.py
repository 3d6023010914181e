"""What the workers agree on before a call's data: its signature, and how large its values are.

Every call starts with an in-network MAX over 16-bit lanes. Its first block is one chunk on every rank, whatever the call:

    lanes 0..7    h, eight bytes of a hash of what must be equal on all ranks
    lanes 8..15   255 - h
    lanes 16..    codes

After a maximum over ranks, these lanes are a rank's own if and only if all hashes are equal (where another's h is larger, h
differs; where it is smaller, 255 - h does): so every rank learns from the network that the ranks made different calls, and they
raise together.

A *code* says how large values are. Floats: one code for each block, the exponent e with all magnitudes below 2^e.
Integers: one code for the call, the narrowest lane that would do if all ranks had values as large. Codes that do not fit
the first block follow in blocks of their own.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from netsum.fixed_point import bias
from netsum.wire.schema import CHUNK_BYTES, Lane

CODE_LANE: Final = Lane.L16
FIRST_LANES: Final = CHUNK_BYTES // CODE_LANE.bytes
SIGNATURE_BYTES: Final = 8
SIGNATURE_LANES: Final = 2 * SIGNATURE_BYTES
FIRST_CODES: Final = FIRST_LANES - SIGNATURE_LANES
"""Codes that the first block has room for."""

ZERO_CODE: Final = 0
"""Code of a block of zeros."""
_FLOAT_OFFSET: Final = 1100  # float64's exponents are -1073..1024: codes 27..2124

Codes = NDArray[np.uint16]


def signature_lanes(*parts: object) -> Codes:
    """The first block's 16 signature lanes for a call with these parts."""
    text = "\0".join(map(str, parts)).encode()
    digest = np.frombuffer(hashlib.blake2b(text, digest_size=SIGNATURE_BYTES).digest(), np.uint8).astype(np.uint16)
    return np.concatenate([digest, 255 - digest])


def float_codes(blocks: NDArray[Any]) -> Codes:
    """Codes of the rows of a (blocks, lanes) float array; ``(blocks,)``."""
    largest = np.maximum(blocks.max(axis=1, initial=0), -blocks.min(axis=1, initial=0))
    exponents = np.frexp(largest)[1].astype(np.int64)
    return np.where(largest == 0, ZERO_CODE, exponents + _FLOAT_OFFSET).astype(np.uint16)


def float_exponents(codes: Codes) -> NDArray[np.int64]:
    """The exponents that codes stand for; 0 for a block of zeros, whose exponent does not matter."""
    return np.where(codes == ZERO_CODE, 0, codes.astype(np.int64) - _FLOAT_OFFSET)


def codes_of_exponents(exponents: NDArray[np.int64]) -> Codes:
    """Codes of given exponents, cut at the ends of float64's range."""
    return (np.clip(exponents, -1073, 1024) + _FLOAT_OFFSET).astype(np.uint16)


def lane_code(largest: int, workers: int) -> int:
    """Code of the narrowest lane in which ``workers`` values of at most this magnitude can be summed; rises with it."""
    return next((int(lane) for lane in Lane if largest <= bias(lane, workers)), len(Lane))


def lane_of_code(code: int) -> Lane | None:
    """The lane that a code stands for; None: no lane is wide enough."""
    return Lane(code) if code < len(Lane) else None


def largest_magnitude(values: NDArray[Any]) -> int:
    """The largest magnitude of an integer array, exact also for the most negative value; 0 of an empty one."""
    if not values.size:
        return 0
    return max(int(values.max()), -int(values.min()))
