"""Payloads of COPY blocks, which come ahead of the results that complete the blocks."""

from __future__ import annotations

import numpy as np

from netsum.packet_batch import Rows
from netsum.stats import Stats
from netsum.wire.codec import Header
from netsum.wire.schema import HEADER_BYTES, AgeOp, Op, Status

_Signature = tuple[int, ...]


def is_early(header: Header) -> bool:
    """Whether a packet brings a payload ahead of its block's result."""
    return header.age_op == AgeOp.EARLY and header.status == Status.OK


class Copies:
    """A payload for each block, kept until a result says that everybody has answered, and that it has this payload.

    A rank gets payloads of blocks that it has not come to yet. They are less than two windows ahead of its oldest: whoever sends
    block b holds the result of b - W, so every rank has sent that block, and holds b - 2W."""

    def __init__(self, window: int) -> None:
        self._reach = 2 * window
        self._held: dict[int, tuple[_Signature, Rows]] = {}

    def put(self, first: int, header: Header, packets: Rows, base: int, stats: Stats) -> None:
        """Copy the payloads from packets, one a row, of blocks from the serial ``first`` on, whose headers differ only in their
        block ids. ``base`` is the oldest block that still needs one."""
        size, kind = header.payload_bytes, header.signature
        if header.op != Op.COPY or not 0 < size <= packets.shape[1] - HEADER_BYTES:
            stats.malformed += len(packets)
            return
        for serial, payload in enumerate(packets[:, HEADER_BYTES : HEADER_BYTES + size].copy(), first):
            if base <= serial < base + self._reach and serial not in self._held:
                self._held[serial] = kind, payload
            else:
                stats.duplicates += 1

    def of(self, first: int, header: Header, most: int) -> Rows:
        """The payloads, one a row, for results with this header: of at most so many blocks from the serial ``first`` on, as far
        as they are here and of one size."""
        kind = header.signature
        found: list[Rows] = []
        for serial in range(first, first + most):
            held = self._held.get(serial)
            if held is None or held[0] != kind or (found and len(held[1]) != len(found[0])):
                break
            found.append(held[1])
        return np.stack(found) if found else np.empty((0, 0), np.uint8)

    def forget(self, serials: range) -> None:
        """These blocks are over."""
        if self._held:
            for serial in serials:
                self._held.pop(serial, None)

    def clear(self) -> None:
        self._held.clear()
