"""Packs and parses headers and records; made from the schema when the module is imported."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netsum.wire import schema
from netsum.wire.packing import packing
from netsum.wire.schema import EVERYONE, HEADER_BYTES, HEADER_FIELDS, RECORD_BITS, RECORD_FIELDS, VERSION, Lane


class Header(NamedTuple):
    """Trio-ML header and extension as one tuple of ints; ``grad_cnt`` includes its high bits."""

    job_id: int
    block_id: int
    age_op: int = 0
    final: int = 0
    degraded: int = 0
    firm: int = 0
    give_way: int = 0
    src_id: int = 0
    src_cnt: int = 1
    gen_id: int = 0
    hop: int = 0
    grad_cnt: int = 0
    version: int = VERSION
    op: int = 0
    lane: int = int(Lane.L32)
    status: int = 0
    dest: int = EVERYONE
    data_cnt: int = 0
    call: int = 0
    spare: int = 0

    @property
    def payload_bytes(self) -> int:
        return self.grad_cnt << self.lane

    @property
    def signature(self) -> tuple[int, int, int, int, int]:
        """What a block's contributions must have in common (``schema.SIGNATURE_FIELDS``)."""
        return self.call, self.gen_id, self.dest, self.op, self.lane


# How a field of the tuple is spread over the wire's fields: grad_cnt is the only one in two parts.
_SPLIT = {"grad_cnt_high": ("grad_cnt", 12), "grad_cnt": ("grad_cnt", 0)}
pack_header, parse_header = packing(HEADER_FIELDS, Header, "netsum header", _SPLIT)
"""A header's 24 bytes, its values masked to their widths; and the header at the start of some bytes (fewer than 24 raise
:class:`ValueError`)."""
(_ID,) = (
    slice(offset, offset + size)
    for offset, size, members in schema.byte_groups(HEADER_FIELDS)
    if members[0][0].name == "block_id"
)
_IDS = 0xFFFFFFFF
_WORDS = np.dtype(">u8")
_WORD, _SHIFT = _ID.start // _WORDS.itemsize, 8 * (-_ID.stop % _WORDS.itemsize)
"""Which of a header's words has the block id, and how far to the left."""
_STEPS = np.zeros((256, HEADER_BYTES // _WORDS.itemsize), np.uint64)
"""The differences, in words, between the first of several headers whose block ids count up and each of them, as long as the
ids do not wrap around to 0."""
_STEPS[:, _WORD] = np.arange(len(_STEPS)) << _SHIFT


def pack_headers(header: Header, rows: NDArray[np.uint8]) -> None:
    """Write the header at the start of each row, with block ids that count up from its own."""
    number = min(len(rows), len(_STEPS), _IDS + 1 - (header.block_id & _IDS))
    rows[:number, :HEADER_BYTES].view(_WORDS)[:] = np.frombuffer(pack_header(header), _WORDS) + _STEPS[:number]
    if number < len(rows):
        pack_headers(header._replace(block_id=header.block_id + number), rows[number:])


def count_alike(rows: NDArray[np.uint8], sizes: NDArray[np.int64]) -> int:
    """How many packets, from the first on, have the same size and the same header apart from block ids that count up (the count
    may stop where the ids wrap around to 0). Row i begins with ``sizes[i]`` bytes of packet."""
    if len(rows) == 1:
        return 1
    words = rows[:, :HEADER_BYTES].view(_WORDS).astype(np.uint64)
    words = words[: min(len(_STEPS), _IDS + 1 - (int(words[0, _WORD]) >> _SHIFT & _IDS))]
    words -= _STEPS[: len(words)]
    sizes = sizes[: len(words)]
    if are_alike(words) and are_alike(sizes):
        return len(words)
    differ = (words != words[0]).any(axis=1) | (sizes != sizes[0])
    return int(differ.argmax())  # the first never differs from itself


def are_alike(rows: NDArray[Any]) -> bool:
    """Whether all rows have the same bytes, which is found sooner than where they differ."""
    return rows.tobytes() == rows[:1].tobytes() * len(rows)


def parse_record(data: bytes) -> dict[str, int]:
    """Split a block record, as a query returns it, into its fields."""
    size = RECORD_BITS // 8
    if len(data) < size:
        raise ValueError(f"a block record has {size} bytes, this one has {len(data)}")
    value = int.from_bytes(data[:size], "big")
    return {field.name: value >> low & ((1 << field.bits) - 1) for field, low in schema.positions(RECORD_FIELDS)}
