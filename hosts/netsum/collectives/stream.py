"""Sends the blocks of a call group by group, and takes their results as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsum.collectives.blocks import Blocks, Group, Numbers, room
from netsum.collectives.call import Context, Verdict
from netsum.engine import SUBMITTED, Flow
from netsum.fixed_point import Array
from netsum.wire.schema import Op, Status


def all_in(group: Group) -> Any:
    """A condition: all of the group's results are there."""
    return lambda: group.missing == 0


def place(result: Array, values: Array, numbers: Numbers, mine: NDArray[np.bool_] | None = None) -> None:
    """Put rows of values, the blocks of these numbers, into a flat array; what is beyond its end is padding. Only rows that are
    ``mine``."""
    if mine is None and isinstance(numbers, range):
        first = numbers.start * values.shape[1]
        count = min(values.size, len(result) - first)
        result[first : first + count] = values.reshape(-1)[:count]
        return
    for row in range(len(numbers)) if mine is None else np.flatnonzero(mine):
        number = int(numbers[row])
        place(result, values[row : row + 1], range(number, number + 1))


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
        encode: Callable[[Numbers], Array],
        decode: Callable[[Group], None],
        ready: Callable[[range], Any] | None = None,
        unfit: Callable[[Numbers], NDArray[np.bool_] | None] = lambda _numbers: None,
        choose: Callable[[range], Numbers] = lambda numbers: numbers,
    ) -> Flow:
        """Send the blocks and decode each group when its results are there. ``ready(numbers)`` is a condition that must hold
        before these blocks can be encoded; ``unfit(numbers)`` says to which this member passes; ``choose(numbers)`` which
        are sent at all."""
        pending: deque[Group] = deque()
        for numbers in self._blocks.groups():
            if ready is not None:
                yield ready(numbers)
            chosen = choose(numbers)
            if not len(chosen):
                continue
            passed = unfit(chosen)
            lanes = encode(chosen)
            final = numbers.stop == self._blocks.number
            pending.append(self._blocks.submit(self._op, lanes, chosen, passed=passed, final=final))
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
