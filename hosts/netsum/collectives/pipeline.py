# SPDX-License-Identifier: MIT
"""Sends the blocks of a call and collects their results, a group of blocks at a time, as fast as the window takes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from netsum.collectives.abort import Verdict, give_up, take_remaining
from netsum.collectives.call import Context
from netsum.collectives.negotiation import Negotiation
from netsum.collectives.partition import Layout
from netsum.core.blocks import Block, BlockBatch
from netsum.core.progress import SUBMITTED, Condition, Flow
from netsum.errors import CallError, DesynchronizedError
from netsum.numeric.fixed_point import HOST_LANES, WIRE_LANES, Array, Counts, Numbers
from netsum.packet_batch import Rows
from netsum.report import Report
from netsum.wire.codec import Header
from netsum.wire.schema import CHUNK_BYTES, EVERYONE, HEADER_BYTES, AgeOp, Lane, Op, Status

Encode = Callable[[range], tuple[Array, Sequence[Status] | None]]
"""Lanes and statuses of these blocks; None: all are OK."""


class Lanes(Protocol):
    """Converts the values of a call to lanes and back: :mod:`netsum.numeric.fixed_point` has one for each kind of arithmetic."""

    @property
    def lane(self) -> Lane:
        """The width of the lanes."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the decoded values."""

    def encode(self, rows: Array, numbers: Numbers, out: Array | None = None, /) -> Array:
        """Lanes of these blocks, of the same shape as ``rows``, one row a block; they may be put into ``out``, if it is given."""

    def decode(self, lanes: Array, numbers: Numbers, data_cnt: Counts, worker_cnt: Counts, out: Array | None = None, /) -> Array:
        """Values of these blocks' results, one row a block. Of the ``worker_cnt`` ranks that answered, ``data_cnt`` contributed.
        What the lanes were is lost; if ``out`` is given, it may be what is returned."""


class BlockGroup:
    """Some blocks of a call, one a row, and their results as they arrive."""

    def __init__(self, numbers: Numbers, width: int, lane: Lane) -> None:
        self.numbers = numbers
        self.rows = rows = len(numbers)
        self.missing = rows
        self._wire = WIRE_LANES[lane]
        self.lanes = np.empty((rows, width), HOST_LANES[lane])
        counts: NDArray[np.int64] = np.zeros((2, rows), np.int64)
        self.data_cnt, self.worker_cnt = counts
        self.statuses = [0] * rows
        self.abstained: NDArray[np.bool_] | None = None  # rows that this member did not contribute to
        self.owned: NDArray[np.bool_] | None = None  # rows whose results this member gets; None: all
        self.aborted: int | None = None  # what call the first row's result says that was given up
        self._late: list[int] = []  # rows whose result lacks this member's contribution
        self._lost: list[int] = []
        self._degraded = 0

    def complete(self) -> bool:
        return self.missing == 0

    def record_result(self, row: int, header: Header, payload: memoryview) -> None:
        self.missing -= 1
        self.statuses[row] = header.status
        self.data_cnt[row] = header.data_cnt
        self.worker_cnt[row] = header.worker_cnt
        if header.status == Status.ABORT and not row:
            self.aborted = header.call_fingerprint
        if header.degraded:
            self._degraded += 1
            if header.age_op == AgeOp.LATE:
                self._late.append(row)
        lanes = np.frombuffer(payload or b"", self._wire, min(len(payload) // self._wire.itemsize, self.lanes.shape[1]))
        self.lanes[row, : len(lanes)] = lanes
        self.lanes[row, len(lanes) :] = 0

    def record_results(self, row: int, header: Header, payloads: Rows) -> None:
        """The results of several blocks that are OK and whole, whose headers differ only in their block ids."""
        lanes = payloads.view(self._wire)
        rows = slice(row, row + len(lanes))
        self.missing -= len(lanes)
        self.data_cnt[rows] = header.data_cnt
        self.worker_cnt[rows] = header.worker_cnt
        self.lanes[rows, : lanes.shape[1]] = lanes
        if lanes.shape[1] < self.lanes.shape[1]:
            self.lanes[rows, lanes.shape[1] :] = 0

    def record_loss(self, row: int) -> None:
        self.missing -= 1
        self.lanes[row] = 0
        self._lost.append(row)

    def missed(self) -> list[int]:
        """Numbers of the blocks whose result lacks this member's contribution."""
        if self.abstained is None and not self._late and not self._lost:
            return []
        rows = {*self._late, *self._lost}
        if self.abstained is not None:
            rows.update(int(row) for row in np.flatnonzero(self.abstained))
        return [int(self.numbers[row]) for row in sorted(rows)]

    def report_to(self, report: Report, *, overflowed: bool = True) -> None:
        """Add this complete group to the call's report. With ``overflowed``, blocks were passed because their values did not
        fit."""
        report.blocks += self.rows
        report.degraded += self._degraded
        report.late += len(self._late)
        report.lost += len(self._lost)
        report.missed += len(self.missed())
        report.overflowed += int(self.abstained.sum()) if overflowed and self.abstained is not None else 0
        if len(self._lost) < self.rows:
            there = self.worker_cnt if not self._lost else np.delete(self.worker_cnt, self._lost)
            fewest = int(there.min())
            report.min_worker_cnt = fewest if report.min_worker_cnt is None else min(fewest, report.min_worker_cnt)


class BlockPipeline:
    """Sends a call's array, cut into blocks, of whose elements ``per_chunk`` make a chunk (default: each is a lane).

    Attributes:
        partition: the blocks.
        verdict: the combined status of the results.
        missed: numbers of the blocks whose result lacks this member's contribution.
    """

    def __init__(
        self,
        context: Context,
        layout: Layout,
        op: Op,
        lane: Lane,
        per_chunk: int | None = None,
        *,
        floats: bool = False,
    ) -> None:
        """``floats``: the lanes are floats."""
        self._context = context
        self._floats = floats
        self.op = op
        self.lane = lane
        self.verdict = Verdict()
        self._lanes = context.block_bytes // lane.bytes  # of a block
        per_chunk = per_chunk or CHUNK_BYTES // lane.bytes
        self.partition = layout.partition(context.block_bytes // CHUNK_BYTES * per_chunk, per_chunk)
        self._span = self.partition.span(context.rank)
        self.missed: list[int] = []
        self._group = context.session.group
        context.progress.blocks += self.partition.number

    @property
    def first(self) -> int:
        """The element with which this rank's result begins."""
        start: int = self._span.start
        return start

    def groups(self) -> Iterator[range]:
        """The numbers of the blocks that are converted and submitted together."""
        return self.partition.groups(self._group)

    def send(
        self,
        array: Array,
        lanes: Lanes,
        agreed: Negotiation,
        *,
        skip_zeros: bool = False,
        settle: Callable[[], Flow] | None = None,
    ) -> Flow:
        """The flow that sends a flat array and returns what this rank gets of its result, in the lanes' dtype. With
        ``skip_zeros``, blocks that are zeros on every rank are not sent. With ``settle``, blocks in which a rank has a NaN or an
        infinity are sent last, after its flow, which agrees on them."""
        result = self.result_for(lanes.dtype)
        pending: deque[BlockGroup] = deque()
        for group_numbers in self.groups():
            yield agreed.known(group_numbers)
            numbers = agreed.nonzero(group_numbers) if skip_zeros or settle is not None else group_numbers
            if len(numbers) < len(group_numbers):
                self._count_skipped(len(group_numbers) - len(numbers))
                owned = self.partition.owned(self._context.rank, group_numbers)
                zeros = np.zeros((len(group_numbers), self.partition.width), result.dtype)
                self.partition.place(result, zeros, group_numbers, owned, self.first)
            if not len(numbers):
                continue
            rows, abstained = self.partition.rows(array, numbers), agreed.overflowed(numbers)
            if abstained is not None:
                rows = np.where(abstained[:, None], np.zeros(1, rows.dtype), rows)
            final = group_numbers.stop == self.partition.number
            pending.append(self.submit(lanes.encode(rows, numbers), numbers, abstained=abstained, final=final))
            yield self.window_has_room()
            self._receive(pending, lanes, result)
        if settle is not None:
            yield agreed.complete
            unsettled = agreed.not_finite
            if len(unsettled):
                yield from settle()
            self._count_skipped(-len(unsettled))
            for first in range(0, len(unsettled), self._group):
                numbers = unsettled[first : first + self._group]
                pending.append(self.submit(lanes.encode(self.partition.rows(array, numbers), numbers), numbers))
                yield self.window_has_room()
                self._receive(pending, lanes, result)
        yield SUBMITTED
        while pending:
            yield pending[0].complete
            self._receive(pending, lanes, result)
        self.verdict.raise_failure(None)
        return result

    def result_for(self, dtype: np.dtype[Any]) -> Array:
        """Room for what this rank gets of the result: the caller's ``out`` if possible."""
        out, size = self._context.out, self._span.stop - self._span.start
        if out is None or out.dtype != dtype or out.size != size:
            return np.empty(size, dtype)
        self._context.filled = True
        return out.reshape(-1)

    def parts(self, result: Array) -> list[Array]:
        """The layout's segments in the result; empty where this rank gets none."""
        return self.partition.parts(result, self._context.rank)

    def _count_skipped(self, blocks: int) -> None:
        self._context.report.skipped += blocks
        self._context.progress.skipped += blocks

    def _receive(self, pending: deque[BlockGroup], lanes: Lanes, result: Array) -> None:
        """Decode the complete groups into the result, in order."""
        while pending and pending[0].complete():
            group = pending.popleft()
            self.finish(group)
            if self.verdict.highest == Status.OK:
                self.decode(group, lanes, result)

    def decode(self, group: BlockGroup, lanes: Lanes, result: Array) -> None:
        self.write(group, result, lambda out: lanes.decode(group.lanes, group.numbers, group.data_cnt, group.worker_cnt, out))

    def write(self, group: BlockGroup, result: Array, decode: Callable[[Array | None], Array]) -> None:
        """Put a group's values into the result: where ``decode`` makes them, if it takes the place that it is offered."""
        out = self.partition.view(result, group.numbers) if group.owned is None else None
        if (rows := decode(out)) is not out:
            self.partition.place(result, rows, group.numbers, group.owned, self.first)

    def finish(self, group: BlockGroup) -> None:
        """Note how a complete group went."""
        self.verdict.add(max(group.statuses))
        group.report_to(self._context.report, overflowed=self._context.contribute)
        self.missed += group.missed()

    def window_has_room(self) -> Condition:
        """The condition that the window has taken most of what was submitted, so that the next group can be converted."""
        session = self._context.session
        return lambda: session.queued < self._group

    def submit(
        self,
        lanes: Array,
        numbers: Numbers,
        statuses: Sequence[Status] | None = None,
        *,
        abstained: NDArray[np.bool_] | None = None,
        final: bool = False,
        source: int = EVERYONE,
        more: bool = False,
    ) -> BlockGroup:
        """Submit rows of lanes, which are copied, as the blocks ``numbers``. A row whose status is not OK becomes an empty
        contribution with that status; ``abstained`` rows are answered without adding anything. ``source`` is this rank, if no
        other has payloads for these blocks; ``more`` says that the call's next blocks go together with these."""
        group = BlockGroup(numbers, self._lanes, self.lane)
        group.abstained = abstained
        group.owned = self.partition.owned(self._context.rank, numbers)
        width = self._context.block_bytes
        rows = np.empty((len(numbers), HEADER_BYTES + width), np.uint8)
        rows[:, HEADER_BYTES:].view(WIRE_LANES[self.lane])[:] = lanes
        like = Block(self._context.gen, self.op, self.lane, rows[0, HEADER_BYTES:].data, no_aging=self._context.no_aging)
        like.dest, like.more, like.source = self.partition.owner[numbers[0]], more, source
        like.call_fingerprint = self._context.call_fingerprint
        like.floats, like.number = self._floats, int(numbers[0])  # floats are never left out
        if self._floats and not self._context.session.by_chain:
            raise DesynchronizedError("the job's members no longer add floats, in the middle of a call with scale='float'")
        batch = BlockBatch(like, rows, group)
        for row in self.partition.irregular(numbers):
            number = numbers[row]
            if self.partition.sizes[number] != width or self.partition.owner[number] != like.dest:
                payload = rows[row, HEADER_BYTES : HEADER_BYTES + self.partition.sizes[number]].data
                batch.change(row, payload=payload, dest=self.partition.owner[number])
        for row in () if abstained is None else np.flatnonzero(abstained).tolist():
            batch.change(row, passing=True, room=self.partition.sizes[numbers[row]], payload=b"")
        if statuses is not None and any(statuses):
            for row in np.flatnonzero(statuses).tolist():
                batch.change(row, status=statuses[row], payload=b"")
        if final:
            batch.change(len(numbers) - 1, final=True)
        self._context.session.submit_all(batch)
        return group

    def submit_empty(self, numbers: Numbers, *, source: int, more: bool = False) -> BlockGroup:
        """Submit empty contributions to the blocks ``numbers``, whose payloads come from ``source``; ``more`` is as in
        :meth:`submit`."""
        group = BlockGroup(numbers, self._lanes, self.lane)
        like = Block(
            self._context.gen,
            self.op,
            self.lane,
            dest=self.partition.owner[numbers[0]],
            no_aging=self._context.no_aging,
        )
        like.more, like.source = more, source
        batch = BlockBatch(like, np.zeros((len(numbers), HEADER_BYTES), np.uint8), group)
        for row in self.partition.irregular(numbers):
            if self.partition.owner[numbers[row]] != like.dest:
                batch.change(row, dest=self.partition.owner[numbers[row]])
        self._context.session.submit_all(batch)
        return group


def send_at_once(context: Context, pipeline: BlockPipeline, encode: Encode, error: CallError | None) -> Flow:
    """The flow that sends all blocks at once: nothing is agreed on first, and the call has no opening, which saves a round
    trip and a packet. Only for jobs that wait for every rank. Returns the groups, complete. If the call has been given up,
    those that are not in progress bring no values, and are not among them. ``error`` is why this rank gives it up, if it does,
    and is raised."""
    if error is not None:
        yield from give_up(context, error, pipeline.partition.number, pipeline.op, pipeline.lane)
    groups: list[BlockGroup] = []
    begun = 0
    for numbers in pipeline.groups():
        if groups and groups[0].aborted is not None:
            break
        lanes, statuses = encode(numbers)
        begun, final = numbers.stop, numbers.stop == pipeline.partition.number
        groups.append(pipeline.submit(lanes, numbers, statuses, final=final))
        if not final:
            yield pipeline.window_has_room()
    yield lambda: not sum([group.missing for group in groups])
    if (call := groups[0].aborted) is not None:
        yield from take_remaining(context, call, begun, pipeline.op, pipeline.lane)
    return groups
