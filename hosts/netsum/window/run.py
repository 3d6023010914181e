"""Blocks that differ only in their payloads, as rows of an array."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol, overload

from netsum.packet_batch import Rows
from netsum.window.block import Block
from netsum.wire.codec import Header
from netsum.wire.schema import HEADER_BYTES


class Taker(Protocol):
    """Takes the results of a run's blocks, by row."""

    def record_result(self, row: int, header: Header, payload: memoryview) -> None:
        """The result of one block."""

    def record_results(self, row: int, header: Header, payloads: Rows) -> None:
        """The results of ``len(payloads)`` blocks from ``row`` on, whose headers differ only in their block ids."""

    def record_loss(self, row: int) -> None:
        """There will be no result."""


class BlockBatch(Sequence[Block]):
    """A row is room for a header, and a payload, or in a run of empty contributions the room for their results. A block is an
    object only once somebody asks for it, and may then be changed; the others are *alike*, and can be sent and received many at
    a time."""

    def __init__(self, like: Block, rows: Rows, taker: Taker) -> None:
        """``like`` is what the blocks have in common; its payload is as long as theirs."""
        self.like = like
        self.rows = rows
        self._taker = taker
        self._blocks: dict[int, Block] = {}
        self._asked = bytearray(len(rows))
        self._delivered = bytearray(len(rows))

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> Block: ...
    @overload
    def __getitem__(self, at: slice) -> list[Block]: ...
    def __getitem__(self, at: int | slice) -> Block | list[Block]:
        if isinstance(at, slice):
            return [self[row] for row in range(len(self))[at]]
        row = range(len(self._asked))[at]
        if not self._asked[row]:
            self._asked[row] = True
            like, payload = self.like, self.rows[row, HEADER_BYTES:].data if self.like.payload else b""
            block = Block(like.gen, like.op, like.lane, payload, like.status, like.dest, like.room, firm=like.firm)
            block.delivered, block.source = bool(self._delivered[row]), like.source
            block.floats, block.number, block.call = like.floats, like.number + row, like.call
            block.more = like.more or row < len(self._asked) - 1
            block.on_result, block.on_lost = (
                partial(self._taker.record_result, row),
                partial(self._taker.record_loss, row),
            )
            self._blocks[row] = block
        return self._blocks[row]

    def alike(self, row: int) -> int:
        """How many blocks from this one on nobody has asked for."""
        asked = self._asked.find(True, row)
        return (len(self._asked) if asked < 0 else asked) - row

    def deliver(self, row: int, header: Header, payloads: Rows) -> None:
        """Hand over the results of blocks that are alike."""
        self._delivered[row : row + len(payloads)] = b"\1" * len(payloads)
        self._taker.record_results(row, header, payloads)
