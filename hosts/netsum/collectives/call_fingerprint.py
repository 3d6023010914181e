# SPDX-License-Identifier: MIT
"""Which call a rank makes: its fingerprint, in the first block of the call or in every block's header.

The first block of a call that opens with an agreement is one chunk of an in-network MAX over 16-bit lanes, on every rank:

    lanes 0..3    a hash of what must be equal on all ranks
    lanes 4..31   the call in words, two bytes a lane, and a checksum of them
    lanes 32..63  65535 - each of these
    lanes 64..    codes (:mod:`netsum.numeric.exponents`)

After a maximum over ranks, these lanes equal a rank's own if and only if all hashes are equal (if another's h is larger, h
differs; if it is smaller, 65535 - h does). So every rank learns from the network that the ranks made different calls, and they
raise together. They also learn each lane's largest and smallest value. If there are exactly two different calls, whatever is
not a rank's own is the other's, so it can say what the others called (:func:`other_call`).

A call that is sent at once has no such block. Its blocks carry a digest in their headers, and the switch refuses them where
another rank has made another call.
"""

from __future__ import annotations

import hashlib
import zlib
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from netsum.collectives.history import KINDS, Fingerprint
from netsum.numeric.exponents import CODE_LANE, Codes
from netsum.numeric.fixed_point import WIRE_LANES
from netsum.wire.schema import CALL_BITS, CHUNK_BYTES, Lane

CODE_WIRE: Final = WIRE_LANES[CODE_LANE]
FIRST_LANES: Final = CHUNK_BYTES // CODE_LANE.bytes
HASH_BYTES: Final = 8
TEXT_BYTES: Final = 52
FINGERPRINT_LANES: Final = HASH_BYTES + 4 + TEXT_BYTES
"""Two bytes a lane, and its complement."""
FIRST_CODES: Final = FIRST_LANES - FINGERPRINT_LANES
"""Codes that the first block has room for."""
_LARGEST: Final = np.uint16(0xFFFF)
_COUNT_BITS: Final = 24
_MOST: Final = (1 << _COUNT_BITS) - 1
"""Stands for this many blocks and more."""


class CallFingerprint(NamedTuple):
    """The ``opening`` is how the first block of the call begins, if that opens it; the ``digest`` is what its blocks carry if
    none does; ``text`` is the call in words."""

    opening: bytes
    digest: int
    text: str

    @classmethod
    def of(cls, call: Fingerprint) -> CallFingerprint:
        """The fingerprint of a call with these parts. (Parts at the same place have the same type, so equal ones have equal
        words.)"""
        try:
            return _remembered(call)
        except TypeError:  # it cannot be a key, since a list is part of it
            return _made(call)


def _made(call: Fingerprint) -> CallFingerprint:
    digest = int.from_bytes(_hash(call), "big") >> (8 * HASH_BYTES - (CALL_BITS - _COUNT_BITS))
    return CallFingerprint(fingerprint_lanes(*call).astype(CODE_WIRE).tobytes(), digest, call_text(*call))


_remembered: Final = lru_cache(maxsize=KINDS)(_made)


def _hash(call: Fingerprint) -> bytes:
    return hashlib.blake2b("\0".join(map(str, call)).encode(), digest_size=HASH_BYTES).digest()


def fingerprint_lanes(*call: object) -> Codes:
    """The first block's fingerprint lanes for a call with these parts."""
    text = truncated(call_text(*call)).encode().ljust(TEXT_BYTES, b"\0")
    own = _hash(call) + _with_checksum(text)
    lanes = np.frombuffer(own, ">u2").astype(np.uint16)
    return np.concatenate([lanes, _LARGEST - lanes])


def _with_checksum(text: bytes) -> bytes:
    return text + zlib.crc32(text).to_bytes(4, "big")


def truncated(text: str) -> str:
    """The text, cut to what fits into the first block."""
    plain = text.encode("ascii", "replace").decode()
    return plain if len(plain) <= TEXT_BYTES else plain[: TEXT_BYTES - 2] + ".."


def call_text(name: object, *parts: object) -> str:
    """A fingerprint for people: the operation, then type, shape and any unusual options."""
    return " ".join([str(name), *(text for part in parts if (text := _part_text(part)))])


def _part_text(part: object) -> str:
    if isinstance(part, tuple) and any(isinstance(each, str | bool) for each in part):
        return " ".join(filter(None, map(_part_text, part)))  # options
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
    sent = theirs.astype(">u2").tobytes()[HASH_BYTES:]
    text = sent[:TEXT_BYTES]
    return text.rstrip(b"\0").decode("ascii", "replace") if _with_checksum(text) == sent else None


def header_fingerprint(digest: int, blocks: int) -> int:
    """The call's field in the headers of a call that is sent at once: a digest of what it is, and how many blocks it has. If a
    rank gives the call up, all ranks must still take as many block ids as if it had not; so a rank may give up a call of which
    it knows nothing."""
    return digest << _COUNT_BITS | min(blocks, _MOST)


def block_count(header_field: int) -> int | None:
    """The number of ids that a call takes when it is given up, by the field in the result of its first block (0: the opening is
    all of it); None if that is too many to say."""
    blocks = header_field & _MOST or 1
    return None if blocks == _MOST else blocks
