# SPDX-License-Identifier: MIT
"""Every behavior of small trainings whose replies go to all at once, and each rule off: it is seen."""

from __future__ import annotations

import pytest

from tests.model.search import Violation
from tests.model.shared import Training, explore, without

TRAININGS = [Training(2, 2, 2), Training(2, 1, 2), Training(3, 3, 1), Training(3, 2, 2, troubles=0)]


@pytest.mark.parametrize("training", TRAININGS, ids=repr)
def test_every_worker_gets_the_memorys_parameters(training: Training) -> None:
    assert explore(training) > 100


@pytest.mark.parametrize(
    ("rule", "finds"),
    [
        ("named", "in a step in which it is not|parameters that the memory never had"),
        ("sealed", "parameters that the memory never had"),
        ("committed", "parameters that the memory never had"),
        ("again", "stuck for good"),
    ],
)
def test_a_rule_that_is_switched_off_is_missed(rule: str, finds: str) -> None:
    with pytest.raises(Violation, match=finds):
        explore(without(Training(2, 1, 2), rule))
