"""Every behaviour of a small shard, and the proof that the explorer can fail: a rule off, a violation found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.memory.explore import STUCK, explore
from tests.model.memory.mutations import MUTATIONS, SCENARIOS, Mutation
from tests.model.memory.scenario import Scenario
from tests.model.search import Violation

QUICK = {
    "nobody fails",
    "the primary seems dead, somebody reads",
    "the primary hands over",
    "the only device loses its memory",
}
"""Explorations of less than a second; the others are for `make test-all`."""
SLOW = {
    "a restart waits for all",
    "epoch and position name a record",
    "gaps are asked for",
    "letters are heard in their epoch",
    "only what is compared is acknowledged",
    "timers are the last resort",
    "who joins trusts no log",
}
"""Mutations that are found after more than half a second."""


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(scenario, id=scenario.name, marks=() if scenario.name in QUICK else pytest.mark.full)
        for scenario in SCENARIOS
    ],
)
def test_every_behaviour_is_safe_and_can_finish(scenario: Scenario) -> None:
    assert explore(scenario) > 10


@pytest.mark.parametrize(
    "mutation",
    [pytest.param(each, id=each.rule, marks=pytest.mark.full if each.rule in SLOW else ()) for each in MUTATIONS],
)
def test_without_the_rule_a_violation_is_found(mutation: Mutation) -> None:
    with pytest.raises(Violation) as caught:
        explore(mutation.scenario, liveness=mutation.finds == STUCK)
    assert mutation.finds in caught.value.what


def test_the_page_names_every_rule() -> None:
    page = (Path(__file__).parents[3] / "docs" / "memory-replication.md").read_text("utf-8")
    table = "\n".join(line for line in page.splitlines() if line.startswith("|"))
    assert not {mutation.rule for mutation in MUTATIONS if f"`{mutation.rule}`" not in table}


def test_what_is_quick_is_there() -> None:
    assert {scenario.name for scenario in SCENARIOS} >= QUICK
    assert {mutation.rule for mutation in MUTATIONS} >= SLOW
