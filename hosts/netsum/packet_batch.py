# SPDX-License-Identifier: MIT
"""Many packets at once, as rows of an array: no object is made for a packet until a caller reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from netsum.wire.codec import count_alike

Packet = Sequence[bytes | bytearray | memoryview]
"""One packet in parts, which are sent one after the other without being copied together."""
Rows = NDArray[np.uint8]


class SendBatch(Sequence[Packet]):
    """Packets to send, in the order in which they are added."""

    def __init__(self, packets: Sequence[Packet] = ()) -> None:
        self.parts: list[Packet | Rows] = []
        """Single packets, and arrays whose rows are packets of one size."""
        self.number = self.nbytes = 0
        self._singly: list[Packet] | None = None
        for packet in packets:
            self.add(packet)

    def add(self, packet: Packet) -> None:
        self.parts.append(packet)
        self.number += 1
        self.nbytes += sum(map(len, packet))

    def add_rows(self, rows: Rows) -> None:
        self.parts.append(rows)
        self.number += len(rows)
        self.nbytes += rows.size

    def __len__(self) -> int:
        return self.number

    @overload
    def __getitem__(self, at: int) -> Packet: ...
    @overload
    def __getitem__(self, at: slice) -> list[Packet]: ...
    def __getitem__(self, at: int | slice) -> Packet | list[Packet]:
        if self._singly is None or len(self._singly) != self.number:
            self._singly = []
            for part in self.parts:
                self._singly += [(row.data,) for row in part] if isinstance(part, np.ndarray) else [part]
        return self._singly[at]


class ReceiveBatch(Sequence[memoryview]):
    """Packets that were received together: the first ``sizes[i]`` bytes of ``rows[i]``. A congested link has marked some of
    them (``congested``)."""

    def __init__(self, rows: Rows, sizes: NDArray[np.int64], congested: int = 0) -> None:
        self.rows = rows
        self.sizes = sizes
        self.congested = congested

    @classmethod
    def of(cls, packets: Sequence[bytes | memoryview], congested: int = 0) -> ReceiveBatch:
        """Copies of these packets."""
        sizes = np.array([len(packet) for packet in packets], np.int64)
        if len(sizes) and (sizes == sizes[0]).all():
            return cls(np.frombuffer(b"".join(packets), np.uint8).reshape(len(sizes), -1), sizes, congested)
        rows = np.zeros((len(packets), int(sizes.max(initial=0))), np.uint8)
        for row, packet in zip(rows, packets, strict=True):
            row[: len(packet)] = np.frombuffer(packet, np.uint8)
        return cls(rows, sizes, congested)

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, at: int) -> memoryview: ...
    @overload
    def __getitem__(self, at: slice) -> ReceiveBatch: ...
    def __getitem__(self, at: int | slice) -> memoryview | ReceiveBatch:
        if isinstance(at, slice):
            return ReceiveBatch(self.rows[at], self.sizes[at])
        packet: memoryview = self.rows[at, : self.sizes[at]].data
        return packet

    def alike(self, at: int, most: int) -> Rows:
        """The packet at this place, and at most ``most`` in all that follow it and differ only in block ids that count up, one a
        row."""
        rows, sizes = self.rows[at : at + most], self.sizes[at : at + most]
        return rows[: count_alike(rows, sizes), : sizes[0]]


def congested(packets: Sequence[memoryview]) -> int:
    """The number of these packets that a congested link has marked, as far as that is known."""
    return packets.congested if isinstance(packets, ReceiveBatch) else 0
