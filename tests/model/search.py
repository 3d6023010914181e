# SPDX-License-Identifier: MIT
"""Visits every state that follows from a first one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, KeysView
from random import Random
from typing import Final, TypeVar

State = TypeVar("State", bound=Hashable)
SAMPLE: Final = 5000
"""States that are visited where a seed draws them."""


class Violation(Exception):
    """The violation and the shortest way there, one line an event."""

    def __init__(self, what: str, trace: Iterable[str] = ()) -> None:
        super().__init__("\n".join([what, *trace]))
        self.what = what


def search(
    start: State,
    steps: Callable[[State], Iterable[tuple[object, State]]],
    wrong: Callable[[State], str],
    *,
    stuck: Callable[[State], str] = lambda _: "",
    name: str = "",
    limit: int = 400_000,
    words: Callable[[State, State], str] = lambda *_: "",
    seed: int | None = None,
) -> KeysView[State]:
    """All states: breadth first, so that a counterexample is a shortest one. ``steps`` are the events that may be next and what
    they make of a state; ``words`` are added to an event's in a trace, from the states before and after it. ``wrong`` says what
    is wrong with a state as soon as it is found, ``stuck`` once all are known not to be wrong. With a ``seed``, only a sample is
    visited: each time, any of the states that are known. Raises :class:`Violation`, and RuntimeError where there are more than
    ``limit`` states."""
    draw = None if seed is None else Random(seed)
    came: dict[State, tuple[State, object] | None] = {start: None}

    def check(state: State, asked: Callable[[State], str]) -> None:
        if what := asked(state):
            raise Violation(f"{name}: {what}" if name else what, trace(state))

    def trace(state: State) -> list[str]:
        lines: list[str] = []
        while (step := came[state]) is not None:
            before, event = step
            lines.append(f"{event}{words(before, state)}")
            state = before
        return lines[::-1]

    states, visited = [start], 0
    while visited < (len(states) if draw is None else min(len(states), SAMPLE)):
        if draw is not None:
            other = draw.randrange(visited, len(states))
            states[visited], states[other] = states[other], states[visited]
        state = states[visited]
        visited += 1
        check(state, wrong)
        for event, following in steps(state):
            if following not in came:
                came[following] = (state, event)
                states.append(following)
        if len(came) > limit:
            raise RuntimeError(f"{name}: more than {limit} states, make it smaller")
    for state in states[:visited]:
        check(state, stuck)
    return came.keys()
