# SPDX-License-Identifier: MIT
"""Random headers, payloads and frames."""

from __future__ import annotations

import random
import struct
from typing import Any

from hypothesis import strategies as st
from netsum.wire.codec import Header, pack_header
from netsum.wire.memory import MAX_SEGMENTS, MEMORY_FIELDS, MemoryHeader
from netsum.wire.schema import CHUNK_BYTES, HEADER_FIELDS, MAX_CHUNKS, SATURATED, UDP_PORT, VERSION, Lane

WIDTHS = {field.name: field.bits for field in HEADER_FIELDS if field.name in Header._fields}

headers = st.builds(Header, **{name: st.integers(0, (1 << bits) - 1) for name, bits in WIDTHS.items()})
"""Any header that fits on the wire, sensible or not."""


def well_formed(rng: random.Random) -> tuple[Header, bytes]:
    """A header with any values, and the payload that it announces: 0 to 16 chunks of lanes, or room."""
    lane = rng.choice(list(Lane))
    chunks = rng.randint(0, MAX_CHUNKS)
    empty = rng.random() < 0.3
    values = {name: rng.getrandbits(bits) for name, bits in WIDTHS.items()}
    values |= {"version": VERSION, "lane": lane, "lane_cnt": 0 if empty else chunks * CHUNK_BYTES >> lane}
    return Header(**values), bytes(chunks * CHUNK_BYTES) if empty else rng.randbytes(chunks * CHUNK_BYTES)


def fields_of(header: Header) -> dict[str, Any]:
    """The values of all fields of the schema, of which some saturate and some are zero."""
    widths = {field.name: field.bits for field in HEADER_FIELDS}
    known = header._asdict()
    repeated = {name: min(known[wide], (1 << widths[name]) - 1) for name, wide in SATURATED.items()}
    return {**dict.fromkeys(widths, 0), **known, **repeated}


def lanes_of(header: Header, payload: bytes) -> list[int]:
    """The payload as the header's lanes."""
    width = Lane(header.lane).bytes
    return [int.from_bytes(payload[at : at + width], "big") for at in range(0, len(payload), width)]


def udp_frame(message: bytes, *, source_port: int = 20001, destination_port: int = UDP_PORT) -> bytes:
    """Ethernet, IPv4 and UDP around a message, from 10.0.0.1 to 10.0.0.254; made without netsum's own code."""
    udp = struct.pack(">HHHH", source_port, destination_port, 8 + len(message), 0) + message
    ip = bytearray(struct.pack(">BBHHHBBH4B4B", 0x45, 0, 20 + len(udp), 0, 0x4000, 64, 17, 0, 10, 0, 0, 1, 10, 0, 0, 254))
    total = sum(struct.unpack(">10H", ip))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    ip[10:12] = struct.pack(">H", ~total & 0xFFFF)
    return bytes.fromhex("026e730000fe 026e73000001 0800") + bytes(ip) + udp


def frame_of(header: Header, payload: bytes) -> bytes:
    """The header and its payload as a contribution's frame."""
    return udp_frame(pack_header(header) + payload)


memory_headers = st.builds(
    MemoryHeader,
    **{
        field.name: st.integers(0, (1 << field.bits) - 1) for field in MEMORY_FIELDS if field.name not in ("reserved", "segments")
    },
    segments=st.just(0),
)
"""Any header of memory in the network that fits on the wire and announces no segments."""
paths = st.lists(st.integers(0, 2**64 - 1), max_size=MAX_SEGMENTS)
