# SPDX-License-Identifier: MIT
"""Mutations of a contribution by untrusted senders: a function for each change.

``FIELDS`` change what a packet says; lengths stay as they were and the IPv4 checksum is corrected, so that the packet gets
as far as possible. ``DAMAGE`` is done to the finished bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from netsum.frames import PREFIX_BYTES
from netsum.wire.memory import MEMORY_PORT
from netsum.wire.schema import (
    CALL_BITS,
    CHUNK_BYTES,
    EVERYONE,
    HEADER_BYTES,
    HEADER_FIELDS,
    REFUSALS,
    SWITCH_SOURCE,
    UDP_PORT,
    VERSION,
    byte_groups,
)

from tests.system.fuzz.expect import checksum_of, udp_checksum_of
from tests.system.fuzz.site import JOBS, PARENT, PORTS, senders

Rng = random.Random

# Where fields are in a frame with IPv4 and UDP.
_TOTAL_LENGTH, _PROTOCOL, _IP_CHECKSUM, _IP_DST = 16, 23, 24, 30
_UDP_SRC, _UDP_DST, _UDP_LENGTH, _UDP_CHECKSUM = 34, 36, 38, 40
_AT: Final = {field.name: PREFIX_BYTES + offset for offset, _, fields in byte_groups(HEADER_FIELDS) for field, _ in fields}
_JOB, _VERSION_OP, _LANE_STATUS, _FLAGS = _AT["job_id"], _AT["version"], _AT["lane"], _AT["hop"]
HEADERS: Final = PREFIX_BYTES + HEADER_BYTES
"""Bytes in front of the payload."""

_NO_PAYLOAD = 8 + HEADER_BYTES  # UDP's length
_LENGTHS = (
    *(0, 1, 7, 8, 65535),
    *(_NO_PAYLOAD + more for more in (-1, 0, 1, 255, 256, 257, 4095, 4096, 4097, 4352, 0x8000, 0xFF00)),
)
_COUNTS = (0, 1, 2, 3, 127, 128, 254, 255, 256, 0xFFFF)
_LANES = (0, 1, 31, 32, 63, 64, 65, 128, 256, 512, 1024, 2048, 4095, 4096, 4097, 0x2000, 0x8040, 0xFFFF)


class Draft:
    """A frame being made for a port. ``seal``: whether its IPv4 checksum is corrected; ``sum_udp``: whether it gets a UDP
    checksum."""

    __slots__ = ("frame", "port", "seal", "sum_udp")

    def __init__(self, port: int, frame: bytes) -> None:
        self.port = port
        self.frame = bytearray(frame)
        self.seal = True
        self.sum_udp = False

    def put(self, at: int, value: int, size: int = 1) -> None:
        """Write a number."""
        self.frame[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "big")

    def get(self, at: int, size: int = 1) -> int:
        """Read a number."""
        return int.from_bytes(self.frame[at : at + size], "big")

    def finish(self) -> None:
        """Correct the checksums that should be right."""
        frame = self.frame
        if self.seal:
            self.put(_IP_CHECKSUM, checksum_of(bytes(frame[14:24] + frame[26:34])), 2)
        if self.sum_udp:
            self.put(_UDP_CHECKSUM, udp_checksum_of(bytes(frame)) or 0xFFFF, 2)


Trick = Callable[[Rng, Draft], None]


def _field(at: int, size: int, *values: int) -> Trick:
    """Write one of these values into a field, or any value."""
    return lambda rng, d: d.put(at, rng.choice((*values, rng.getrandbits(8 * size))), size)


def _half(at: int, shift: int) -> Trick:
    """Write any value into one half of a byte."""
    return lambda rng, d: d.put(at, d.get(at) & 0xF0 >> shift | rng.randrange(16) << shift)


_FRAGMENT_BITS: Final = _field(20, 2, 0x2000, 1, 0x2001, 0x1FFF, 0x3FFF, 0x8000, 0xC000)
_FROM_ELSEWHERE: Final = _field(26, 4, *senders(), 0)
"""Another source address, used or unused."""

# --- what a packet says -----------------------------------------------------------------------------------------------


def _port(rng: Rng, d: Draft) -> None:
    d.port = rng.choice(PORTS)


def _udp_source(rng: Rng, d: Draft) -> None:
    """Another epoch's port, another member's, or any: the port is the epoch's token."""
    others = [member.udp_port for job in JOBS.values() for member in job.members]
    near = d.get(_UDP_SRC, 2) + rng.choice((-1, 1, 256))
    d.put(_UDP_SRC, rng.choice((near, rng.choice(others), 0, UDP_PORT, rng.getrandbits(16))), 2)


def _block(rng: Rng, d: Draft) -> None:
    """A block before the window, behind it, laps away, or on the other side of the circle."""
    delta = rng.choice((1, -1, 7, -7, 8, -8, 16, -16, 64, 1 << 16, 1 << 31, (1 << 31) - 8, rng.getrandbits(32)))
    d.put(_AT["block_id"], d.get(_AT["block_id"], 4) + delta, 4)


def _hop(rng: Rng, d: Draft) -> None:
    """As if it came from a switch, or went to one."""
    d.put(_FLAGS, d.get(_FLAGS) & 0xF3 | rng.randrange(4) << 2)


def _signature(rng: Rng, d: Draft) -> None:
    kind = rng.randrange(4)
    if kind == 0:
        d.put(_AT["gen_id"], rng.choice((0, 1000, 1001, rng.getrandbits(16))), 2)
    elif kind == 1:
        d.put(_VERSION_OP, d.get(_VERSION_OP) & 0xF0 | rng.randrange(16))
    elif kind == 2:
        d.put(_AT["call_fingerprint"], rng.choice((0, 1, rng.getrandbits(CALL_BITS))), CALL_BITS // 8)
    else:
        d.put(_AT["dest"], rng.choice((0, 1, 2, 254, 255, EVERYONE, rng.getrandbits(16))), 2)


def _counts(rng: Rng, d: Draft) -> None:
    d.put(_AT[rng.choice(("worker_cnt", "data_cnt"))], rng.choice((*_COUNTS, rng.getrandbits(16))), 2)


def _lanes(rng: Rng, d: Draft) -> None:
    if rng.getrandbits(1):
        d.put(_AT["lane_cnt"], rng.choice((*_LANES, rng.getrandbits(16))), 2)
    else:
        d.put(_LANE_STATUS, d.get(_LANE_STATUS) & 0x0F | rng.randrange(16) << 4)


def _answer(rng: Rng, d: Draft) -> None:
    """An answer of the switch, sent to the switch."""
    d.put(_AT["reason"], rng.choice((0, *REFUSALS)))
    d.put(_LANE_STATUS, d.get(_LANE_STATUS) & 0xF0 | rng.choice((8, 9, 10)))
    d.put(_UDP_SRC, UDP_PORT, 2)


def _header(rng: Rng, d: Draft) -> None:
    """A random header behind correct addresses, mostly for a live job."""
    d.frame[_JOB:HEADERS] = rng.randbytes(HEADERS - _JOB)
    if rng.getrandbits(1):
        d.put(_JOB, rng.choice(tuple(JOBS)))
        d.put(_VERSION_OP, d.get(_VERSION_OP) & 0x0F | VERSION << 4)


def _lengths(rng: Rng, d: Draft) -> None:
    """UDP's length, IPv4's, or both alike, without the bytes."""
    length = rng.choice((*_LENGTHS, _NO_PAYLOAD + CHUNK_BYTES * rng.randrange(18), rng.getrandbits(16)))
    which = rng.randrange(3)
    if which != 1:
        d.put(_UDP_LENGTH, length, 2)
    if which != 0:
        d.put(_TOTAL_LENGTH, length + 20, 2)


def _resized(rng: Rng, d: Draft) -> None:
    """Another number of bytes, whole chunks or not, with correct lengths in UDP and IPv4."""
    size = rng.choice((CHUNK_BYTES * rng.randrange(18), rng.randrange(600)))
    body = bytes(d.frame[HEADERS : HEADERS + size])
    d.frame[HEADERS:] = body + bytes(size - len(body))
    d.put(_UDP_LENGTH, _NO_PAYLOAD + size, 2)
    d.put(_TOTAL_LENGTH, 20 + _NO_PAYLOAD + size, 2)


def _ip_checksum(rng: Rng, d: Draft) -> None:
    d.seal = False
    wrong = (0, 0xFFFF, d.get(_IP_CHECKSUM, 2) ^ 1 << rng.randrange(16), rng.getrandbits(16))
    d.put(_IP_CHECKSUM, rng.choice(wrong), 2)


def _summed(_rng: Rng, d: Draft) -> None:
    """A UDP checksum, correct until something else is changed."""
    d.sum_udp = True


def _ip_head(rng: Rng, d: Draft) -> None:
    """Version, header length, type of service, time to live, protocol."""
    at = rng.choice((14, 14, 15, 22, _PROTOCOL))
    d.put(at, rng.choice((0, 0x44, 0x46, 0x4F, 0x55, 0x65, 1, 6, 47, rng.getrandbits(8))))


def _elsewhere(rng: Rng, d: Draft) -> None:
    """Another destination: address, UDP port or MAC."""
    which = rng.randrange(3)
    if which == 0:
        d.put(_IP_DST, rng.choice((0, 0x0A000011, PARENT.ip, 0xFFFFFFFF, 0xE0000001, rng.getrandbits(32))), 4)
    elif which == 1:
        d.put(_UDP_DST, rng.choice((0, 53, MEMORY_PORT, UDP_PORT + 2, 4791, rng.getrandbits(16))), 2)
    else:
        d.put(0, rng.choice((0, 0xFFFFFFFFFFFF, 0x026E73000011, 0x0180C2000001, rng.getrandbits(48))), 6)


# --- what is done to the bytes ----------------------------------------------------------------------------------------


def _cut(rng: Rng, d: Draft) -> None:
    """Truncated at any byte, preferably in the headers."""
    del d.frame[rng.randrange(rng.choice((15, 43, HEADERS + 1, len(d.frame) + 1))) :]


def _flip(rng: Rng, d: Draft) -> None:
    """Some bits flipped, preferably in the headers."""
    if d.frame:
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(min(len(d.frame), rng.choice((HEADERS, HEADERS, len(d.frame)))))
            d.frame[at] ^= 1 << rng.randrange(8)


def _trailer(rng: Rng, d: Draft) -> None:
    """Bytes behind the datagram."""
    d.frame += rng.choice((bytes, rng.randbytes))(rng.choice((1, 2, 46, 255, 256, 1500)))


def _options(rng: Rng, d: Draft) -> None:
    """IPv4 options, with or without a header length that says so."""
    words = rng.randrange(1, 11)
    d.frame[34:34] = rng.randbytes(4 * words)
    if rng.getrandbits(1) and len(d.frame) > 14:
        d.frame[14] = 0x45 + words


def _tag(rng: Rng, d: Draft) -> None:
    """One or two VLAN tags."""
    for _ in range(rng.choice((1, 1, 2))):
        d.frame[12:12] = rng.choice((b"\x81\x00", b"\x88\xa8")) + rng.randbytes(2)


def _ether_type(rng: Rng, d: Draft) -> None:
    d.frame[12:14] = rng.choice((b"\x86\xdd", b"\x08\x06", b"\x88\x47", b"\x88\xb5", b"\x00\x2e", rng.randbytes(2)))


def _packet_out(rng: Rng, d: Draft) -> None:
    """The head of a PacketOut in front: of a query, or of a scan, forged or recirculating."""
    kind = rng.choice((0, 1, 1, 2, 255))
    slot = rng.choice((0, 1, 8, 64, 8184, 8191, 0xFFFF))
    d.frame[0:0] = bytes((kind,)) + slot.to_bytes(2, "big") + rng.randbytes(2) + rng.choice((b"\0\0", b"\0\1"))
    d.port = rng.choice((0, 0, 1, 4))


def _shift(rng: Rng, d: Draft) -> None:
    """A few bytes removed or inserted somewhere."""
    at = rng.randrange(min(len(d.frame), HEADERS) + 1)
    if rng.getrandbits(1):
        d.frame[at:at] = rng.randbytes(rng.randrange(1, 9))
    else:
        del d.frame[at : at + rng.randrange(1, 9)]


FIELDS: Final[tuple[Trick, ...]] = (
    _port,
    _field(_AT["src_id"], 1, 0, 1, 2, 5, 254, SWITCH_SOURCE),
    _field(_JOB, 1, *JOBS, 0, 255),
    _udp_source,
    _block,
    _field(_AT["age_op"], 1, 4, 5, 8, 0x10, 0x20, 0xF0),  # age_op, final, degraded
    _field(_FLAGS, 1, 0x80, 0x40, 0x20, 0x10, 0x08, 1, 2),  # no_aging, backoff, query, early, hop, reserved
    _hop,
    _signature,
    _counts,
    _lanes,
    _half(_LANE_STATUS, 0),
    _half(_VERSION_OP, 4),
    _field(_AT["reason"], 1, *REFUSALS),
    _field(_AT["receiver_id"], 1, 0),
    _field(_AT["key"], 8, 0, 1),
    _answer, _header, _lengths, _resized, _ip_checksum,
    _field(_UDP_CHECKSUM, 2, 1, 0xFFFF, 0xFFFE),
    _summed, _ip_head, _FRAGMENT_BITS, _FROM_ELSEWHERE, _elsewhere,
)  # fmt: skip
DAMAGE: Final[tuple[Trick, ...]] = (_cut, _flip, _trailer, _options, _tag, _ether_type, _packet_out, _shift)
FORGERIES: Final[tuple[Trick, ...]] = (_ip_head, _FRAGMENT_BITS, _FROM_ELSEWHERE)
"""What may be done to a forged result."""
