# SPDX-License-Identifier: MIT
"""Is there a serial order of calls, in keeping with when each began and ended, that explains all their answers?

Wing and Gong's search, with Lowe's cache of what has been tried ("Testing for linearizability", 2017): calls are put in order
one by one, as long as none is passed over that had ended before another began.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Generic, TypeVar

O = TypeVar("O")  # noqa: E741 - an operation
S = TypeVar("S", bound=Hashable)

MOST: Final = 1_000_000
"""Combinations to try before giving up."""


class Undecided(Exception):
    """So many calls overlap that the search was given up."""


@dataclass(frozen=True)
class Call(Generic[O]):
    """``answered`` is inf for a call whose outcome is not known: it may have been done at any time since, or never."""

    what: O
    invoked: float
    answered: float = inf


class _Entry:
    """A call's beginning or its end in a linked list of moments, from which calls can be taken and brought back."""

    __slots__ = ("after", "before", "begins", "end", "number")

    def __init__(self, number: int, end: _Entry | None = None, *, begins: bool = False) -> None:
        self.number, self.end, self.begins = number, end, begins
        self.before: _Entry | None = None
        self.after: _Entry | None = None

    def out(self) -> bool:
        """Take the call out of the list; whether it has an end."""
        self._unlink()
        if self.end is not None:
            self.end._unlink()
        return self.end is not None

    def back(self) -> bool:
        """Undo the last :meth:`out`."""
        if self.end is not None:
            self.end._link()
        self._link()
        return self.end is not None

    def _unlink(self) -> None:
        assert self.before is not None
        self.before.after = self.after
        if self.after is not None:
            self.after.before = self.before

    def _link(self) -> None:
        assert self.before is not None
        self.before.after = self
        if self.after is not None:
            self.after.before = self


def _moments(calls: Sequence[Call[O]]) -> _Entry:
    """The head of the list of all moments."""
    order: list[tuple[float, bool, _Entry]] = []
    for number, call in enumerate(calls):
        end = None if call.answered == inf else _Entry(number)
        order.append((call.invoked, False, _Entry(number, end, begins=True)))
        if end is not None:
            order.append((call.answered, True, end))
    # At the same moment beginnings come first: calls that only touch may be in any order.
    order.sort(key=lambda moment: moment[:2])
    last = head = _Entry(-1)
    for _, _, entry in order:
        last.after, entry.before = entry, last
        last = entry
    return head


def linearizable(calls: Sequence[Call[O]], state: S, step: Callable[[S, O], S | None], *, most: int = MOST) -> bool:
    """``step`` gives the state after an operation; None if the operation cannot have had its answer there. Raises
    :class:`Undecided` after ``most`` tries."""
    head = _moments(calls)
    left = sum(call.answered != inf for call in calls)
    done = 0  # a bit for each call that has been put in order
    tried: set[tuple[int, S]] = set()
    path: list[tuple[_Entry, S]] = []
    entry = head.after
    while left:
        assert entry is not None, "a call that has an end is in the list"
        if not entry.begins:  # nothing before its end can be in order without it: take back the last one
            if not path:
                return False
            entry, state = path.pop()
            done ^= 1 << entry.number
            left += entry.back()
            entry = entry.after
            continue
        new = step(state, calls[entry.number].what)
        after = done | 1 << entry.number
        if new is None or (after, new) in tried:
            entry = entry.after
            continue
        if len(tried) >= most:
            raise Undecided(f"{len(calls)} calls, {most} orders tried")
        tried.add((after, new))
        path.append((entry, state))
        state, done = new, after
        left -= entry.out()
        entry = head.after
    return True
