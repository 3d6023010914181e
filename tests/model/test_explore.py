# SPDX-License-Identifier: MIT
"""Every behavior of small configurations, and the proof that the explorer can fail: a rule off, a violation found."""

from __future__ import annotations

import pytest

from tests.model.copies import COPY_MUTATIONS, COPY_SCENARIOS
from tests.model.explore import explore
from tests.model.forest import LATE_TREES, TREE_MUTATIONS, TREES
from tests.model.late import LATE_MUTATIONS, LATE_SCENARIOS, WITH_RESTARTS
from tests.model.mutations import Mutation
from tests.model.scenario import Scenario
from tests.model.scenarios import LARGER, MUTATIONS, SCENARIOS
from tests.model.search import Violation
from tests.model.truth import STUCK

EVERY_SCENARIO = SCENARIOS + LARGER + LATE_SCENARIOS + WITH_RESTARTS + TREES + LATE_TREES + COPY_SCENARIOS
TAKE_LONG = {
    "copies around a restart in a tree",
    "copies and a rank is replaced",
    "two roots and a restart",
    "a rank is late, a host a leaf",
    "copies over two roots",
    "copies in a tree",
    "three workers, a window of two, a restart",
    "a window of three",
    "results to be fetched around a restart",
    "a long run around a restart",
    "a rank is replaced and the ports come round",
    "two of three are enough",
    "a rank is late or dies, a window of two",
    "a member aborts, a rank is late",
    "a member aborts as a call opens, and the others may not hear of it",
    "a rank is late, a rank is replaced, and one dies",
    "a switch of a tree restarts",
    "a switch of a tree restarts, a window of two",
    "a restart in a tree without room",
    "two restarts in a tree",
    "two roots",
    "a rank is late while slots come round",
    "a rank is late in a tree and no rank scans",
    "calls differ across a tree, a window of two",
    "one leaf has made a call less",
    "a member aborts in a tree",
    "a member aborts in a tree, a rank is late",
    "results to be fetched in a tree, a rank is late",
    "a rank dies in a tree",
    "who passes, without room, is beside one who has died",
    "a restart and an eviction in a tree",
    "the leaves' calls differ and a rank is late",
    "two roots, a rank is late",
    "empties in a tree, a rank is late",
    "all of a leaf die",
    "who passes is beside one who has died",
    "results to be fetched, a rank is late",
    "a rank is late in a tree",
    "a restart in a job that degrades",
    "copies, a window of two",
    "the switch restarts twice and reports are late",
    "a job moves, a window of two",
    "a job moves around a restart",
    "the source of copies is evicted",
    "copies below a leaf of two",
    "copies in a tree, a rank is late",
}
"""Explorations of more than 0.8 seconds, for `make test-all`."""


def test_what_takes_long_is_there() -> None:
    assert {scenario.name for scenario in EVERY_SCENARIO} >= TAKE_LONG


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(scenario, id=scenario.name, marks=[pytest.mark.full] if scenario.name in TAKE_LONG else [])
        for scenario in EVERY_SCENARIO
    ],
)
def test_every_behavior_is_safe_and_can_finish(scenario: Scenario) -> None:
    assert explore(scenario) > 20


@pytest.mark.parametrize(
    "mutation", MUTATIONS + LATE_MUTATIONS + TREE_MUTATIONS + COPY_MUTATIONS, ids=lambda mutation: mutation.rule
)
def test_without_the_rule_a_violation_is_found(mutation: Mutation) -> None:
    with pytest.raises(Violation) as caught:
        explore(mutation.scenario, liveness_at_once=mutation.finds == STUCK)
    assert mutation.finds in caught.value.what
