# SPDX-License-Identifier: MIT
"""Scenarios: in and out, what is refused, and that they follow from their seeds."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from netsum_controller.errors import InputError

from tests.system.faults.make import WORST, Around, Possible, make_scenario
from tests.system.faults.scenario import Event, EventKind, LinkFaults, Rates, Scenario, Where

chances = st.floats(0, 0.5)
milliseconds = st.floats(0, 1000)
rates = st.builds(
    Rates,
    loss=chances,
    duplicate=chances,
    reorder=chances,
    burst=st.floats(1, 100),
    delay_ms=milliseconds,
    jitter_ms=milliseconds,
)
seconds = st.floats(0, 60)
events = st.one_of(
    st.builds(
        Event,
        after=st.integers(0, 99),
        kind=st.sampled_from([kind for kind in EventKind if kind.of_a_rank]),
        rank=st.integers(0, 254),
        seconds=seconds,
    ),
    st.builds(
        Event,
        after=st.integers(0, 99),
        kind=st.sampled_from([kind for kind in EventKind if not kind.of_a_rank]),
        what=st.sampled_from(["leaf1", "leaf1_spine1", "ring"]),
        seconds=seconds,
    ),
)
scenarios = st.builds(
    Scenario,
    seed=st.integers(0, 1 << 40),
    where=st.sampled_from([Where.HOSTS, Where.SWITCH]),
    links=st.dictionaries(st.integers(0, 254), st.builds(LinkFaults, up=rates, down=rates), max_size=4),
    events=st.lists(events, max_size=4).map(tuple),
)


@given(scenarios)
def test_a_scenario_survives_its_line_and_yaml(scenario: Scenario) -> None:
    line = scenario.to_line()
    assert "\n" not in line
    assert Scenario.model_validate(yaml.safe_load(line)) == scenario
    assert Scenario.model_validate(yaml.safe_load(yaml.safe_dump(scenario.model_dump(mode="json")))) == scenario


@given(seed=st.integers(0, 1 << 32), index=st.integers(0, 1000), ranks=st.integers(1, 8), calls=st.integers(1, 60))
def test_made_scenarios_follow_from_the_seed_and_stay_within_bounds(seed: int, index: int, ranks: int, calls: int) -> None:
    possible = Possible(where=tuple(Where))
    made = make_scenario(seed, index, ranks=ranks, calls=calls, possible=possible)
    assert made == make_scenario(seed, index, ranks=ranks, calls=calls, possible=possible)
    assert all(rank < ranks for rank in made.links)
    for event in made.events:
        assert event.after < calls
        assert event.rank is None or event.rank < ranks
    for link in made.links.values():
        for each in (link.up, link.down):
            assert max(each.loss, each.duplicate, each.reorder) <= WORST
    upheavals = [event for event in made.events if event.kind not in (EventKind.STALL, EventKind.CUT, EventKind.CUT_TRUNK)]
    assert len(upheavals) <= 2


def test_every_kind_and_place_comes_up() -> None:
    around = Around(switches=("leaf1", "spine1"), trunks=("leaf1_spine1",))
    possible = Possible(where=tuple(Where))
    many = [make_scenario(1, n, ranks=4, calls=20, possible=possible, around=around) for n in range(200)]
    assert {event.kind for each in many for event in each.events} == set(EventKind)
    assert {each.where for each in many} == set(Where)
    assert all(each.where is not Where.HOSTS for each in many if each.trunks)
    assert sum(not each.links for each in many) > 40, "who is named where nothing is disturbed?"
    degrading = [make_scenario(1, n, ranks=4, calls=20, possible=possible, around=Around(waits=False)) for n in range(200)]
    assert not any(each.has(EventKind.MOVE, EventKind.CUT_TRUNK) for each in degrading)
    assert any(link.up.burst > 1 for each in many for link in each.links.values())
    assert any(link.down.jitter_ms for each in many for link in each.links.values())


def test_only_what_is_possible_is_planned() -> None:
    possible = Possible(where=(Where.KERNEL,), kinds=(EventKind.STALL,))
    for n in range(50):
        made = make_scenario(2, n, ranks=3, calls=10, possible=possible)
        assert made.where is Where.KERNEL
        assert not made.has(*(kind for kind in EventKind if kind is not EventKind.STALL))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("links: {0: {up: {loss: 2}}}", r"links\.0\.up\.loss.*0\.5"),
        ("links: {0: {sideways: {}}}", r"links\.0\.sideways"),
        ("where: moon", "where"),
        ("where: kernel\nlinks: {1: {down: {reorder: 0.1}}}", "the kernel only loses packets"),
        ("events: [{after: 1, kind: stall}]", "give `rank`"),
        ("events: [{after: 1, kind: restart_switch, rank: 1}]", "leave `rank` out"),
        ("events: [{after: 1, kind: flood}]", r"events\.0\.kind"),
        ("- 1", "must be a mapping"),
        ("{", r"scenario\.yaml:1: not valid YAML"),
        ("seed: 1\nwhere: !!int", r"scenario\.yaml:2: where: not valid YAML"),
    ],
)
def test_what_makes_no_sense_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=message) as raised:
        Scenario.load(file)
    assert str(file) in str(raised.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"/no/such/file: No such file"):
        Scenario.load("/no/such/file")
