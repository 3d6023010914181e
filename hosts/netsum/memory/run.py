# SPDX-License-Identifier: MIT
"""Instructions of one kind that are sent many at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from netsum.packet_batch import Rows
from netsum.wire.codec import LEAST_BYTES, WORD_BYTES, without_zeros
from netsum.wire.memory import (
    ADDRESS_STEP,
    CLIENT_WINDOW,
    MEMORY_DTYPE,
    MEMORY_HEADER_BYTES,
    OFFSETS,
    POSITIONED,
    SEGMENT_BYTES,
    WITHOUT_PAYLOAD,
    Flag,
    Instruction,
    LaneType,
    MemoryHeader,
    pack_memory,
)

OnReply = Callable[[int, MemoryHeader, memoryview], None]
"""Takes a reply: the row that it answers, its header, and its payload, with all zeros."""

_HEAD: Final = MEMORY_HEADER_BYTES
_ARGUMENT: Final = OFFSETS["argument"]


class Task:
    """The state that a caller waits for: the runs of one call.

    Attributes:
        left: instructions without a reply.
        error: why the call fails; nothing more of it is begun then.
        answer: the status of the last reply that said to come again.
    """

    def __init__(self) -> None:
        self.left = 0
        self.error: BaseException | None = None
        self.answer = ""

    def done(self) -> bool:
        return not self.left or self.error is not None


class InstructionRun:
    """Row i is an instruction about ``length`` bytes at ``addresses[i]``.

    Attributes:
        data: bytes that are sent, row i from ``offsets[i]`` on; None: nothing is sent.
        into: where replies' payloads go, in the same way; None: replies have none, or ``on_reply`` takes them.
        arguments, segments: by row, if there are any.
        begun: rows that have been sent.
        positions: by shard, what its last reply said of its position, which requests show again; None: nothing is shown.
        may_wait: whether replies come only once other clients have sent theirs: gradients of a step.
    """

    def __init__(
        self,
        task: Task,
        region: str,
        header: MemoryHeader,
        addresses: NDArray[np.uint64],
        *,
        offsets: NDArray[np.int64] | None = None,
        data: NDArray[np.uint8] | None = None,
        into: NDArray[np.uint8] | None = None,
        arguments: NDArray[np.uint64] | None = None,
        segments: NDArray[np.uint64] | None = None,
        on_reply: OnReply | None = None,
        spread: tuple[int, int] = (ADDRESS_STEP, 1),
        positions: NDArray[np.uint64] | None = None,
    ) -> None:
        """``header`` says everything that is the same in all rows. Without ``offsets``, rows follow each other in ``data`` and
        ``into``. ``on_reply`` takes replies instead of ``into``. ``spread`` is the region's granule and number of shards."""
        self.task, self.region, self.header, self.addresses = task, region, header, addresses
        self.instruction, self.length, self.number = Instruction(header.instruction), header.length, len(addresses)
        self.arguments, self.segments, self.on_reply = arguments, segments, on_reply
        self.positions = positions
        self._behind = 0 if positions is None or self.instruction in POSITIONED else SEGMENT_BYTES
        if self._behind:  # the argument is something else
            self.header = header._replace(flags=header.flags | Flag.POSITION)
        self.begun = 0
        self.may_wait = self.instruction == Instruction.OPTIMIZE and header.lane == LaneType.FLOAT32
        self.sent_bytes = 0 if self.instruction in WITHOUT_PAYLOAD else self.length
        self.reply_bytes = _reply_bytes(self.instruction, self.length)
        self._offsets = offsets
        self._data = None if data is None else self._rows(data, self.sent_bytes)
        self._into = None if into is None else self._rows(into, self.reply_bytes)
        whole = self.sent_bytes >= LEAST_BYTES and not self.sent_bytes % WORD_BYTES
        self._may_be_sparse = self._data is not None and whole
        self._looked, self._sparse = 0, np.zeros(0, bool)
        self._shift, self._mask = np.uint64(spread[0].bit_length() - 1), np.uint64(spread[1] - 1)

    def _rows(self, flat: NDArray[np.uint8], length: int) -> NDArray[np.uint8]:
        if self._offsets is None:
            return flat[: self.number * length].reshape(self.number, length)
        return sliding_window_view(flat, length, writeable=True)

    def _at(self, rows: slice | NDArray[np.int64]) -> Any:
        return rows if self._offsets is None else self._offsets[rows]

    def _look(self) -> None:
        """Find out which of the next rows are sent without their zeros."""
        assert self._data is not None
        rows = slice(self.begun, self.begun + CLIENT_WINDOW)
        words = np.ascontiguousarray(self._data[self._at(rows)]).view(np.uint32)
        self._sparse = 2 * np.count_nonzero(words, axis=1) < self.sent_bytes // WORD_BYTES
        self._looked = self.begun + len(self._sparse)

    def alike(self, most: int) -> int:
        """The number of the next rows that are packets of one size; 0: the next one is sent without its zeros."""
        number = min(most, self.number - self.begun)
        if not self._may_be_sparse:
            return number
        if self.begun == self._looked:
            self._look()
        odd = self._sparse[len(self._sparse) - (self._looked - self.begun) :][:number]
        return int(odd.argmax()) if odd.any() else len(odd)

    def shards(self, number: int) -> NDArray[np.uint64]:
        """The shard of each of the next rows."""
        return self.addresses[self.begun : self.begun + number] >> self._shift & self._mask

    @property
    def head_bytes(self) -> int:
        return _HEAD + (0 if self.segments is None else SEGMENT_BYTES * self.segments.shape[1]) + self._behind

    def write(self, ring: Rows, client: int, sequence: int) -> int:
        """Write the next rows' packets into the rows of ``ring``; returns their size."""
        first, number, head = self.begun, len(ring), self.head_bytes
        path = () if self.segments is None else tuple(int(part) for part in self.segments[first])
        path += (0,) if self._behind else ()
        header = self.header._replace(
            client=client,
            sequence=sequence,
            address=int(self.addresses[first]),
            argument=self.header.argument if self.arguments is None else int(self.arguments[first]),
        )
        ring[:, :head] = np.frombuffer(pack_memory(header, path), np.uint8)
        rows = slice(first, first + number)
        if number > 1:
            heads = ring[:, :_HEAD].view(MEMORY_DTYPE)[:, 0]
            heads["address"] = self.addresses[rows]
            heads["sequence"] = np.arange(sequence, sequence + number)
            if self.arguments is not None:
                heads["argument"] = self.arguments[rows]
            if self.segments is not None:
                ring[:, _HEAD : head - self._behind].view(">u8")[:] = self.segments[rows]
        if self.positions is not None:
            at = head - SEGMENT_BYTES if self._behind else _ARGUMENT
            ring[:, at : at + SEGMENT_BYTES].view(">u8")[:, 0] = self.positions[self.shards(number)]
        if self._data is not None:
            ring[:, head : head + self.sent_bytes] = self._data[self._at(rows)]
            return head + self.sent_bytes
        return head

    def note_positions(self, shards: NDArray[Any], positions: NDArray[Any]) -> None:
        """Replies came from these shards, and said these positions."""
        if self.positions is not None:
            np.maximum.at(self.positions, shards.astype(np.uint64) & self._mask, positions.astype(np.uint64))

    def write_sparse(self, row: Rows, client: int, sequence: int) -> int:
        """The same for one row that is sent without its zeros."""
        assert self._data is not None
        size = self.write(row[None], client, sequence)
        short = without_zeros(row[self.head_bytes : size].tobytes())
        assert short is not None
        row[OFFSETS["flags"]] |= int(Flag.COMPRESSED)
        end = self.head_bytes + len(short)
        row[self.head_bytes : end] = np.frombuffer(short, np.uint8)
        return end

    def put(self, rows: NDArray[np.int64], payloads: NDArray[np.uint8]) -> None:
        """Replies' payloads, a row each."""
        if self._into is not None:
            first, last = int(rows[0]), int(rows[-1])
            straight = self._offsets is None and last - first + 1 == len(rows)
            self._into[slice(first, last + 1) if straight else self._at(rows)] = payloads


@dataclass(slots=True)
class Flight:
    """Instructions that were sent together: ``run``'s rows from ``row`` on have the numbers from ``first`` on.

    Attributes:
        time, order, tries: as in :class:`netsum.core.blocks.InFlight`.
        number: tells this flight from others.
    """

    run: InstructionRun
    row: int
    first: int
    time: float
    order: int
    number: int
    tries: int = 1

    def row_of(self, sequence: int) -> int:
        return self.row + sequence - self.first


def _reply_bytes(instruction: Instruction, length: int) -> int:
    if instruction in (Instruction.READ, Instruction.FETCH_ADD):
        return length
    return length // 2 if instruction == Instruction.COMPARE_SWAP else 0
