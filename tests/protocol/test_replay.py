# SPDX-License-Identifier: MIT
"""Random traffic, right, late and wrong, on the model and on the program: every reply byte for byte, then records and
counters."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from netsum.wire.codec import Header
from netsum.wire.schema import MEMBER_STATUSES, Lane, Outcome, Status

from tests.examples import one_in
from tests.model.flags import ALL_RULES, Rules
from tests.protocol import star
from tests.protocol.frame_model import FrameModel
from tests.protocol.replay import Step, follow, replay
from tests.protocol.targets import InProcess, Target
from tests.protocol.traffic import MulticastTraffic, Traffic
from tests.protocol.tree_traffic import TreeTraffic

SHOWN_ELSEWHERE = {"progress_of_this_epoch", "address_of_this_epoch"}
"""Rules about epochs, which the traffic has one of: `late/progress_of_this_epoch` is explored and replayed, the other in
test_rules.py."""


@pytest.mark.parametrize("seed", range(4))
def test_traffic(target: Target, seed: int) -> None:
    replay(Traffic(seed).steps(400), target)


@pytest.mark.parametrize("seed", range(4))
def test_traffic_of_trees(target: Target, seed: int) -> None:
    replay(TreeTraffic(seed).steps(400), target)


@pytest.mark.parametrize("seed", range(4))
def test_traffic_by_multicast(target: Target, seed: int) -> None:
    replay(MulticastTraffic(seed).steps(400), target)


@pytest.mark.parametrize("status", [Status.OK, Status.RANGE, Status.ABORT, Status.STALE, Status.REFUSED, Status.AGAIN])
def test_a_leaf_says_what_it_knows_and_not_what_came_beside_it(target: Target, status: Status) -> None:
    """A parent's ``reason`` means something where the parent refuses; elsewhere the children do not
    hear of it, now or when they ask again."""
    job = star.JOBS[star.LEAF]
    header = Header(star.LEAF, job.first_block_id, gen_id=7, lane=Lane.L32)
    asked = [Step(m.port, star.contribution(star.LEAF, m, header._replace(worker_cnt=m.workers)).to_bytes()) for m in job.members]
    up = job.uplink_of(header.block_id)
    said = star.from_parent(star.LEAF, up, header._replace(status=status, worker_cnt=9, reason=Outcome.OUT_OF_WINDOW))
    model = replay([*asked, Step(up.port, said.to_bytes()), *asked], target)
    told = Outcome.PARENT_RESULT if status in MEMBER_STATUSES else Outcome.PARENT_STATUS
    assert model.switch.outcomes[star.LEAF, told] == 1


@one_in(8)  # 250 packets each
@given(st.sampled_from((Traffic, TreeTraffic, MulticastTraffic)), st.integers(min_value=0))
@example(Traffic, 160_249_570_336_040_224)  # a scan closes two blocks, of which a congested link has marked one
@example(Traffic, 127)  # a copy goes early to a host whose second rank is its destination
def test_any_traffic(kind: type[Traffic], seed: int) -> None:
    replay(kind(seed).steps(250), InProcess(star.items()))


def test_the_traffic_has_every_outcome() -> None:
    met = set()
    for kind in (Traffic, TreeTraffic):
        for seed in range(8):
            model = FrameModel()
            for event in kind(seed).steps(400):
                follow(model, event)
            met |= {outcome for _, outcome in model.switch.outcomes}
    assert met == set(Outcome)


@pytest.mark.full
@pytest.mark.parametrize("rule", [field.name for field in fields(Rules) if field.name not in SHOWN_ELSEWHERE])
def test_the_traffic_sees_each_rule(rule: str) -> None:
    """A model without the rule does not agree with the program."""
    for seed in range(4):
        for kind in (Traffic, TreeTraffic, MulticastTraffic):
            model = FrameModel()
            model.switch.rules = replace(ALL_RULES, **{rule: False})
            try:
                replay(kind(seed).steps(400), InProcess(star.items()), model)
            except (AssertionError, KeyError):  # a model that adds the payloads of a COPY cannot
                return
    pytest.fail("no traffic differs")


@cache
def quiet() -> InProcess:
    """One switch for all noise, since noise leaves nothing behind."""
    return InProcess(star.items())


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
