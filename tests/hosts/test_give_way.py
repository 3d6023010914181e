"""Giving way to a job of a higher priority: the rule by itself, by the clock that it is given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.give_way import LONGEST_PAUSE, SHORTEST_PAUSE, GiveWay

WINDOW = 8


def test_nobody_to_give_way_to() -> None:
    rule = GiveWay(WINDOW)
    for step in range(20):
        rule.heard(False, 0.001 * step)
        assert rule.room(0.001 * step) == WINDOW
        assert rule.until == 0.0


def test_one_block_after_a_pause() -> None:
    rule = GiveWay(WINDOW)
    rule.heard(True, 1.0)
    assert rule.until == 1.0 + SHORTEST_PAUSE
    assert rule.room(1.0) == 0
    assert rule.room(rule.until) == 1


def test_what_was_under_way_makes_no_pause_longer() -> None:
    rule = GiveWay(WINDOW)
    for late in range(WINDOW):
        rule.heard(True, 1.0 + late * SHORTEST_PAUSE / WINDOW)
    assert rule.until == 1.0 + SHORTEST_PAUSE


def test_pauses_double_up_to_the_longest() -> None:
    rule, pauses = GiveWay(WINDOW), []
    now = 1.0
    for _ in range(6):
        rule.heard(True, now)
        pauses.append(round(rule.until - now, 6))
        now = rule.until + 0.001  # the block that asks, and its answer
    assert pauses == [0.005, 0.01, 0.02, 0.04, 0.04, 0.04]
    assert pauses[-1] == LONGEST_PAUSE


def test_a_free_way_ends_the_pause_and_doubles_the_window_in_a_round_trip() -> None:
    rule = GiveWay(WINDOW)
    for now in (1.0, 2.0, 3.0):
        rule.heard(True, now)
    rooms = []
    for _ in range(5):
        room = max(1, rule.room(3.0))
        rooms.append(room)
        for _ in range(room):
            rule.heard(False, 3.0)
    assert rooms == [1, 2, 4, 8, 8]


@pytest.mark.parametrize("window", [1, WINDOW])
def test_pauses_begin_short_again(window: int) -> None:
    rule = GiveWay(window)
    for now in (1.0, 2.0, 3.0):
        rule.heard(True, now)
    rule.heard(False, 3.0)
    rule.heard(True, 4.0)
    assert rule.until == 4.0 + SHORTEST_PAUSE


@given(st.integers(1, 64), st.lists(st.tuples(st.booleans(), st.floats(0.0, 0.1))))
def test_never_more_than_the_window_and_never_for_ever(window: int, heard: list[tuple[bool, float]]) -> None:
    rule, now = GiveWay(window), 0.0
    for give_way, wait in heard:
        now += wait
        rule.heard(give_way, now)
        assert 0 <= rule.room(now) <= window
        assert rule.room(now) >= 1 or give_way
        assert rule.until <= now + LONGEST_PAUSE
        assert rule.room(max(now, rule.until)) >= 1, "the pause has an end"
