"""The negotiation before a call's data: its fingerprint, and how large its values are.

A call in which they agree starts with an in-network MAX over 16-bit lanes. Its first block is one chunk on every rank:

    lanes 0..3    a hash of what must be equal on all ranks
    lanes 4..31   the call in words, two bytes a lane, and a checksum of them
    lanes 32..63  65535 - each of these
    lanes 64..    codes

After a maximum over ranks, these lanes equal a rank's own if and only if all hashes are equal (if another's h is larger, h
differs; if it is smaller, 65535 - h does). So every rank learns from the network that the ranks made different calls, and they
raise together. They also learn each lane's largest and smallest value. If there are exactly two different calls, whatever is
not a rank's own is the other's, so it can say what the others called without asking (:func:`other_call`).

A *code* says how large values are. Floats: one code for each block, the exponent e with all magnitudes below 2^e. It also says
whether the block has a NaN or an infinity, in calls that pass them on (:mod:`netsum.collectives.nonfinite`).
Integers: one code for the call, the narrowest lane that would do if all ranks had values as large. Codes that do not fit
the first block follow in blocks of their own.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from netsum.numeric.fixed_point import bias, scale_bits
from netsum.wire.schema import CHUNK_BYTES, Lane

CODE_LANE: Final = Lane.L16
FIRST_LANES: Final = CHUNK_BYTES // CODE_LANE.bytes
HASH_BYTES: Final = 8
WORDS_BYTES: Final = 52
FINGERPRINT_LANES: Final = HASH_BYTES + 4 + WORDS_BYTES
"""Two bytes a lane, and its complement."""
FIRST_CODES: Final = FIRST_LANES - FINGERPRINT_LANES
"""Codes that the first block has room for."""

ZERO_CODE: Final = 0
"""Code of a block of zeros."""
NOT_FINITE: Final = 1 << 12
"""Added to a block's code if the block has a NaN or an infinity; the code is that of its finite values."""
LOWEST: Final = -1073
"""Exponent of float64's smallest number. For a block below it, nothing can be predicted."""
_FLOAT_OFFSET: Final = 1100  # float64's exponents are -1073..1024: codes 27..2124

Codes = NDArray[np.uint16]


def call_fingerprint(*parts: object) -> bytes:
    """A digest of a call with these parts."""
    return hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=HASH_BYTES).digest()


def fingerprint_lanes(*parts: object) -> Codes:
    """The first block's fingerprint lanes for a call with these parts."""
    words = cut_short(spoken(*parts)).encode().ljust(WORDS_BYTES, b"\0")
    own = call_fingerprint(*parts) + _checked(words)
    lanes = np.frombuffer(own, ">u2").astype(np.uint16)
    return np.concatenate([lanes, _LARGEST - lanes])


_LARGEST: Final = np.uint16(0xFFFF)


def _checked(words: bytes) -> bytes:
    return words + zlib.crc32(words).to_bytes(4, "big")


def cut_short(words: str) -> str:
    """The words, cut to what fits into the first block."""
    plain = words.encode("ascii", "replace").decode()
    return plain if len(plain) <= WORDS_BYTES else plain[: WORDS_BYTES - 2] + ".."


def spoken(name: object, *parts: object) -> str:
    """A fingerprint for people: the operation, then type, shape and any unusual options."""
    return " ".join([str(name), *(word for part in parts if (word := _word(part)))])


def _word(part: object) -> str:
    if isinstance(part, tuple) and any(isinstance(each, str | bool) for each in part):
        return " ".join(filter(None, map(_word, part)))  # options
    if isinstance(part, np.dtype):
        return str(part) if part.names else part.name
    if part is None or part is False or part == "agreed":
        return ""  # the default
    if part is True:
        return "no_aging"
    return f"{8 * part.bytes} bits" if isinstance(part, Lane) else str(part)


def other_call(largest: Codes, own: Codes) -> str | None:
    """The one call that other ranks made, in words, from the maximum of the fingerprint lanes; None if they made several."""
    half = FINGERPRINT_LANES // 2
    top, low, ours = (lanes.astype(np.int64) for lanes in (largest[:half], _LARGEST - largest[half:], own[:half]))
    theirs = top if (top == low).all() else top + low - ours  # all the others agree, or ours is one of two values
    if theirs.min() < 0 or theirs.max() > int(_LARGEST):
        return None
    said = theirs.astype(">u2").tobytes()[HASH_BYTES:]
    words = said[:WORDS_BYTES]
    return words.rstrip(b"\0").decode("ascii", "replace") if _checked(words) == said else None


def magnitudes(groups: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """The largest magnitude of each block of numbers, which come in groups, ``(blocks, lanes)`` each; it is not finite if one of
    the block's numbers is not."""
    most, least = np.maximum.reduce, np.minimum.reduce  # as the methods max and min, but with less around them
    found = [np.maximum(most(rows, axis=1), -least(rows, axis=1)) for rows in groups]
    return np.concatenate(found) if len(found) > 1 else found[0]


def float_codes(largest: NDArray[Any]) -> Codes:
    """Codes of blocks of floats with these largest magnitudes, which are finite."""
    codes: Codes = (np.frexp(largest)[1] + _FLOAT_OFFSET).astype(np.uint16)
    codes[largest == 0] = ZERO_CODE
    return codes


def float_exponents(codes: Codes) -> NDArray[np.int64]:
    """The exponents of these codes; 0 for a block of zeros, whose exponent does not matter."""
    return np.where(codes == ZERO_CODE, 0, codes.astype(np.int64) - _FLOAT_OFFSET)


def within(codes: Codes, exponents: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True if blocks with these codes fit the exponents, as a block of zeros always does, and one that is not finite never."""
    return np.asarray(codes <= exponents + _FLOAT_OFFSET)


def predicted_exponents(codes: Codes) -> NDArray[np.int64]:
    """Exponents for the next call, after these were agreed on. A block of zeros says nothing about the next one, which will be
    repeated at a scale that fits."""
    codes = codes & np.uint16(NOT_FINITE - 1)
    return np.where(codes == ZERO_CODE, LOWEST, float_exponents(codes) + 1)


def coarseness(lane: Lane, workers: int) -> int:
    """The number of bits by which a predicted exponent may exceed the one that the ranks would have agreed on: two that the
    prediction adds, the bits by which a sum may be larger than its parts, and an eighth of the lane's bits, so that values may
    shrink a little without another round."""
    return 2 + (workers - 1).bit_length() + scale_bits(lane, workers) // 8


def smallest_sum(lane: Lane, workers: int, *, dithered: bool = False) -> int:
    """If a block's largest sum is at least this many quanta, its values are within :func:`coarseness` of its exponent: some rank
    has 1/n of the sum, and less than a quantum of that is rounding."""
    lost = coarseness(lane, workers) - (workers - 1).bit_length()
    return max(1 << max(scale_bits(lane, workers) - lost, 0), workers + 1 if dithered else 1)


def lane_code(largest: int, workers: int) -> int:
    """Code of the narrowest lane in which ``workers`` values of at most this magnitude can be summed."""
    return next((int(lane) for lane in Lane if largest <= bias(lane, workers)), len(Lane))


def lane_of_code(code: int) -> Lane | None:
    """The lane of a code; None if no lane is wide enough."""
    return Lane(code) if code < len(Lane) else None


def largest_magnitude(values: NDArray[Any]) -> int:
    """The largest magnitude in an integer array, exact even for the most negative value; 0 if it is empty."""
    if not values.size:
        return 0
    return max(int(values.max()), -int(values.min()))
