# SPDX-License-Identifier: MIT
"""Invariants of every state that the explorer reaches."""

from __future__ import annotations

from functools import cache

from netsum.wire.schema import Status

from tests.model import truth
from tests.model.scenario import Scenario
from tests.model.transitions import Transitions


class Safety:
    """The checks of one scenario; switches and hosts are the numbers that its transitions gave them."""

    def __init__(self, scenario: Scenario, by: Transitions) -> None:
        self._scenario, self._by = scenario, by
        self._odd_switch = cache(self._odd_switch_once)
        self._differ = cache(self._differ_once)
        self._wrong = cache(self._wrong_once)

    def wrong(self, switches: tuple[int, ...], hosts: tuple[int, ...]) -> str:
        """The first thing that is wrong in a state, or nothing. Cost: each switch, host and pair of hosts is judged once."""
        for number in hosts:
            what = self._wrong(number)
            if what:
                return what
        if not self._scenario.partial:
            return ""
        pairs = ((one, other) for one in hosts for other in hosts if one < other)
        odd = next(filter(None, (self._odd_switch(switch) for switch in switches)), "")
        return odd or next(filter(None, (self._differ(*pair) for pair in pairs)), "")

    def _odd_switch_once(self, switch: int) -> str:
        job, slots, *_ = self._by.switches.items[switch]
        odd = (truth.odd_record(self._scenario, job, record) for _, record in slots) if job else ()
        return self._by.changed.get(switch, "") or next(filter(None, odd), "")

    def _differ_once(self, one: int, other: int) -> str:
        return truth.differ(self._by.hosts.items[one], self._by.hosts.items[other])

    def _wrong_once(self, number: int) -> str:
        host = self._by.hosts.items[number]
        if host.broken:
            return f"rank {host.rank}: {host.broken}"
        may_differ = self._scenario.calls_differ or self._scenario.may_differ
        if host.mismatched and not may_differ:
            return f"rank {host.rank} is refused: SIGNATURE"
        for index, result in enumerate(host.results):
            if self._scenario.partial:
                what = truth.odd_result(self._scenario, host, index, result) if result is not None else ""
                if what:
                    return what
                continue
            expected = self._scenario.expected(host, host.plan[index])
            if expected is None and self._scenario.calls_differ:
                return ""
            if result is None or self._scenario.agree(result, expected):
                continue
            if result.status == Status.MISMATCH and may_differ:
                continue
            return f"rank {host.rank} takes a wrong result for block {index}: {result}, right is {expected}"
        return ""
