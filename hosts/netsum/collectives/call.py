"""What the collectives share: the agreement that starts a call, and the blocks of an array."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from netsum.block import Block
from netsum.errors import Aborted, CallError, Mismatch
from netsum.exponents import (
    CODE_LANE,
    FIRST_CODES,
    FIRST_LANES,
    SIGNATURE_LANES,
    Codes,
    signature_lanes,
)
from netsum.fixed_point import WIRE_LANES, Array
from netsum.report import Report
from netsum.window import Window
from netsum.wire.codec import Header
from netsum.wire.schema import CHUNK_BYTES, AgeOp, Lane, Op, Status

GROUP: Final = 64
"""Blocks that are converted in one go: enough that numpy's overhead vanishes, few enough to stay in the cache."""

Waiting = Generator[Any, None, Any]


@dataclass(frozen=True)
class Context:
    """What a call needs to know of its communicator. ``gen`` is the call's generation; ``degrade``: the job's blocks age out,
    but for those of a ``firm`` call. Without ``give`` this member takes part and adds nothing."""

    window: Window
    rank: int
    workers: int
    block_bytes: int
    gen: int
    degrade: bool = False
    firm: bool = False
    give: bool = True
    report: Report = field(default_factory=Report)


class Verdict:
    """Collects the statuses of a call's results: all ranks see the same."""

    def __init__(self) -> None:
        self.highest = Status.OK

    def add(self, status: int) -> None:
        self.highest = max(self.highest, Status(status))

    def raise_failure(self, own: CallError | None) -> None:
        """Raise what the members' statuses ask for; the member that failed raises its own error."""
        if self.highest == Status.MISMATCH:
            raise Mismatch("another rank made a different call (operation, type or size)")
        if self.highest == Status.ABORT:
            raise own if own is not None else Aborted("another rank gave the call up; its own error says why")


def chunked(size: int) -> int:
    """Bytes rounded up to whole chunks."""
    return -(-size // CHUNK_BYTES) * CHUNK_BYTES


class _Codes:
    """Codes that arrive block by block.

    In a job that degrades, the others may have agreed before this member came (``late``), without its codes; or what they
    agreed on may be gone (``unknown``). If it has an error of its own that they have not heard of, or nothing to give, it is
    ``mute``: it adds nothing to the call. ``nobody``: nor does anyone else.
    """

    def __init__(self, own: Codes, opening: Codes) -> None:
        self._own = own
        self._opening = opening[:SIGNATURE_LANES]
        self.values: Codes = np.zeros(len(own), np.uint16)
        self.missing = 0
        self.first: Codes | None = None
        self.verdict = Verdict()
        self.answered = False
        self.late = False
        self.mute = False
        self.nobody = False
        self.lost = False
        self.unknown = np.zeros(len(own), np.bool_)

    def take_first(self, header: Header, payload: memoryview) -> None:
        self.verdict.add(header.status)
        self.late |= header.age_op == AgeOp.LATE
        self.nobody = not header.data_cnt
        if len(payload) >= FIRST_LANES * CODE_LANE.bytes:
            self.first = np.frombuffer(payload, WIRE_LANES[CODE_LANE], FIRST_LANES).astype(np.uint16)
        self.answered = True

    def lose_first(self) -> None:
        self.lost = self.answered = True
        self.unknown[:FIRST_CODES] = True

    @property
    def differ(self) -> bool:
        """Whether the first block's result is there and says that the ranks made different calls."""
        if not self.answered or self.lost or self.verdict.highest != Status.OK:
            return False
        if self.first is None:
            return not self.nobody
        return not np.array_equal(self.first[:SIGNATURE_LANES], self._opening)

    def check(self, own_error: CallError | None) -> None:
        """Raise if the first block's result says so: a rank gave up, or made another call."""
        self.verdict.raise_failure(own_error)
        if self.differ:
            raise Mismatch("the ranks made different calls (operation, type, shape or options)")
        self.mute |= own_error is not None
        if self.first is not None:
            head = min(len(self.values), FIRST_CODES)
            self.values[:head] = self.first[SIGNATURE_LANES : SIGNATURE_LANES + head]

    def take(self, start: int, count: int, header: Header, payload: memoryview) -> None:
        self.verdict.add(header.status)
        self.late |= header.age_op == AgeOp.LATE
        if len(payload) >= count * CODE_LANE.bytes:
            lanes = np.frombuffer(payload, WIRE_LANES[CODE_LANE], count)
            self.values[start : start + count] = lanes
        self.missing -= 1

    def lose(self, start: int, count: int) -> None:
        self.lost = True
        self.unknown[start : start + count] = True
        self.missing -= 1

    def unfit(self, start: int, stop: int) -> NDArray[np.bool_] | None:
        """Which of these codes' blocks this member cannot contribute to: its values are larger than what was agreed, or
        nobody can tell what was. None: to all of them it can."""
        if self.mute:
            return np.ones(stop - start, np.bool_)
        if not (self.late or self.lost):
            return None
        return np.asarray((self._own[start:stop] > self.values[start:stop]) | self.unknown[start:stop])


def open_call(
    context: Context, signature: tuple[object, ...], codes: Codes, own_error: CallError | None = None
) -> _Codes:
    """Submit the first block of a call, whose result tells whether all ranks make the same call."""
    lanes = np.zeros(FIRST_LANES, WIRE_LANES[CODE_LANE])
    lanes[:SIGNATURE_LANES] = signature_lanes(*signature)
    head = codes[:FIRST_CODES]
    lanes[SIGNATURE_LANES : SIGNATURE_LANES + len(head)] = head
    agreed = _Codes(codes, lanes.astype(np.uint16))
    agreed.mute = not context.give
    block = Block(context.gen, Op.MAX, CODE_LANE, firm=context.firm)
    if own_error is not None:
        block.status = Status.ABORT
    elif context.give:
        block.payload = memoryview(lanes.tobytes())
    else:
        block.passing, block.room = True, lanes.nbytes
    block.on_result, block.on_lost = agreed.take_first, agreed.lose_first
    context.window.submit(block)
    return agreed


def agree(context: Context, signature: tuple[object, ...], codes: Codes, own_error: CallError | None = None) -> Waiting:
    """Start a call: compare signatures and take the maximum of every code over the ranks.

    ``own_error`` is why this member gives the call up; then every rank raises, this one that error. Returns the agreed codes
    as a function of how many the caller needs: it yields until they are there.

    Cost: one round trip and one chunk; codes beyond the first FIRST_CODES travel with what the caller sends next.
    """
    agreed = open_call(context, signature, codes, own_error)
    yield lambda: agreed.answered
    agreed.check(own_error)
    agreed.missing = _submit_codes(context, codes, min(len(codes), FIRST_CODES), agreed)
    return agreed


def agree_on(context: Context, codes: Codes) -> Waiting:
    """Take the maximum of every code over the ranks, in the middle of a call."""
    agreed = _Codes(codes, codes)
    agreed.missing = _submit_codes(context, codes, 0, agreed)
    yield lambda: agreed.missing == 0
    agreed.verdict.raise_failure(None)
    return agreed.values


def _submit_codes(context: Context, codes: Codes, start: int, agreed: _Codes) -> int:
    per_block = context.block_bytes // CODE_LANE.bytes
    blocks = 0
    for first in range(start, len(codes), per_block):
        part = codes[first : first + per_block]
        lanes = np.zeros(chunked(len(part) * CODE_LANE.bytes) // CODE_LANE.bytes, WIRE_LANES[CODE_LANE])
        lanes[: len(part)] = part
        block = Block(context.gen, Op.MAX, CODE_LANE, firm=context.firm)
        if agreed.mute:
            block.passing, block.room = True, lanes.nbytes
        else:
            block.payload = memoryview(lanes.tobytes())
        block.on_result = partial(agreed.take, first, len(part))
        block.on_lost = partial(agreed.lose, first, len(part))
        context.window.submit(block)
        blocks += 1
    return blocks


class Group:
    """Consecutive blocks of a call: their lanes on the way out and the results on the way in. Rows are blocks."""

    def __init__(self, start: int, rows: int, width: int, lane: Lane) -> None:
        self.start = start
        self.rows = rows
        self.missing = rows
        self.results = np.zeros((rows, width), WIRE_LANES[lane])
        self._bytes = self.results.view(np.uint8).reshape(rows, -1)
        self.data_cnt: NDArray[np.int64] = np.zeros(rows, np.int64)
        self.src_cnt: NDArray[np.int64] = np.zeros(rows, np.int64)
        self.statuses = [0] * rows
        self.passed: NDArray[np.bool_] | None = None  # rows that this member did not contribute to
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
        return [self.start + row for row in sorted(rows)]

    def report_to(self, report: Report, *, unfit: bool = True) -> None:
        """Add this group to the call's report, all of its results being there. ``unfit``: that is why blocks were passed."""
        report.blocks += self.rows
        report.degraded += self._degraded
        report.lost += len(self._lost)
        report.missed += len(self.missed()) if self._late or self._lost or self.passed is not None else 0
        report.unfit += int(self.passed.sum()) if unfit and self.passed is not None else 0
        if len(self._lost) < self.rows:
            there = self.src_cnt if not self._lost else np.delete(self.src_cnt, self._lost)
            fewest = int(there.min())
            report.src_cnt_min = fewest if report.src_cnt_min is None else min(fewest, report.src_cnt_min)


class Blocks:
    """An array of ``count`` elements cut into blocks of lanes. Rows are blocks; the last may be shorter on the wire."""

    def __init__(self, context: Context, count: int, lane: Lane) -> None:
        self._context = context
        self.lane = lane
        self.count = count
        self.width = context.block_bytes // lane.bytes
        self.number = -(-count // self.width)
        last = count - (self.number - 1) * self.width
        self.last_bytes = chunked(last * lane.bytes)

    def rows(self, flat: Array, start: int, stop: int) -> Array:
        """Blocks ``start`` to ``stop`` of a flat array as rows, the last padded with zeros; a view where possible."""
        low, high = start * self.width, stop * self.width
        part = flat[low:high]
        if len(part) < high - low:
            padded = np.zeros(high - low, flat.dtype)
            padded[: len(part)] = part
            part = padded
        return part.reshape(stop - start, self.width)

    def groups(self) -> Iterator[tuple[int, int]]:
        """(start, stop) of every group."""
        for start in range(0, self.number, GROUP):
            yield start, min(start + GROUP, self.number)

    def payload_bytes(self, block: int) -> int:
        """Bytes of a block on the wire."""
        return self.last_bytes if block == self.number - 1 else self._context.block_bytes

    def submit(
        self,
        op: Op,
        lanes: Array,
        numbers: Any,
        skip: Callable[[int], Status] | None = None,
        *,
        passed: NDArray[np.bool_] | None = None,
        final: bool = False,
    ) -> Group:
        """Submit rows of lanes as the blocks ``numbers``. ``skip(row)`` other than OK makes a row an empty contribution
        with that status; to rows ``passed`` this member answers without adding anything."""
        group = Group(int(numbers[0]), len(numbers), self.width, self.lane)
        group.passed = passed
        raw = np.ascontiguousarray(lanes).view(np.uint8).reshape(-1).data
        stride = self._context.block_bytes
        window, gen = self._context.window, self._context.gen
        for row, number in enumerate(numbers):
            status = Status.OK if skip is None else skip(row)
            size = self.payload_bytes(int(number))
            passing = passed is not None and bool(passed[row])
            payload = raw[row * stride : row * stride + size] if status == Status.OK and not passing else b""
            block = Block(gen, op, self.lane, payload, status, firm=self._context.firm, passing=passing)
            block.room = size if passing else 0
            block.final = final and row == len(numbers) - 1
            block.on_result = partial(group.take, row)
            block.on_lost = partial(group.lose, row)
            window.submit(block)
        return group

    def await_results(self, op: Op, numbers: range) -> Group:
        """Submit empty contributions with room for the results to the blocks ``numbers``."""
        group = Group(numbers.start, len(numbers), self.width, self.lane)
        for row, number in enumerate(numbers):
            block = Block(self._context.gen, op, self.lane, firm=self._context.firm, room=self.payload_bytes(number))
            block.on_result = partial(group.take, row)
            block.on_lost = partial(group.lose, row)
            self._context.window.submit(block)
        return group


def room(context: Context) -> Callable[[], bool]:
    """A condition: the window has taken most of what was submitted, convert the next group."""
    window = context.window
    return lambda: window.queued < GROUP
