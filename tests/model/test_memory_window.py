# SPDX-License-Identifier: MIT
"""Instructions of memory are done exactly once: the rules explored, switched off one by one, and compared with the code."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.wire.memory import CLIENT_WINDOW, MemoryHeader
from netsum_memory.dedup import Absent, DedupWindows
from netsum_memory.execute import Result

from tests.model.memory_window import EXPIRED, Known, WindowRules, WindowScenario, explore
from tests.model.search import Violation

PLAIN = WindowScenario()
GIVING_UP = WindowScenario(instructions=4, given_up=frozenset({1, 2}))
LIVES = WindowScenario(instructions=5, last=2)
WIDE = WindowScenario(window=3, instructions=5)


@pytest.mark.parametrize("scenario", [PLAIN, GIVING_UP, LIVES, WIDE], ids=["plain", "giving up", "lives", "wide"])
def test_everything_is_done_once_and_told_right(scenario: WindowScenario) -> None:
    assert explore(scenario) > 100


@pytest.mark.parametrize(
    ("rule", "scenario", "finds"),
    [
        ("window_is_the_devices", PLAIN, "that is waited for is refused"),
        ("old_is_expired", PLAIN, "done twice"),
        ("window_is_a_span", PLAIN, "that is waited for is refused"),
        ("knows_all_of_the_window", PLAIN, "done twice"),
        ("new_number", LIVES, "a reply to something else"),
    ],
)
def test_each_rule_is_needed(rule: str, scenario: WindowScenario, finds: str) -> None:
    with pytest.raises(Violation, match=finds):
        explore(replace(scenario, rules=replace(WindowRules(), **{rule: False})))


@given(st.lists(st.integers(1, 4 * CLIENT_WINDOW), max_size=60))
def test_a_device_knows_what_the_rules_say(sequences: list[int]) -> None:
    scenario, known, windows = WindowScenario(window=CLIENT_WINDOW), Known(), DedupWindows()
    for reply, sequence in enumerate(sequences):
        found, wanted = windows.find(7, sequence), known.find(sequence, scenario)
        if wanted == EXPIRED:
            assert found is Absent.EXPIRED
        elif wanted is None:
            assert found is Absent.NEW
            windows.note(MemoryHeader(7, client=7, sequence=sequence), Result(payload=bytes([reply])))
            known = known.note(sequence, reply, scenario)
        else:
            assert not isinstance(found, Absent)
            assert found.result is not None
            assert found.result.payload == bytes([wanted])
