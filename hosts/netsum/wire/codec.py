# SPDX-License-Identifier: MIT
"""Headers as bytes, one or many at once."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from netsum.wire import schema
from netsum.wire.schema import (
    EVERYONE,
    HEADER_BYTES,
    HEADER_FIELDS,
    RECORD_BITS,
    RECORD_FIELDS,
    REFUSALS,
    VERSION,
    BlockState,
    Field,
    Hop,
    Lane,
    Op,
    Status,
    byte_groups,
    positions,
)

# Names for the values of some fields, for everything that shows a packet to a person.


VALUE_NAMES: Final[dict[str, dict[int, str]]] = {
    "op": {op.value: op.name for op in Op},
    "lane": {lane.value: f"{lane.bits} bits" for lane in Lane},
    "status": {status.value: status.name for status in Status},
    "reason": {outcome.value: outcome.name for outcome in sorted(REFUSALS)},
    "hop": {hop.value: hop.name for hop in Hop},
    "state": {state.value: state.name for state in BlockState},
    "dest": {EVERYONE: "every member"},
}
"""Field name to (value to name). A value that is not listed has no name."""


def value_name(field: str, value: int) -> str:
    """The name of ``value`` in ``field``; the number in decimal if it has none."""
    return VALUE_NAMES.get(field, {}).get(value, str(value))


# Makes the two functions that pack and parse a header of a schema.
#
# A header costs about a microsecond each way: the schema's fields are grouped into whole bytes once, and the two
# functions are generated from the groups, as :mod:`dataclasses` does for its methods.


_FORMATS = {1: "B", 2: "H", 4: "I", 8: "Q"}


Made = TypeVar("Made", bound=tuple[int, ...])


def _units(fields: Sequence[Field]) -> Iterator[tuple[int, list[tuple[Field, int]]]]:
    """Fields grouped into numbers that :mod:`struct` has a format for: (bytes, [(field, its lowest bit)])."""
    group: list[Field] = []
    for _, _, members in byte_groups(fields):
        group += [field for field, _ in members]
        size = sum(field.bits for field in group) // 8
        if size in _FORMATS:
            yield size, list(positions(group))
            group = []
    if group:
        raise ValueError(f"no number has just these fields: {[field.name for field in group]}")


def packing(
    fields: Sequence[Field],
    made: type[Made],
    called: str,
    saturated: Mapping[str, str] | None = None,
) -> tuple[Callable[[Made], bytes], Callable[[bytes | memoryview], Made]]:
    """``pack(header)``, which masks values to their widths, and ``parse(data)``, which takes the header at the start of the data
    and raises :class:`ValueError` if there are too few bytes, for ``made``, a :class:`typing.NamedTuple`; errors say ``called``
    for it. ``saturated`` says of a field of the wire which field of the tuple it repeats as far as it goes; others have the same
    name in both. The tuple may leave out fields that are always 0."""
    units = list(_units(fields))
    layout = struct.Struct(">" + "".join(_FORMATS[size] for size, _ in units))
    packed = []
    parts = dict.fromkeys(made._fields, "0")  # type: ignore[attr-defined]  # it is a NamedTuple
    for index, (size, members) in enumerate(units):
        terms = []
        for field, shift in members:
            mask = (1 << field.bits) - 1
            if field.name in (saturated or {}):
                wide = (saturated or {})[field.name]
                terms.append(f"({wide} if {wide} < {mask} else {mask}) << {shift}")
            elif field.name in parts:
                whole = field.bits == 8 * size
                terms.append(f"{field.name} & {mask}" if whole else f"({field.name} & {mask}) << {shift}")
                parts[field.name] = f"u{index}" if whole else f"u{index} >> {shift} & {mask}"
        packed.append(" | ".join(terms) or "0")
    taken = ", ".join(f"u{index}" for index in range(len(units)))
    short = f"a {called} has {layout.size} bytes, this packet has {{len(data)}}"
    source = (
        f"def pack(header):\n    {', '.join(parts)}, = header\n    return _pack({', '.join(packed)})\n"
        f"def parse(data):\n    try:\n        {taken} = _unpack(data)\n"
        f"    except _error:\n        raise ValueError(f'{short}') from None\n"
        f"    return _make(({', '.join(parts.values())},))\n"
    )
    make, error = partial(tuple.__new__, made), struct.error
    scope: dict[str, Any] = {"_pack": layout.pack, "_unpack": layout.unpack_from, "_make": make, "_error": error}
    exec(source, scope)  # our own schema, nothing from outside
    return cast("Callable[[Made], bytes]", scope["pack"]), cast("Callable[[bytes | memoryview], Made]", scope["parse"])


# Payloads with their zeros left out.
#
# A bit for each word of four bytes, 1 if the word is not zero, the first word's the lowest bit of the first byte,
# rounded up to whole words; then the words that are not zero. Sender and receiver know how many bytes it stands for:
# ``length`` of the header.


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


# Packs and parses headers and records; made from the schema when the module is imported.


class Header(NamedTuple):
    """Trio-ML header and extension as one tuple of ints. The Trio-ML header's own counts, which saturate, are not in it."""

    job_id: int
    block_id: int
    age_op: int = 0
    final: int = 0
    degraded: int = 0
    reserved_flags: int = 0
    src_id: int = 0
    gen_id: int = 0
    reserved_cnt: int = 0
    version: int = VERSION
    op: int = 0
    lane: int = int(Lane.L32)
    status: int = 0
    no_aging: int = 0
    backoff: int = 0
    query: int = 0
    early: int = 0
    hop: int = 0
    reserved: int = 0
    reason: int = 0
    dest: int = EVERYONE
    worker_cnt: int = 1
    data_cnt: int = 0
    lane_cnt: int = 0
    call_fingerprint: int = 0
    receiver_id: int = 0
    key: int = 0

    @property
    def payload_bytes(self) -> int:
        return self.lane_cnt << self.lane

    @property
    def fingerprint(self) -> tuple[int, int, int, int, int]:
        """The fields that a block's contributions must have in common (``schema.FINGERPRINT_FIELDS``)."""
        return self.call_fingerprint, self.gen_id, self.dest, self.op, self.lane


pack_header, parse_header = packing(HEADER_FIELDS, Header, "netsum header", schema.SATURATED)
"""A header's 40 bytes, its values masked to their widths; and the header at the start of some bytes (fewer than 40 raise
:class:`ValueError`)."""
(BLOCK_ID,) = (
    slice(offset, offset + size)
    for offset, size, members in schema.byte_groups(HEADER_FIELDS)
    if members[0][0].name == "block_id"
)
"""The bytes of a header that are its block id."""
_IDS = 0xFFFFFFFF
_WORDS = np.dtype(">u8")
_WORD, _SHIFT = BLOCK_ID.start // _WORDS.itemsize, 8 * (-BLOCK_ID.stop % _WORDS.itemsize)
"""The header word that has the block id, and how far to the left."""
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
    """The number of packets, from the first on, that have the same size and the same header apart from block ids that count up
    (the count may stop where the ids wrap around to 0). Row i begins with ``sizes[i]`` bytes of packet."""
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
    """True if all rows have the same bytes, which is found sooner than where they differ."""
    return rows.tobytes() == rows[:1].tobytes() * len(rows)


def parse_record(data: bytes) -> dict[str, int]:
    """Split a block record, as a query returns it, into its fields."""
    size = RECORD_BITS // 8
    if len(data) < size:
        raise ValueError(f"a block record has {size} bytes, this one has {len(data)}")
    value = int.from_bytes(data[:size], "big")
    return {field.name: value >> low & ((1 << field.bits) - 1) for field, low in schema.positions(RECORD_FIELDS)}
