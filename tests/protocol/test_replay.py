"""Random traffic, right, late and wrong, on the model and on the program: every reply byte for byte, then records and
counters."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from netsum.wire.schema import Outcome

from tests.protocol import star
from tests.protocol.frame_model import FrameModel
from tests.protocol.replay import Step, follow, replay
from tests.protocol.targets import InProcess, Target
from tests.protocol.traffic import Traffic
from tests.protocol.tree_traffic import TreeTraffic


@pytest.mark.parametrize("seed", range(4))
def test_traffic(target: Target, seed: int) -> None:
    replay(Traffic(seed).steps(400), target)


@pytest.mark.parametrize("seed", range(4))
def test_traffic_of_trees(target: Target, seed: int) -> None:
    replay(TreeTraffic(seed).steps(400), target)


@pytest.mark.parametrize(
    ("seed", "steps"), [(446010367290, 60), (103351006898, 120), (6689199983897, 150), (264389241082126, 200)]
)
def test_traffic_that_once_made_a_difference(target: Target, seed: int, steps: int) -> None:
    """A leaf passed on what its parent said in ``age_op``, of a result that is not partial (until somebody asked again) or
    beside STALE."""
    replay(TreeTraffic(seed).steps(steps), target)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from((Traffic, TreeTraffic)), st.integers(min_value=0))
def test_any_traffic(kind: type[Traffic], seed: int) -> None:
    replay(kind(seed).steps(250), InProcess(star.items()))


def test_the_traffic_has_every_outcome() -> None:
    model = FrameModel()
    for kind in (Traffic, TreeTraffic):
        for seed in range(8):
            for event in kind(seed).steps(400):
                follow(model, event)
    met = {outcome for _, outcome in model.switch.outcomes}
    assert met == set(Outcome)


@cache
def quiet() -> InProcess:
    """One switch for all noise, since noise leaves nothing behind."""
    return InProcess(star.items())


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(star.PORTS), st.binary(min_size=14, max_size=200))
def test_noise(port: int, noise: bytes) -> None:
    replay([Step(port, noise)], quiet())


def test_the_comparison_can_fail(target: Target) -> None:
    """A model with other addresses in its tables must not agree."""
    model = FrameModel()
    trio = model.switch.jobs[star.TRIO]
    moved = trio.members[0]._replace(udp_port=4444)
    model.switch.jobs[star.TRIO] = trio._replace(members=(moved, *trio.members[1:]))
    with pytest.raises(AssertionError, match="port 1"):
        replay(Traffic(0).steps(400), target, model)
