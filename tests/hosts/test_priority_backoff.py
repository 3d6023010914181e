# SPDX-License-Identifier: MIT
"""Giving way to a job of a higher priority: the rule by itself, with a clock of the test's, and in the window."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.core.priority_backoff import LONGEST_PAUSE, SHORTEST_PAUSE, PriorityBackoff
from netsum.wire.codec import pack_header, parse_header
from netsum.wire.schema import HEADER_BYTES

from tests.hosts.test_switch_endpoint import LATENCY, Simulation

WINDOW = 8


def test_without_a_job_to_back_off_for() -> None:
    rule = PriorityBackoff(WINDOW)
    for step in range(20):
        rule.on_result(False, 0.001 * step)
        assert rule.room(0.001 * step) == WINDOW
        assert rule.paused_until == 0.0


def test_one_block_after_a_pause() -> None:
    rule = PriorityBackoff(WINDOW)
    rule.on_result(True, 1.0)
    assert rule.paused_until == 1.0 + SHORTEST_PAUSE
    assert rule.room(1.0) == 0
    assert rule.room(rule.paused_until) == 1


def test_what_was_under_way_makes_no_pause_longer() -> None:
    rule = PriorityBackoff(WINDOW)
    for late in range(WINDOW):
        rule.on_result(True, 1.0 + late * SHORTEST_PAUSE / WINDOW)
    assert rule.paused_until == 1.0 + SHORTEST_PAUSE


def test_pauses_double_up_to_the_longest() -> None:
    rule, pauses = PriorityBackoff(WINDOW), []
    now = 1.0
    for _ in range(6):
        rule.on_result(True, now)
        pauses.append(round(rule.paused_until - now, 6))
        now = rule.paused_until + 0.001  # the block that asks, and its answer
    assert pauses == [0.005, 0.01, 0.02, 0.04, 0.04, 0.04]
    assert pauses[-1] == LONGEST_PAUSE


def test_no_pause_makes_a_rank_late() -> None:
    rule = PriorityBackoff(WINDOW, block_exp_ms=8.0)
    for now in (1.0, 2.0, 3.0):
        rule.on_result(True, now)
        assert rule.paused_until == now + 0.002


def test_a_free_way_ends_the_pause_and_doubles_the_window_in_a_round_trip() -> None:
    rule = PriorityBackoff(WINDOW)
    for now in (1.0, 2.0, 3.0):
        rule.on_result(True, now)
    rooms = []
    for _ in range(5):
        room = max(1, rule.room(3.0))
        rooms.append(room)
        for _ in range(room):
            rule.on_result(False, 3.0)
    assert rooms == [1, 2, 4, 8, 8]


@pytest.mark.parametrize("window", [1, WINDOW])
def test_pauses_begin_short_again(window: int) -> None:
    rule = PriorityBackoff(window)
    for now in (1.0, 2.0, 3.0):
        rule.on_result(True, now)
    rule.on_result(False, 3.0)
    rule.on_result(True, 4.0)
    assert rule.paused_until == 4.0 + SHORTEST_PAUSE


@given(st.integers(1, 64), st.lists(st.tuples(st.booleans(), st.floats(0.0, 0.1))))
def test_never_more_than_the_window_and_never_for_ever(window: int, results: list[tuple[bool, float]]) -> None:
    rule, now = PriorityBackoff(window), 0.0
    for backoff, wait in results:
        now += wait
        rule.on_result(backoff, now)
        assert 0 <= rule.room(now) <= window
        assert rule.room(now) >= 1 or backoff
        assert rule.paused_until <= now + LONGEST_PAUSE
        assert rule.room(max(now, rule.paused_until)) >= 1, "the pause has an end"


class Busy(Simulation):
    """A job of a higher priority is busy from ``begin`` to ``end`` (seconds)."""

    def __init__(self, workers: int, seed: int, begin: float, end: float, **changes: Any) -> None:
        super().__init__(workers, seed, block_bytes=256, **changes)
        self.begin, self.end = begin, end

    def _travel(self, rank: int, up: bool, data: bytes) -> None:
        if not up and self.begin <= self.now < self.end:
            data = pack_header(parse_header(data)._replace(backoff=1)) + data[HEADER_BYTES:]
        super()._travel(rank, up, data)

    def until(self, moment: float) -> int:
        """Go on until then; blocks that rank 0 has sent by then."""
        while self.step(moment):
            pass
        return self.hosts[0].endpoint.next_serial


def test_a_window_that_gives_way_sends_a_block_now_and_then() -> None:
    simulation = Busy(2, 0, begin=0.1, end=1.1)
    simulation.submit(2000)
    before, asked = simulation.until(0.1), []
    for moment in (0.6, 1.1):
        sent = simulation.until(moment)
        asked.append(sent - before)
        before = sent
    assert asked[0] <= WINDOW + 0.5 / LONGEST_PAUSE + 4
    assert 0.5 / (LONGEST_PAUSE + 4 * LATENCY) - 1 <= asked[1] <= 0.5 / LONGEST_PAUSE + 1
    ended = simulation.until(1.1 + LONGEST_PAUSE + 10 * LATENCY)
    assert ended - before > WINDOW, "free again"
    simulation.run()
    assert all(len(host.got) == 2000 for host in simulation.hosts)
    assert all(host.endpoint.stats.backoffs > 0 for host in simulation.hosts)
    assert simulation.sent == [2000, 2000], "and nothing was sent twice"


def test_a_call_ends_although_the_way_is_never_free() -> None:
    simulation = Busy(3, 0, begin=0.0, end=float("inf"))
    simulation.submit(20)
    simulation.run()
    assert all(len(host.got) == 20 for host in simulation.hosts)
    assert simulation.now >= 19 * SHORTEST_PAUSE


@given(
    st.integers(1, 3),
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.1, 0.3]),
    st.floats(0.0, 0.05),
    st.floats(0.0, 0.5),
    st.sampled_from([1, 2, 8]),
)
def test_giving_way_and_loss(workers: int, seed: int, loss: float, begin: float, lasts: float, size: int) -> None:
    """Sums are exact, and the window's rule holds (the simulation looks)."""
    simulation = Busy(workers, seed, begin, begin + lasts, window=size, loss=loss, late=loss)
    simulation.submit(30)
    simulation.run()
    for host in simulation.hosts:
        assert host.got == {serial: workers * serial for serial in range(30)}
        assert host.endpoint.stats.malformed == 0
