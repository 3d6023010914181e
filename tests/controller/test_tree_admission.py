# SPDX-License-Identifier: MIT
"""Admission of jobs over trees: one that does not fit is refused, and the refusal names the switch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from netsum_controller import JobSpec, Topology
from netsum_controller.config.topologies import fat_tree, leaf_spine
from netsum_controller.errors import NoSwitchError, RejectedError
from netsum_controller.planning.admission import Placement, in_order, place, place_again
from netsum_controller.planning.trees import plan_trees
from netsum_controller.state.model import Job, Part

from tests.controller.test_admission import other as job_on_one_switch

TABLE = 4083
TOPO = leaf_spine(2, 2, 2)
HOSTS = ("h1", "h2", "h3", "h4")


def other(switch: str, job_id: int, slot_base: int = 0, slots: int = 2, **options: Any) -> Job:
    """A job that is there already, on one switch."""
    host = next((name for name, host in TOPO.hosts.items() if host.switch == switch), "h1")
    job = job_on_one_switch(job_id, slot_base, slots, switch=switch, host=host, **options)
    return replace(job, name=f"{switch}-{job_id}")


def spec(*members: str, **options: object) -> JobSpec:
    return JobSpec.model_validate({"name": "new", "members": members or HOSTS, "window": 64, **options})


def bases(placement: Placement) -> dict[str, int]:
    return {part.switch: part.slot_base for part in placement.parts}


def test_slots_lie_where_there_is_room() -> None:
    there = [other("leaf1", 1, 0, 128), other("spine2", 1, 0, 256), other("spine2", 2, 256, 64)]
    placement = place(spec(), TOPO, there, 2, TABLE)
    assert bases(placement) == {"spine1": 0, "spine2": 384, "leaf1": 128, "leaf2": 0}
    assert (placement.job_id, placement.slots, placement.chunks) == (3, 128, 16)


def test_a_root_does_not_wait_longer_than_it_can_count() -> None:
    degrade = {"late": "degrade", "block_exp": 3_600_000.0}
    with pytest.raises(RejectedError, match=r"block_exp is 3600000 ms, .* a switch counts to 4294967. Give 2147478 ms or less"):
        place(spec(**degrade), TOPO, [], 0, TABLE)
    assert place(spec("h1", "h2", **degrade), TOPO, [], 0, TABLE).trees.stripes == 1  # one switch is enough
    place(spec(late="degrade", block_exp=2_147_478.0), TOPO, [], 0, TABLE)
    with pytest.raises(RejectedError, match="block_exp is"):
        place(spec(late="degrade", block_exp=2_147_482.0), TOPO, [], 0, TABLE)


def test_the_id_is_free_on_all_switches() -> None:
    there = [other("leaf1", 1), other("spine2", 2), other("leaf2", 4)]
    assert place(spec(), TOPO, there, 255, TABLE).job_id == 3


def test_there_are_slots_for_every_stripe() -> None:
    assert place(spec(window=1), TOPO, [], 0, TABLE).slots == 16
    assert place(spec("h1", "h2", window=1), TOPO, [], 0, TABLE).slots == 2


def test_the_links_mtu_counts() -> None:
    narrow = TOPO.filled(links={"leaf2_spine1": {"mtu": 1500}})
    assert place(spec(), narrow, [], 0, TABLE).chunks == 5
    assert place(spec("h1", "h2"), narrow, [], 0, TABLE).chunks == 16
    with pytest.raises(RejectedError, match="link leaf2_spine1 has 1500; ask for 5 chunks or fewer"):
        place(spec(chunks=16), narrow, [], 0, TABLE)


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ([other("spine2", 1, 0, 8192)], "needs 128 slots in a row on switch spine2; 0 of 8192 are free"),
        ([other("leaf2", n) for n in range(1, 256)], "switch leaf2 has no job id left"),
        (
            [*(other("leaf1", n) for n in range(1, 200)), *(other("leaf2", n) for n in range(200, 256))],
            "no job id is free on all of its switches (spine1 has 255, spine2 has 255, leaf1 has 56, leaf2 has 199 of 255",
        ),
        (
            [other("leaf2", n, workers=255) for n in range(1, 17)],
            "no room for 4 members on switch leaf2: 3 of its 4083 member entries are free",
        ),
    ],
)
def test_a_refusal_names_the_switch(there: list[Job], words: str) -> None:
    with pytest.raises(NoSwitchError) as caught:
        place(spec(), TOPO, there, 0, TABLE)
    assert words in str(caught.value)


def shared(**quota: int) -> Topology:
    return Topology.model_validate({**TOPO.model_dump(), "tenants": {"vision": quota}})


@pytest.mark.parametrize(
    ("quota", "there", "words"),
    [
        (
            {"slots": 200},
            [other("spine1", 1, 0, 128, tenant="vision")],
            "switch spine1 has no room for 128 slots (it uses 128",
        ),
        ({"members": 1}, [], "switch spine1 has no room for 2 members (it uses 0 of 1)"),  # the two leaves
        (
            {"members": 2},
            [other("leaf2", 1, workers=1, tenant="vision")],
            "switch leaf2 has no room for 2 members (it uses 1 of 2)",
        ),
    ],
)
def test_quotas_count_on_each_switch(quota: dict[str, int], there: list[Job], words: str) -> None:
    with pytest.raises(RejectedError) as caught:
        place(spec(tenant="vision"), shared(**quota), there, 0, TABLE)
    assert words in str(caught.value)
    assert place(spec(tenant="vision"), shared(**{key: 10**4 for key in quota if key != "slots"}), there, 0, TABLE)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: spec(roots={"spine9": 1}), "no switch 'spine9' to be a root"),
        (lambda: spec("h1", "h9"), "no host h9"),
        (lambda: spec(roots={"leaf1": 1, "spine1": 1}), "cannot share"),
    ],
)
def test_trees_that_cannot_be(make: Callable[[], JobSpec], words: str) -> None:
    with pytest.raises(RejectedError) as caught:
        place(make(), TOPO, [], 0, TABLE)
    assert str(caught.value).startswith("job 'new': ")
    assert words in str(caught.value)


def test_it_goes_around_what_is_down() -> None:
    assert bases(place(spec(), TOPO, [], 0, TABLE, {"spine1"})) == {"spine2": 0, "leaf1": 0, "leaf2": 0}
    with pytest.raises(NoSwitchError, match="h3, h4 cannot be reached"):
        place(spec(), TOPO, [], 0, TABLE, {"leaf2"})


def test_parts_that_are_there_stay_and_others_are_kept() -> None:
    first = place(spec(roots={"spine1": 1}), TOPO, [], 0, TABLE)
    job = other("leaf1", first.job_id)
    job = replace(job, name="new", slots=128, parts=first.parts, members=HOSTS)
    around = plan_trees(TOPO, HOSTS, down={"spine1"})
    taken = other("spine2", 9, 0, 128)
    parts = place_again(TOPO, job, around, [job, taken], TABLE)
    assert [part.switch for part in parts] == ["spine2", "leaf1", "leaf2", "spine1"]
    assert parts[0].slot_base == 128
    assert set(first.parts) < set(parts)
    with pytest.raises(RejectedError, match=r"its id 1 is another job's on switch spine2"):
        place_again(TOPO, job, around, [job, other("spine2", job.job_id)], TABLE)
    with pytest.raises(RejectedError, match="16 stripes do not fit into its 2 slots"):
        place_again(TOPO, other("leaf1", 1), plan_trees(TOPO, HOSTS), [], TABLE)


def test_parents_come_before_children() -> None:
    topology = fat_tree(4)
    trees = plan_trees(topology, list(topology.hosts))
    parts = in_order(trees, [Part(name, 0) for name in reversed(list(trees.nodes))])
    place_of = {part.switch: place for place, part in enumerate(parts)}
    assert parts[0].switch == trees.roots[0]
    assert all(place_of[parent] < place_of[child] for child, parent in trees.edges)
