# SPDX-License-Identifier: MIT
"""Requests for placement: scopes, jobs and their sizes."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum_controller.errors import InputError
from netsum_planner.placement.failure_domains import derived, read_failure_domains
from netsum_planner.placement.jobs import Sizes, read_jobs
from netsum_planner.topologies import shapes
from netsum_planner.topologies.model import Topology
from netsum_planner.training.job import Layer, Training, to_yaml

from tests.planner.trainings import BLOCKS, MB, job

# Scopes


@pytest.mark.parametrize(
    ("topology", "racks", "zones", "buildings"),
    [
        (shapes.fat_tree(4, 10), [2] * 8, [4] * 4, [16]),
        (shapes.leaf_spine(2, 3, 4, 10), [4] * 3, [12], [12]),
        (shapes.bigraph(4, 10), [2] * 4, [8], [8]),
        (shapes.star(5, 10), [5], [5], [5]),
        (shapes.torus((2, 3), 10), [6], [6], [6]),
        (shapes.a100(2), [8, 8], [16], [16]),
        (shapes.mi250(2), [16, 16], [32], [32]),
    ],
    ids=lambda each: each.name if isinstance(each, Topology) else "",
)
def test_scopes_of_a_topology(topology: Topology, racks: list[int], zones: list[int], buildings: list[int]) -> None:
    scopes = derived(topology)
    for level, expected in (("rack", racks), ("zone", zones), ("building", buildings)):
        names = [scopes.at(host, level) for host in topology.hosts]
        assert [names.count(name) for name in dict.fromkeys(names)] == expected, level
    for one, other in combinations(topology.hosts, 2):
        assert scopes.together((one, other), "zone") or not scopes.together((one, other), "rack")
        assert scopes.together((one, other), "building") or not scopes.together((one, other), "zone")


def test_scopes_of_a_file(tmp_path: Path) -> None:
    path, topology = tmp_path / "scopes.yaml", shapes.star(6, 10)
    path.write_text("scopes:\n  east:\n    row1: {r1: [h1, h2], r2: [h3]}\n  west:\n    row1: {r1: [h4, h5, h6]}\ntaken: [h3]\n")
    scopes = read_failure_domains(path, topology)
    assert scopes.taken == {"h3"}
    assert scopes.at("h1", "rack") == "east/row1/r1"
    assert scopes.at("h3", "zone") == "east/row1"
    assert not scopes.together(("h1", "h4"), "zone")
    path.write_text("scopes: {r1: [h1, h2], r2: [h3, h4, h5, h6]}\n")
    flat = read_failure_domains(path, topology)
    assert flat.together(topology.hosts, "zone")
    assert not flat.together(topology.hosts, "rack")


def test_fragmentation_is_what_groups_cannot_use() -> None:
    scopes = derived(shapes.leaf_spine(1, 2, 4, 10))
    assert scopes.fragmentation(("h1", "h2", "h3", "h4")) == 0
    # Three and one: pairs leave one of each over, fours leave all.
    assert scopes.fragmentation(("h1", "h2", "h3", "h5")) == pytest.approx((2 / 4 + 4 / 4) / 2)
    assert scopes.fragmentation(()) == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("scopes:\n  r1: [h1, h9]\n  r2: [h2, h3]\n", ":2: scopes.r1.1: there is no host h9"),
        ("scopes:\n  r1: [h1, h2]\n  r2: [h2, h3]\n", ":3: scopes.r2.0: h2 is in a rack already"),
        ("scopes:\n  r1: [h1]\n", ":1: scopes: h2, h3: in no rack"),
        ("scopes:\n  z:\n    r1: [h1]\n  r2: [h2, h3]\n", ":4: scopes.r2: is 1 level deep, and the first rack is 2"),
        ("scopes:\n  a: {b: {c: {d: [h1, h2, h3]}}}\n", ":2: scopes.a.b.c.d: scopes have three levels at most"),
        ("scopes:\n  r1: h1\n", ":2: scopes.r1: a rack is a list of hosts"),
        ("scopes: {r1: [h1, h2, h3]}\ntaken: [h7]\n", ":2: taken.0: there is no host h7"),
        ("scopes: {}\n", ":1: scopes: needs at least 1 entry"),
    ],
)
def test_wrong_scopes_are_named_with_their_line(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "scopes.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_failure_domains(path, shapes.star(3, 10))
    assert f"scopes.yaml{told}" in str(error.value)


# Jobs and sizes


def test_sizes_are_all_that_fit() -> None:
    assert list(job(workers=12).sizes()) == [Sizes(1, 1, 12)]
    found = set(job(workers=12, activation_MB=1).sizes())
    assert found == {Sizes(tp, pp, 12 // (tp * pp)) for tp in range(1, 13) for pp in range(1, 5) if 12 % (tp * pp) == 0}
    assert {each.pp for each in job(workers=12, activation_MB=1, pp=2).sizes()} == {2}
    # 40 million parameters of 16 bytes, and 8 samples in each of 4 layers.
    whole = job(workers=4, activation_MB=1)
    assert whole.memory(Sizes(1, 1, 4)) == pytest.approx(640 * MB + 8 * 4 * MB)
    # Two layers, two of the 8 microbatches of 16 samples in progress.
    assert whole.memory(Sizes(1, 2, 2)) == pytest.approx(320 * MB + 2 * 4 * MB)
    assert {each.tp * each.pp for each in job(workers=4, activation_MB=1, memory_GB=0.4).sizes()} == {2, 4}


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7), st.integers(1, 7))
def test_stages_are_cut_as_evenly_as_can_be(work: list[int], stages: int) -> None:
    layers = tuple(Layer(name=f"{n}", parameters=1, gflops=each) for n, each in enumerate([*work, 1]))
    stages = min(stages, len(layers))
    found = job(training=Training(name="x", layers=layers)).stages(stages)
    assert tuple(layer for stage in found for layer in stage) == layers
    assert len(found) == stages
    assert all(found)
    cuts = (
        [layers[begin:end] for begin, end in pairwise((0, *ends, len(layers)))]
        for ends in combinations(range(1, len(layers)), stages - 1)
    )
    least = min(max(sum(layer.gflops for layer in stage) for stage in cut) for cut in cuts)
    assert max(sum(layer.gflops for layer in stage) for stage in found) == least


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{name: a, training: t.yaml, workers: 0}", "jobs.0.workers: must be 1 or more"),
        ("{name: a, training: t.yaml, workers: 6, tp: 4, activation_MB: 1}", "workers: must be a multiple of tp * pp"),
        ("{name: a, training: t.yaml, workers: 4, pp: 2}", "jobs.0.pp: needs activation_MB"),
        ("{name: a, training: t.yaml, workers: 4, tensor: row}", "tensor: row is none of rack, zone, building"),
        (
            "{name: a, training: t.yaml, workers: 4, pipeline: rack, tensor: zone}",
            "pipeline: rack is less than the zone",
        ),
        (
            "{name: a, training: t.yaml, workers: 4, data: zone, pipeline: null}",
            "data: zone is less than the everything",
        ),
        ("{name: a, training: t.yaml, workers: 4, algorithm: rings}", "algorithm: rings is none of"),
        ("{name: b, training: t.yaml, workers: 4}", "jobs.1.name: b is taken"),
        ("{name: a, training: none.yaml, workers: 4}", "none.yaml: No such file"),
    ],
)
def test_wrong_jobs_are_named_with_their_line(line: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(to_yaml(BLOCKS))
    path = tmp_path / "jobs.yaml"
    path.write_text(f"jobs:\n  - {line}\n  - {{name: b, training: t.yaml, workers: 1}}\n")
    with pytest.raises(InputError) as error:
        read_jobs(path)
    assert told in str(error.value)
    assert "none.yaml" in told or "jobs.yaml:2:" in str(error.value) or "jobs.yaml:3:" in str(error.value)
