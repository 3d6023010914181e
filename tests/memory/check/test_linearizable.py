# SPDX-License-Identifier: MIT
"""The search against all serial orders, one by one."""

from __future__ import annotations

from itertools import combinations, permutations
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.system.memory.linearizable import Call, Undecided, linearizable

Operation = tuple[str, int]
"""What a register was asked, and the value that was given or found."""


def step(state: int, operation: Operation) -> int | None:
    what, value = operation
    if what == "write":
        return value
    if what == "add":
        return state + value
    return state if state == value else None


def is_explained(calls: list[Call[Operation]]) -> bool:
    """By any order that keeps what ended before something else began before it; those without an end may be left out."""
    ended = [call for call in calls if call.answered != inf]
    others = [call for call in calls if call.answered == inf]
    for count in range(len(others) + 1):
        for some in combinations(others, count):
            for order in permutations([*ended, *some]):
                if any(later.answered < earlier.invoked for earlier, later in combinations(order, 2)):
                    continue
                state: int | None = 0
                for call in order:
                    state = None if state is None else step(state, call.what)
                if state is not None:
                    return True
    return False


CALLS = st.lists(
    st.builds(
        lambda what, value, begin, lasts: Call((what, value), begin, begin + lasts),
        st.sampled_from(["read", "read", "write", "add"]),
        st.integers(0, 3),
        st.integers(0, 8),
        st.sampled_from([0, 1, 2, 5, inf]),
    ),
    max_size=6,
)


@given(CALLS)
def test_search_finds_what_trying_everything_finds(calls: list[Call[Operation]]) -> None:
    assert linearizable(calls, 0, step) == is_explained(calls)


def test_search_is_given_up_when_too_much_overlaps() -> None:
    calls = [Call(("add", 1 << number), 0, 100) for number in range(24)] + [Call(("read", -1), 0, 100)]
    with pytest.raises(Undecided, match="25 calls"):
        linearizable(calls, 0, step, most=10_000)
