"""What the collectives share: the agreement that starts a call, and the blocks of an array."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from netsum.errors import Aborted, CallError, Mismatch
from netsum.exponents import (
    CODE_LANE,
    FIRST_CODES,
    FIRST_LANES,
    SIGNATURE_LANES,
    Codes,
    signature_lanes,
    signatures_agree,
)
from netsum.fixed_point import WIRE_LANES, Array
from netsum.window import Block, Window
from netsum.wire.codec import Header
from netsum.wire.schema import CHUNK_BYTES, Lane, Op, Status

GROUP: Final = 64
"""Blocks that are converted in one go: enough that numpy's overhead vanishes, few enough to stay in the cache."""

Waiting = Generator[Any, None, Any]


@dataclass(frozen=True)
class Context:
    """What a call needs to know of its communicator. ``gen`` is the call's generation."""

    window: Window
    rank: int
    workers: int
    block_bytes: int
    gen: int


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
    """Codes that arrive block by block."""

    def __init__(self, count: int) -> None:
        self.values: Codes = np.zeros(count, np.uint16)
        self.missing = 0
        self.first: Codes | None = None
        self.verdict = Verdict()
        self.answered = False

    def take_first(self, header: Header, payload: memoryview) -> None:
        self.verdict.add(header.status)
        if len(payload) >= FIRST_LANES * CODE_LANE.bytes:
            self.first = np.frombuffer(payload, WIRE_LANES[CODE_LANE], FIRST_LANES).astype(np.uint16)
        self.answered = True

    @property
    def differ(self) -> bool:
        """Whether the first block's result is there and says that the ranks made different calls."""
        if not self.answered or self.verdict.highest != Status.OK:
            return False
        return self.first is None or not signatures_agree(self.first)

    def check(self, own_error: CallError | None) -> None:
        """Raise if the first block's result says so: a rank gave up, or made another call."""
        self.verdict.raise_failure(own_error)
        if self.differ:
            raise Mismatch("the ranks made different calls (operation, type, shape or options)")
        assert self.first is not None
        head = min(len(self.values), FIRST_CODES)
        self.values[:head] = self.first[SIGNATURE_LANES : SIGNATURE_LANES + head]

    def take(self, start: int, count: int, header: Header, payload: memoryview) -> None:
        self.verdict.add(header.status)
        if len(payload) >= count * CODE_LANE.bytes:
            lanes = np.frombuffer(payload, WIRE_LANES[CODE_LANE], count)
            self.values[start : start + count] = lanes
        self.missing -= 1


def open_call(
    context: Context, signature: tuple[object, ...], codes: Codes, own_error: CallError | None = None
) -> _Codes:
    """Submit the first block of a call, whose result tells whether all ranks make the same call."""
    agreed = _Codes(len(codes))
    lanes = np.zeros(FIRST_LANES, WIRE_LANES[CODE_LANE])
    lanes[:SIGNATURE_LANES] = signature_lanes(*signature)
    head = codes[:FIRST_CODES]
    lanes[SIGNATURE_LANES : SIGNATURE_LANES + len(head)] = head
    payload = memoryview(lanes.tobytes()) if own_error is None else b""
    status = Status.OK if own_error is None else Status.ABORT
    context.window.submit(Block(context.gen, Op.MAX, CODE_LANE, payload, status, on_result=agreed.take_first))
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
    agreed = _Codes(len(codes))
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
        take = partial(agreed.take, first, len(part))
        context.window.submit(Block(context.gen, Op.MAX, CODE_LANE, memoryview(lanes.tobytes()), on_result=take))
        blocks += 1
    return blocks


class Group:
    """Consecutive blocks of a call: their lanes on the way out and the results on the way in."""

    def __init__(self, start: int, rows: int, width: int, lane: Lane) -> None:
        self.start = start
        self.rows = rows
        self.missing = rows
        self.results = np.zeros((rows, width), WIRE_LANES[lane])
        self._bytes = self.results.view(np.uint8).reshape(rows, -1)
        self.data_cnt: NDArray[np.int64] = np.zeros(rows, np.int64)
        self.statuses = [0] * rows

    def take(self, row: int, header: Header, payload: memoryview) -> None:
        """The result of one block."""
        self.missing -= 1
        self.statuses[row] = header.status
        self.data_cnt[row] = header.data_cnt
        if payload:
            size = min(len(payload), self._bytes.shape[1])
            self._bytes[row, :size] = np.frombuffer(payload, np.uint8, size)


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
        self, op: Op, lanes: Array, numbers: Any, skip: Callable[[int], Status] | None = None, *, final: bool = False
    ) -> Group:
        """Submit rows of lanes as the blocks ``numbers``. ``skip(row)`` other than OK makes a row an empty contribution
        with that status."""
        group = Group(int(numbers[0]), len(numbers), self.width, self.lane)
        raw = np.ascontiguousarray(lanes).view(np.uint8).reshape(-1).data
        stride = self._context.block_bytes
        window, gen = self._context.window, self._context.gen
        for row, number in enumerate(numbers):
            status = Status.OK if skip is None else skip(row)
            size = self.payload_bytes(int(number))
            payload = raw[row * stride : row * stride + size] if status == Status.OK else b""
            last = final and row == len(numbers) - 1
            take = partial(group.take, row)
            window.submit(Block(gen, op, self.lane, payload, status, final=last, on_result=take))
        return group


def room(context: Context) -> Callable[[], bool]:
    """A condition: the window has taken most of what was submitted, convert the next group."""
    window = context.window
    return lambda: window.queued < GROUP
