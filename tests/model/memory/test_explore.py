# SPDX-License-Identifier: MIT
"""Every behavior of a small shard, and the proof that the explorer can fail: a rule off, a violation found."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.model.memory.explore import STUCK, explore
from tests.model.memory.mutations import MUTATIONS, SCENARIOS, Mutation
from tests.model.memory.scenario import Scenario
from tests.model.search import SAMPLE, Violation

QUICK = {
    "no device fails",
    "the primary seems dead, a device reads",
    "the primary hands over",
    "the only device loses its memory",
}
"""Explorations of less than a second; the others are for `make test-all`."""
LONG = {
    "a primary that seemed dead returns",
    "a shard moves as a copy",
    "the primary hands over and comes back",
    "three devices",
}
"""Explorations of more than 20 seconds, for `make explore`; `make test-all` runs a sample of each."""


def _marks(scenario: Scenario) -> list[pytest.MarkDecorator]:
    return [pytest.mark.explore] if scenario.name in LONG else [] if scenario.name in QUICK else [pytest.mark.full]


@pytest.mark.parametrize("scenario", [pytest.param(scenario, id=scenario.name, marks=_marks(scenario)) for scenario in SCENARIOS])
def test_every_behavior_is_safe_and_can_finish(scenario: Scenario) -> None:
    assert explore(scenario) > 10


@pytest.mark.full
@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if each.name in LONG], ids=lambda each: each.name)
@settings(max_examples=2, phases=[Phase.explicit, Phase.generate])
@given(seed=st.integers(0, 2**32 - 1))
def test_a_sample_of_behaviors_is_safe_and_can_finish(scenario: Scenario, seed: int) -> None:
    assert explore(scenario, seed=seed) > SAMPLE


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.rule)
def test_without_the_rule_a_violation_is_found(mutation: Mutation) -> None:
    with pytest.raises(Violation) as caught:
        explore(mutation.scenario, liveness=mutation.finds == STUCK)
    assert mutation.finds in caught.value.what


def test_the_page_names_every_rule() -> None:
    page = (Path(__file__).parents[3] / "docs" / "memory.md").read_text("utf-8")
    table = "\n".join(line for line in page.splitlines() if line.startswith("|"))
    assert not {mutation.rule for mutation in MUTATIONS if f"`{mutation.rule}`" not in table}


def test_what_is_quick_is_there() -> None:
    assert {scenario.name for scenario in SCENARIOS} >= QUICK | LONG
