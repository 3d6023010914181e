# SPDX-License-Identifier: MIT
"""Every behavior of small chains, and each rule off: it is seen."""

from __future__ import annotations

import pytest

from tests.model.chains import Chain, explore, without
from tests.model.search import Violation

SMALL = [Chain(2, 3, 3), Chain(3, 3, 1), Chain(3, 2, 2), Chain(4, 2, 1)]
LARGER = [Chain(3, 3, 2), Chain(3, 3, 3), Chain(4, 2, 2)]


@pytest.mark.parametrize("chain", [*SMALL, *(pytest.param(each, marks=pytest.mark.full) for each in LARGER)])
def test_every_behavior_ends_with_every_contribution_once(chain: Chain) -> None:
    assert explore(chain) > 2 ** (chain.ranks + 1)


@pytest.mark.parametrize(
    ("rules", "finds"),
    [
        (("pure", "numbers"), "stored with the contributions"),
        (("early",), "stuck for good"),
        (("kept",), "stuck for good"),
        (("window",), "stuck for good"),
        (("timer",), "stuck for good"),
        (("gaps",), "stuck without the timer"),
    ],
)
def test_a_rule_that_is_switched_off_is_missed(rules: tuple[str, ...], finds: str) -> None:
    with pytest.raises(Violation, match=finds):
        explore(without(Chain(3, 2, 2), *rules))
