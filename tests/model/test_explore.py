"""Every behaviour of small configurations, and the proof that the explorer can fail: a rule off, a violation found."""

from __future__ import annotations

import pytest

from tests.model.explore import Violation, explore
from tests.model.forest import LATE_TREES, TREE_MUTATIONS, TREES
from tests.model.late import LATE_MUTATIONS, LATE_SCENARIOS, WITH_RESTARTS
from tests.model.mutations import Mutation
from tests.model.scenario import Scenario
from tests.model.scenarios import LARGER, MUTATIONS, SCENARIOS


@pytest.mark.parametrize(
    "scenario",
    SCENARIOS + LARGER + LATE_SCENARIOS + WITH_RESTARTS + TREES + LATE_TREES,
    ids=lambda scenario: scenario.name,
)
def test_every_behaviour_is_safe_and_can_finish(scenario: Scenario) -> None:
    assert explore(scenario) > 20


@pytest.mark.parametrize("mutation", MUTATIONS + LATE_MUTATIONS + TREE_MUTATIONS, ids=lambda mutation: mutation.rule)
def test_without_the_rule_a_violation_is_found(mutation: Mutation) -> None:
    with pytest.raises(Violation) as caught:
        explore(mutation.scenario)
    assert mutation.finds in caught.value.what
