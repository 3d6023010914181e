# SPDX-License-Identifier: MIT
"""Describes packets in words: one row of text for each, for tables and for lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from netsum.text import counted
from netsum.wire.codec import Header, value_name
from netsum.wire.schema import EVERYONE, SWITCH_SOURCE, UDP_PORT, VERSION, Hop, Lane, Status


class PacketRow(NamedTuple):
    """A packet in words; the field names are the columns' titles."""

    kind: str
    job: str
    block: str
    generation: str
    source: str
    counts: str
    operation: str
    payload: str
    status: str


COLUMNS: tuple[str, ...] = tuple(name.replace("counts", "workers/data") for name in PacketRow._fields)
"""Titles of a row's columns."""


def kind(header: Header, *, from_switch: bool) -> str:
    """The kind of the packet, in at most two words."""
    if header.hop == Hop.UP:
        return "partial" if header.lane_cnt else "empty partial"
    if not from_switch and header.hop != Hop.DOWN:
        return "contribution" if header.lane_cnt else "empty contribution"
    if header.status in (Status.STALE, Status.REFUSED, Status.AGAIN):
        return "answer"
    if header.lane_cnt or not header.data_cnt or header.status:
        return "result"
    # The sum is in the slot and not in this packet: it must be fetched, or is for another rank.
    return "notice" if header.dest == EVERYONE else "header-only result"


def from_switch(source: str) -> bool:
    """True if the packet comes from a switch; ``source`` is ``ip:port``."""
    return source.rpartition(":")[2] == str(UDP_PORT)


def row(header: Header, payload: bytes, *, from_switch: bool) -> PacketRow:
    status = value_name("status", header.status)
    if header.status == Status.REFUSED:
        status += f": {value_name('reason', header.reason)}"
    elif header.degraded:
        status += ", partial"
    if header.version != VERSION:
        status += f", version {header.version}"
    if header.status == Status.AGAIN:
        size = f"needs room for {counted(header.payload_bytes, 'byte')}"
    elif header.lane_cnt:
        size = f"{header.lane_cnt} x {value_name('lane', header.lane)}"
        if header.payload_bytes != len(payload):
            size += f", but {counted(len(payload), 'byte')}"
    else:
        size = f"room for {counted(len(payload), 'byte')}" if payload else "-"
    return PacketRow(
        kind=kind(header, from_switch=from_switch),
        job=str(header.job_id),
        block=str(header.block_id),
        generation=str(header.gen_id) + (f" call {header.call_fingerprint:014x}" if header.call_fingerprint else ""),
        source=str(header.receiver_id if header.src_id == SWITCH_SOURCE else header.src_id),
        counts=f"{header.worker_cnt}/{header.data_cnt}",
        operation=value_name("op", header.op) + ("" if header.dest == EVERYONE else f" to rank {header.dest}"),
        payload=size,
        status=status,
    )


def line(parts: PacketRow) -> str:
    return (
        f"{parts.kind:<18} job {parts.job} block {parts.block} gen {parts.generation} source {parts.source}  "
        f"{parts.counts}  {parts.operation} {parts.payload}  {parts.status}"
    )


def lanes(header: Header, payload: bytes) -> np.ndarray[tuple[int], np.dtype[np.unsignedinteger]]:
    """The payload's lanes as unsigned integers, biased as on the wire; without lanes that are cut off."""
    if header.lane > Lane.L64:
        return np.empty(0, np.uint8)
    width = Lane(header.lane).bytes
    whole = min(header.lane_cnt, len(payload) // width)
    return np.frombuffer(payload, f">u{width}", whole)


def some(values: Sequence[int], most: int) -> str:
    """The first ``most`` of the values, and how many more there are."""
    text = " ".join(str(value) for value in values[:most])
    return text + (f" ... {len(values) - most} more" if len(values) > most else "")
