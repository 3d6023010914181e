"""Sends the blocks of a call group by group, and takes their results as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsum.collectives.blocks import Blocks, Group, room
from netsum.collectives.call import Context, Verdict
from netsum.engine import SUBMITTED, Flow
from netsum.fixed_point import Array
from netsum.wire.schema import Op, Status

Unfit = Callable[[int, int], NDArray[np.bool_] | None]


def all_in(group: Group) -> Any:
    """A condition: all of the group's results are there."""
    return lambda: group.missing == 0


def place(result: Array, values: Array, start: int, mine: NDArray[np.bool_] | None = None) -> None:
    """Put rows of values, blocks from number ``start`` on, into a flat array; what is beyond its end is padding. Only rows that
    are ``mine``."""
    if mine is not None:
        for row in np.flatnonzero(mine):
            place(result, values[row : row + 1], start + int(row))
        return
    first = start * values.shape[1]
    count = min(values.size, len(result) - first)
    result[first : first + count] = values.reshape(-1)[:count]


class Stream:
    """``missed`` are the numbers of the blocks whose result is without this member's contribution."""

    def __init__(self, context: Context, blocks: Blocks, op: Op) -> None:
        self._context = context
        self._blocks = blocks
        self._op = op
        self._verdict = Verdict()
        self.missed: list[int] = []

    def run(
        self,
        encode: Callable[[int, int], Array],
        decode: Callable[[Group], None],
        ready: Callable[[int], Any] | None = None,
        unfit: Unfit = lambda _start, _stop: None,
    ) -> Flow:
        """Send all blocks and decode each group when its results are there. ``ready(stop)`` is a condition that must hold before
        blocks below ``stop`` can be encoded; ``unfit(start, stop)`` says to which this member passes."""
        pending: deque[Group] = deque()
        for start, stop in self._blocks.groups():
            if ready is not None:
                yield ready(stop)
            passed = unfit(start, stop)
            lanes = encode(start, stop)
            final = stop == self._blocks.number
            pending.append(self._blocks.submit(self._op, lanes, range(start, stop), passed=passed, final=final))
            yield room(self._context)
            self._finish(pending, decode)
        yield SUBMITTED
        while pending:
            yield all_in(pending[0])
            self._finish(pending, decode)
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise what the results' statuses ask for."""
        self._verdict.raise_failure(None)

    def _finish(self, pending: deque[Group], decode: Callable[[Group], None]) -> None:
        while pending and not pending[0].missing:
            group = pending.popleft()
            self.take(group)
            if self._verdict.highest == Status.OK:
                decode(group)

    def take(self, group: Group) -> None:
        """Note how a group went."""
        for status in group.statuses:
            self._verdict.add(status)
        group.report_to(self._context.report, unfit=self._context.give)
        self.missed += group.missed()


def blocks_of(numbers: list[int], width: int) -> Iterator[slice]:
    """Where in a flat array the blocks of these numbers are."""
    for number in numbers:
        yield slice(number * width, (number + 1) * width)
