# SPDX-License-Identifier: MIT
"""Large calls of ranks that share memory: each puts its lanes there, and computes an equal part of the result for all.

The array is cut into *pieces*. In step t each rank writes its lanes of piece t, and then combines the lanes of all ranks in its
own part of piece t - 1. A block to which every rank contributes ends the step: its result says that all have done that. So
lanes are read only when they are there, and two places for a rank's lanes are enough: those of piece t - 2 were read in step t
- 1. After the last step every rank copies the result. It submits nothing of the next call before that, so no rank begins to
overwrite it.

Lanes are those of the call by blocks, but in this machine's byte order, and the results are the same. What goes wrong shows in
the blocks that end the steps, as in a call by blocks. If the ranks do not share the same memory any more, or one was evicted,
all ranks learn that from the same result, and make the call by blocks.

Cost: a round trip for each piece, and one more; n times the array's lanes are written to memory, and read once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from netsum.collectives.abort import Verdict
from netsum.collectives.call import Context
from netsum.collectives.negotiation import Negotiation
from netsum.collectives.pipeline import BlockPipeline, Lanes
from netsum.core.blocks import Block
from netsum.core.endpoint import CallMemory
from netsum.core.progress import Flow
from netsum.numeric.fixed_point import HOST_LANES, WIRE_LANES, Array, combine_lanes
from netsum.wire.codec import Header
from netsum.wire.schema import CHUNK_BYTES, Lane, Op

LEAST: Final = 128
"""Blocks from which on this takes less of the processors' time than the call by blocks: about what the steps cost."""
_AT_ONCE: Final = 512 << 10
"""Bytes of lanes that are converted at once: they stay in the cache of one core."""
_NOWHERE: Final = 0
"""The identity of the memory of a rank that has none."""
_LARGEST: Final = (1 << Lane.L64.bits) - 1


def send(
    context: Context,
    pipeline: BlockPipeline,
    array: Array,
    lanes: Lanes,
    agreed: Negotiation,
    *,
    skip_zeros: bool = False,
    settle: Callable[[], Flow] | None = None,
) -> Flow:
    """The flow of :meth:`BlockPipeline.send`, in memory that all ranks share if there is some and the call is large."""
    if context.memory_use.possible and pipeline.partition.number >= LEAST:
        yield agreed.complete
        if not len(agreed.not_finite):
            call = _WholeCall(context, pipeline, lanes)
            result = yield from call.run(array)
            if result is not None:
                numbers, report = pipeline.partition.all_numbers, context.report
                report.blocks = len(agreed.nonzero(numbers) if skip_zeros else numbers)
                report.skipped = len(numbers) - report.blocks
                report.min_worker_cnt = agreed.members if report.blocks else None
                return result
            context.progress.opening += call.steps
            context.progress.skipped = 0
    return (yield from pipeline.send(array, lanes, agreed, skip_zeros=skip_zeros, settle=settle))


class _WholeCall:
    """One call, of which this rank has done these ``steps``."""

    def __init__(self, context: Context, pipeline: BlockPipeline, lanes: Lanes) -> None:
        self._context, self._pipeline, self._partition, self._lanes = context, pipeline, pipeline.partition, lanes
        row_bytes = self._partition.width * lanes.dtype.itemsize
        memory = context.session.call_memory
        self._memory = memory if memory is not None and memory.allocate(self._partition.number * row_bytes) else None
        if self._memory is not None:
            self._piece = self._memory.lanes.shape[2] // context.block_bytes
            self._round = self._memory.results.size // row_bytes
        self._rows = max(1, _AT_ONCE // context.block_bytes)
        self.steps = 0

    def run(self, array: Array) -> Flow:
        """The flow; returns what this rank gets of the result, or None if the call has to be made by blocks."""
        memory, partition = self._memory, self._partition
        if memory is None:
            yield from self._all_done(_NOWHERE)
            return None
        result = None if self._is_view() else self._pipeline.result_for(self._lanes.dtype)
        for blocks in _cut(partition.all_numbers, self._round):
            values = self._values(memory, len(blocks))
            pieces, slots = list(_cut(blocks, self._piece)), memory.lanes.shape[1]
            for step in range(len(pieces) + 1):
                if step < len(pieces):
                    self._encode(memory, array, pieces[step], step % slots)
                if step:
                    piece = pieces[step - 1]
                    self._combine(memory, array, piece, (step - 1) % slots, values[piece.start - blocks.start :])
                if not (yield from self._all_done(memory.identity)):
                    return None
                self._context.progress.skipped += (len(pieces[step - 1]) if step else 0) - 1  # of a block
            if result is None:
                return values.reshape(-1)[: array.size]
            owned = partition.owned(self._context.rank, blocks)
            partition.place(result, values, blocks, owned, self._pipeline.first)
        return result

    def _is_view(self) -> bool:
        """True if the result can stay where it is until the caller copies it: all in one place, and all this rank's."""
        whole = self._partition.simple and self._partition.owned(self._context.rank, range(1)) is None
        return whole and self._partition.number <= self._round and self._context.copied and self._context.out is None

    def _values(self, memory: CallMemory, blocks: int) -> Array:
        """The result of this many blocks, one a row."""
        width, dtype = self._partition.width, self._lanes.dtype
        return memory.results[: blocks * width * dtype.itemsize].view(dtype).reshape(blocks, width)

    def _lanes_of(self, memory: CallMemory, index: int, slot: int, blocks: int) -> Array:
        """A rank's lanes of this many blocks, one a row."""
        flat = memory.lanes[index, slot, : blocks * self._context.block_bytes]
        return flat.view(HOST_LANES[self._lanes.lane]).reshape(blocks, -1)

    def _encode(self, memory: CallMemory, array: Array, piece: range, slot: int) -> None:
        """Write the lanes that other ranks combine."""
        own, mine = self._lanes_of(memory, memory.index, slot, len(piece)), _share(memory, piece)
        for part in (range(piece.start, mine.start), range(mine.stop, piece.stop)):
            for numbers in _cut(part, self._rows):
                self._encode_into(own[numbers.start - piece.start : numbers.stop - piece.start], array, numbers)

    def _encode_into(self, out: Array, array: Array, numbers: range) -> None:
        lanes = self._lanes.encode(self._partition.rows(array, numbers), numbers, out)
        if lanes is not out:
            out[...] = lanes

    def _combine(self, memory: CallMemory, array: Array, piece: range, slot: int, values: Array) -> None:
        """Combine the lanes in this rank's part of a piece, whose results are the first of these ``values``."""
        ranks = memory.ranks
        others = [self._lanes_of(memory, rank, slot, len(piece)) for rank in range(ranks) if rank != memory.index]
        for numbers in _cut(_share(memory, piece), self._rows):
            rows = slice(numbers.start - piece.start, numbers.stop - piece.start)
            counts, out = np.full(len(numbers), ranks, np.int64), values[rows]
            held = np.empty_like(others[0][rows])
            self._encode_into(held, array, numbers)
            for other in others:
                combine_lanes(self._pipeline.op, held, other[rows])
            if (found := self._lanes.decode(held, numbers, counts, counts, out)) is not out:
                out[...] = found

    def _all_done(self, identity: int) -> Flow:
        """Tell the other ranks that this one has done a step in the memory of this ``identity``; returns whether all have, in the
        same memory. All ranks get the same answer."""
        context, wire = self._context, WIRE_LANES[Lane.L64]
        own = np.array([identity, _LARGEST - identity], wire).tobytes().ljust(CHUNK_BYTES, b"\0")
        received: list[tuple[Header, bytes]] = []
        block = Block(context.gen, Op.MAX, Lane.L64, own, no_aging=context.no_aging)
        block.on_result = lambda header, payload: received.append((header, bytes(payload)))
        context.session.submit(block)
        self.steps += 1
        yield lambda: bool(received)
        ((header, payload),) = received
        verdict = Verdict()
        verdict.add(header.status)
        verdict.raise_failure(None)
        largest, complement = np.frombuffer(payload, wire, 2).tolist()
        smallest = _LARGEST - complement
        if smallest == _NOWHERE:
            context.memory_use.possible = False
        return largest == smallest != _NOWHERE and self._memory is not None and header.worker_cnt == self._memory.ranks


def _cut(numbers: range, size: int) -> Iterator[range]:
    return (numbers[start : start + size] for start in range(0, len(numbers), size))


def _share(memory: CallMemory, piece: range) -> range:
    """The blocks of a piece whose result this rank computes."""
    begin, end = (len(piece) * at // memory.ranks for at in (memory.index, memory.index + 1))
    return piece[begin:end]
