"""The blocks of a call: lanes on the way out, results on the way in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from netsum.block import Block
from netsum.collectives.call import Context
from netsum.collectives.layout import Layout
from netsum.fixed_point import WIRE_LANES, Array
from netsum.report import Report
from netsum.wire.codec import Header
from netsum.wire.schema import EVERYONE, AgeOp, Lane, Op, Status

GROUP: Final = 64
"""Blocks that are converted in one go: enough that numpy's overhead vanishes, few enough to stay in the cache."""


Numbers = range | NDArray[np.int64]
"""Of blocks, ascending."""


class Group:
    """Some blocks of a call: their lanes on the way out and the results on the way in. Rows are blocks."""

    def __init__(self, numbers: Numbers, width: int, lane: Lane) -> None:
        self.numbers = numbers
        self.rows = rows = len(numbers)
        self.missing = rows
        self.results = np.zeros((rows, width), WIRE_LANES[lane])
        self._bytes = self.results.view(np.uint8).reshape(rows, -1)
        self.data_cnt: NDArray[np.int64] = np.zeros(rows, np.int64)
        self.src_cnt: NDArray[np.int64] = np.zeros(rows, np.int64)
        self.statuses = [0] * rows
        self.passed: NDArray[np.bool_] | None = None  # rows that this member did not contribute to
        self.mine: NDArray[np.bool_] | None = None  # rows whose results this member gets; None: all
        self._late: list[int] = []  # rows whose result is without this member's contribution
        self._lost: list[int] = []
        self._degraded = 0

    def take(self, row: int, header: Header, payload: memoryview) -> None:
        """The result of one block."""
        self.missing -= 1
        self.statuses[row] = header.status
        self.data_cnt[row] = header.data_cnt
        self.src_cnt[row] = header.src_cnt
        if header.degraded:
            self._degraded += 1
            if header.age_op == AgeOp.LATE:
                self._late.append(row)
        if payload:
            size = min(len(payload), self._bytes.shape[1])
            self._bytes[row, :size] = np.frombuffer(payload, np.uint8, size)

    def lose(self, row: int) -> None:
        """There will be no result for this block."""
        self.missing -= 1
        self._lost.append(row)

    def missed(self) -> list[int]:
        """Numbers of the blocks whose result is without this member's contribution."""
        rows = {*self._late, *self._lost}
        if self.passed is not None:
            rows.update(int(row) for row in np.flatnonzero(self.passed))
        return [int(self.numbers[row]) for row in sorted(rows)]

    def report_to(self, report: Report, *, unfit: bool = True) -> None:
        """Add this group to the call's report, all of its results being there. ``unfit``: that is why blocks were passed."""
        report.blocks += self.rows
        report.degraded += self._degraded
        report.late += len(self._late)
        report.lost += len(self._lost)
        report.missed += len(self.missed()) if self._late or self._lost or self.passed is not None else 0
        report.unfit += int(self.passed.sum()) if unfit and self.passed is not None else 0
        if len(self._lost) < self.rows:
            there = self.src_cnt if not self._lost else np.delete(self.src_cnt, self._lost)
            fewest = int(there.min())
            report.src_cnt_min = fewest if report.src_cnt_min is None else min(fewest, report.src_cnt_min)


class Blocks:
    """A call's elements cut into blocks of lanes. Rows are blocks."""

    def __init__(self, context: Context, layout: Layout, lane: Lane) -> None:
        self._context = context
        self.lane = lane
        self.width = context.block_bytes // lane.bytes
        self.cut = layout.cut(self.width, lane.bytes)
        self.number = self.cut.number
        context.outline.blocks += self.number

    def rows(self, flat: Array, numbers: Numbers) -> Array:
        """These blocks, ascending, of a flat (padded) array as rows, the last filled up with zeros; a view where possible."""
        if not isinstance(numbers, range):
            start = int(numbers[0])
            return self.rows(flat, range(start, int(numbers[-1]) + 1))[numbers - start]
        low, high = numbers.start * self.width, numbers.stop * self.width
        part = flat[low:high]
        if len(part) < high - low:
            padded = np.zeros(high - low, flat.dtype)
            padded[: len(part)] = part
            part = padded
        return part.reshape(len(numbers), self.width)

    def groups(self) -> Iterator[range]:
        """The numbers of the blocks of every group."""
        for start in range(0, self.number, GROUP):
            yield range(start, min(start + GROUP, self.number))

    def submit(
        self,
        op: Op,
        lanes: Array,
        numbers: Numbers,
        skip: Callable[[int], Status] | None = None,
        *,
        passed: NDArray[np.bool_] | None = None,
        final: bool = False,
        source: int = EVERYONE,
        more: bool = False,
    ) -> Group:
        """Submit rows of lanes as the blocks ``numbers``. ``skip(row)`` other than OK makes a row an empty contribution
        with that status; to rows ``passed`` this member answers without adding anything. ``source``: this rank, where no
        other has payloads for these blocks. ``more``: the call's next blocks go together with these."""
        group = Group(numbers, self.width, self.lane)
        group.passed = passed
        group.mine = self.cut.mine(self._context.rank, numbers)
        raw = np.ascontiguousarray(lanes).view(np.uint8).reshape(-1).data
        stride = self._context.block_bytes
        window, gen = self._context.window, self._context.gen
        sizes, owners = self.cut.sizes, self.cut.owner
        for row, number in enumerate(numbers):
            status = Status.OK if skip is None else skip(row)
            size = sizes[number]
            passing = passed is not None and bool(passed[row])
            payload = raw[row * stride : row * stride + size] if status == Status.OK and not passing else b""
            block = Block(gen, op, self.lane, payload, status, owners[number], firm=self._context.firm, passing=passing)
            block.room = size if passing else 0
            last = row == len(numbers) - 1
            block.more, block.source = more or not last, source
            block.final = final and last
            block.on_result = partial(group.take, row)
            block.on_lost = partial(group.lose, row)
            window.submit(block)
        return group

    def await_results(
        self, op: Op, numbers: Numbers, *, wanted: bool = True, source: int = EVERYONE, more: bool = False
    ) -> Group:
        """Submit empty contributions to the blocks ``numbers``, whose payloads are ``source``'s; with room for the results if
        they are ``wanted``. ``more``: as in :meth:`submit`."""
        group = Group(numbers, self.width, self.lane)
        for row, number in enumerate(numbers):
            block = Block(self._context.gen, op, self.lane, dest=self.cut.owner[number], firm=self._context.firm)
            block.room = self.cut.sizes[number] if wanted else 0
            block.more, block.source = more or row < len(numbers) - 1, source
            block.on_result = partial(group.take, row)
            block.on_lost = partial(group.lose, row)
            self._context.window.submit(block)
        return group


def room(context: Context) -> Callable[[], bool]:
    """A condition: the window has taken most of what was submitted, convert the next group."""
    window = context.window
    return lambda: window.queued < GROUP
