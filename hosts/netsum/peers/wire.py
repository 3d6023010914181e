"""What members say to each other, byte by byte; big-endian (docs/wire.md, "Between members").

A *datagram* is a seal (:data:`SEAL`), the sender's rank (1), a segment head (:data:`SEGMENT`) and a piece of a message. A
*message* is a head (:data:`MESSAGE`), so many row records (:data:`RECORD`), and the rows' payloads, one after the other.
"""

from __future__ import annotations

import struct
from enum import IntFlag
from typing import Final

import numpy as np

TAG_BYTES: Final = 16
SEAL: Final = struct.Struct(f">{TAG_BYTES}sBQQQ")
"""A keyed hash over all that follows; :class:`netsum.peers.seal.Kind`; the sender's session, the receiver's, and how many
datagrams the one has sent the other (:mod:`netsum.peers.seal`)."""
RANK: Final = struct.Struct(">B")

SEGMENT: Final = struct.Struct(">BBIIIQ")
"""Flags (:class:`Flag`); the sender's algorithm (its index in :data:`netsum.descriptor.ALGORITHMS`); the first block that it has
not begun; the segment's number, counted from 0 in each direction between two members (of a datagram without DATA: the next
one's); the first number that the sender has not received; of the 64 behind it, those that it has, lowest bit first."""
SACK_BITS: Final = 64


class Flag(IntFlag):
    """What a datagram is."""

    DATA = 1  # it holds a piece of a message
    LAST = 2  # the message's last
    ANSWER = 4  # the sender wants to hear from the receiver
    BYE = 8  # the sender leaves, and needs nothing more
    DIFFER = 16  # the sender's call is not the others': nobody can go on


MESSAGE: Final = struct.Struct(">IHH")
"""Id of the batch's first block; rows of the batch; records that follow."""

RECORD: Final = np.dtype(
    [
        ("row", ">u2"),
        ("gen_id", ">u2"),
        ("size", ">u2"),  # bytes of payload
        ("op", "u1"),
        ("lane", "u1"),
        ("dest", "u1"),
        ("status", "u1"),
        ("src_cnt", "u1"),
        ("data_cnt", "u1"),
        ("degraded", "u1"),
        ("flags", "u1"),
    ]
)
"""One row: what the header of a contribution says, or of several combined."""

SIGNED: Final = 1
"""Flag of a record: gen_id, op, lane and dest are somebody's who has not given up."""
HERE: Final = 2
"""Flag of a record: the payload is in the message."""
