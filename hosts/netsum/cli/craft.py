# SPDX-License-Identifier: MIT
"""One chunk made by hand: any header field may be set, even to values that no host would send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from netsum.core.endpoint_factory import open_transport
from netsum.descriptor import Descriptor, HostAddress, MemberLink, SwitchAddress
from netsum.packets import LANES, Netsum, Room
from netsum.transports.base import Transport
from netsum.wire.schema import CHUNK_BYTES, HEADER_FIELDS, MAX_CHUNKS, Lane

_WIDTHS = {field.name: field.bits for field in HEADER_FIELDS}


def parse_setting(text: str) -> tuple[str, int]:
    """``block_id=7`` as a field and its value; ValueError if there is no such field, or the value does not fit."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not FIELD=VALUE")
    if name not in _WIDTHS:
        raise ValueError(f"the header has no field {name!r}; its fields are {', '.join(_WIDTHS)}")
    try:
        number = int(value, 0)
    except ValueError:
        raise ValueError(f"{name}={value!r}: not a whole number") from None
    if not 0 <= number < 1 << _WIDTHS[name]:
        raise ValueError(f"{name}={number} does not fit its {_WIDTHS[name]} bits")
    return name, number


def parse_values(text: str) -> list[int]:
    """``1,2,-3`` as whole numbers."""
    try:
        return [int(part, 0) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{text!r}: the gradients must be whole numbers separated by commas") from None


def build(fields: Mapping[str, Any], values: Sequence[int], *, lane: Lane, chunks: int | None, room: int) -> bytes:
    """Header and payload.

    ``values`` are repeated over ``chunks`` chunks (default: as few as they need, padded with zeros); negative ones become their
    two's complement. Without values, it is an empty contribution followed by ``room`` chunks. Fields that are not set follow
    from the payload. ValueError if a value does not fit the lane, or the chunks are not 0..16.
    """
    if not 0 <= (chunks or room) <= MAX_CHUNKS:
        raise ValueError(f"a payload has at most {MAX_CHUNKS} chunks of {CHUNK_BYTES} bytes")
    header = Netsum(**{"lane": int(lane), **fields})
    if not values:
        return bytes(header / Room(b"\0" * (room * CHUNK_BYTES)) if room else header)
    for value in values:
        if not -(1 << lane.bits - 1) <= value < 1 << lane.bits:
            raise ValueError(f"{value} does not fit a lane of {lane.bits} bits")
    a_chunk = CHUNK_BYTES // lane.bytes
    count = chunks * a_chunk if chunks else -(-len(values) // a_chunk) * a_chunk
    if count > MAX_CHUNKS * a_chunk:
        raise ValueError(f"{len(values)} gradients of {lane.bits} bits do not fit {MAX_CHUNKS} chunks")
    filled = [values[index % len(values)] for index in range(count)] if chunks else [*values, *([0] * (count - len(values)))]
    return bytes(header / LANES[int(lane)](values=[value % (1 << lane.bits) for value in filled]))


def read_descriptor(path: Path) -> Descriptor:
    """A member's descriptor file. Raises ValueError or OSError, which name the file."""
    try:
        return Descriptor.from_json(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def conversation(
    switch: tuple[str, str, int], host: tuple[str, str, int], interface: str | None, frames: tuple[str, str] | None
) -> Descriptor:
    """A descriptor for people without one: only its link and its addresses, each (IP, MAC, UDP port), are meaningful."""
    if interface:
        link = MemberLink("packet", interface=interface)
    elif frames:
        link = MemberLink("frames", local=frames[0], remote=frames[1])
    else:
        link = MemberLink()
    ends = {"switch": SwitchAddress(*switch), "host": HostAddress(*host), "link": link}
    identity = {"job": "", "job_id": 1, "epoch": 0, "rank": 0, "src_id": 0, "workers": 1, "window": 1}
    size = {"first_block_id": 0, "block_bytes": CHUNK_BYTES, "mtu": 1500}
    return Descriptor(**identity, **size, **ends)  # type: ignore[arg-type]  # three groups of one keyword list


def exchange(transport: Transport, message: bytes, wait: float, enough: int) -> list[bytes]:
    """Send ``message``; returns the packets that come back, at most ``enough``, until none has come for ``wait`` seconds."""
    transport.send([(message,)])
    came: list[bytes] = []
    while len(came) < enough:
        packets = transport.recv(wait)
        if not packets:
            break
        came += [bytes(packet) for packet in packets]
    return came[:enough]


__all__ = ["build", "conversation", "exchange", "open_transport", "parse_setting", "parse_values", "read_descriptor"]
