# SPDX-License-Identifier: MIT
"""Placement of trainings: steps, hosts, takeovers, and `netsum plan place`."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, permutations
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum_controller.config.job_spec import parse_job
from netsum_planner.errors import PlanError
from netsum_planner.placement.failover import fail_over
from netsum_planner.placement.jobs import Placement, Sizes
from netsum_planner.placement.search import POLICIES, fit
from netsum_planner.placement.step_time import Groups, StepEstimate, StepSimulation, predicted
from netsum_planner.topologies import shapes
from netsum_planner.topologies.model import Topology
from netsum_planner.training.job import Layer, to_yaml
from netsum_planner.training.timeline import predict, simulated

from tests.examples import one_in
from tests.planner.commands import netsum, ran, refused, written
from tests.planner.trainings import BLOCKS, MACHINE, MB, job, placer


def uneven() -> Topology:
    """Three leaves of two hosts; the links of the second leaf are slow, and h6's own."""
    topology = shapes.leaf_spine(1, 3, 2, 10)
    slow = {"leaf2": 4, "h6": 2}
    links = tuple(
        replace(link, rate=Fraction(next((rate for end, rate in slow.items() if end in (link.source, link.target)), 10)))
        for link in topology.links
    )
    return replace(topology, links=links)


# Steps


def test_without_model_parallelism_a_step_is_that_of_predict_step() -> None:
    topology = shapes.leaf_spine(2, 2, 2, Fraction(1, 2))
    for training in (BLOCKS, BLOCKS.model_copy(update={"overlap": False, "input_ms": 900.0, "prefetch": False})):
        placement = Placement(job(training=training), Sizes(1, 1, 4), topology.hosts)
        found = predicted(placement, StepSimulation(topology, MACHINE))
        told = predict(training, MACHINE, simulated(topology, "in_network", MACHINE), workers=4)
        assert found.step == pytest.approx(told.step)
        assert found.gradients == pytest.approx(told.exposed)
        assert found.efficiency == pytest.approx(told.efficiency)


def test_a_step_with_all_kinds_of_parallelism_by_hand() -> None:
    """A replica of 2 x 2 hosts on a star has 32 samples, in 8 microbatches of 4. Each is computed in 2 layers by 2 hosts: 12 ms.
    Activations of 4 samples are 4 MB: an allreduce of two takes 4 ms at 1 GB/s each way, two layers have 8 of them; half of 4 MB
    each take 2 ms on and 2 ms back. So a turn takes 48 ms, and there are 9."""
    topology = shapes.star(8, 1)
    wanted = job(workers=8, activation_MB=1, algorithm="ring")
    placement = Placement(wanted, Sizes(2, 2, 2), topology.hosts)
    found = predicted(placement, StepEstimate(topology, MACHINE))
    assert found.compute == pytest.approx(8 * 0.012)
    assert found.tensor == pytest.approx(8 * 0.032)
    assert found.pipeline == pytest.approx(8 * 0.004)
    assert found.bubble == pytest.approx(0.048)
    # Of the last turn's 48 ms, two thirds are the backward pass, after which 40 MB (half of two layers) take 40 ms: one bucket.
    assert found.gradients == pytest.approx(0.040)
    assert found.step == pytest.approx(9 * 0.048 + 0.040)
    assert found.efficiency == pytest.approx(0.096 / found.step)


@pytest.mark.parametrize("algorithm", ["in_network", "ring", "halving_doubling", "double_binary_tree"])
def test_an_estimate_is_near_the_simulation(algorithm: str) -> None:
    """Of two groups that meet on the uplinks of the leaves."""
    topology = shapes.leaf_spine(1, 2, 4, 10)
    groups = Groups(algorithm, (("h1", "h2", "h5", "h6"), ("h3", "h4", "h7", "h8")))
    one, other = (kind(topology, MACHINE).allreduce(groups)(4 * MB) for kind in (StepEstimate, StepSimulation))
    assert one == pytest.approx(other, rel=0.25)
    alone, both = (
        StepEstimate(topology, MACHINE).allreduce(Groups(algorithm, groups.groups[:1]), beside)(4 * MB)
        for beside in ([], [Groups(algorithm, groups.groups[1:])])
    )
    assert both > alone


# Hosts


def test_the_best_of_all_placements_is_found() -> None:
    """Against all orders of all free hosts, in all sizes, that keep the scopes."""
    topology = uneven()
    wanted = job(workers=4, activation_MB=0.2, memory_GB=0.4)
    asked = placer(topology, wanted, taken="h1")
    found = asked.place()
    calls = StepSimulation(topology, MACHINE)
    steps = []
    for sizes in wanted.sizes():
        for order in permutations(asked.free, 4):
            placement = Placement(wanted, sizes, order)
            if placement.holds(asked.scopes):
                steps.append(predicted(placement, calls).step)
    assert len(steps) > 100
    assert found.predicted[0].step == pytest.approx(min(steps))
    assert found.predicted[0].step < max(steps) * 0.9


@one_in(4, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    taken=st.sets(st.integers(1, 16), max_size=8),
    spare=st.integers(0, 1),
    workers=st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=3),
    data=st.sampled_from([None, "zone", "building"]),
)
def test_what_always_holds(seed: int, taken: set[int], spare: int, workers: list[int], data: str | None) -> None:
    topology = shapes.fat_tree(4, 1)
    jobs = [job(f"j{n}", count, activation_MB=0.5, data=data) for n, count in enumerate(workers)]
    asked = placer(topology, *jobs, taken=" ".join(f"h{n}" for n in taken), spare=spare)
    random = Random(seed)
    for policy in POLICIES:
        for sizes in jobs[0].sizes():
            placement = fit(asked.scopes, asked.usable, jobs[0], sizes, policy, random)
            if placement is not None:
                assert placement.holds(asked.scopes)
                assert len(set(placement.order)) == len(placement.order) == jobs[0].workers
                assert set(placement.order) <= set(asked.usable)
    sizes_of_all = [(one, size) for one in jobs for size in one.sizes()]
    if not any(fit(asked.scopes, asked.usable, *each, "first-fit", random) for each in sizes_of_all):
        with pytest.raises(PlanError, match="free"):
            asked.place(seed)
        return
    found = asked.place(seed)
    hosts = [host for each in found.placements for host in each.order]
    assert len(set(hosts)) == len(hosts)
    assert set(hosts) <= set(asked.usable)
    assert set(hosts) | set(found.free) == set(asked.free)
    assert all(each.holds(asked.scopes) for each in found.placements)
    assert len(found.placements) + len(found.waiting) == len(jobs)
    assert found.score <= asked.by_policy("first-fit").score


def test_exchanges_improve_what_one_after_the_other_gives() -> None:
    """The first job takes hosts that are as good for it as others, and that the second can use better."""
    light = BLOCKS.model_copy(update={"layers": (Layer(name="l", parameters=1, gflops=10),)})
    jobs = (job("light", 2, light), job("heavy", 2))
    asked = placer(uneven(), *jobs)
    calls = StepSimulation(asked.topology, MACHINE)
    best = min(predicted(Placement(jobs[1], Sizes(1, 1, 2), each), calls).step for each in combinations(asked.free, 2))
    assert asked.by_policy("packed").predicted[1].step > 1.05 * best
    assert asked.place().predicted[1].step == pytest.approx(best, rel=0.01)


def test_who_waits_and_why() -> None:
    topology = shapes.fat_tree(4, 10)
    found = placer(topology, job("a", 12), job("b", 8), job("c", 4, activation_MB=1, tp=4)).place()
    assert [each.job.name for each in found.placements] == ["a"]
    assert [(each.name, why.split(",")[0]) for each, why in found.waiting] == [
        ("b", "8 hosts wanted"),
        ("c", "4 hosts wanted"),
    ]
    assert "tensor in one rack" in found.waiting[1][1]
    with pytest.raises(PlanError, match="17 hosts wanted, 16 free"):
        placer(topology, job(workers=17)).place()
    with pytest.raises(PlanError, match=r"needs 0\.\d GB a worker at least, and memory_GB is 0\.1; with activation_MB"):
        placer(topology, job(memory_GB=0.1))
    with pytest.raises(PlanError, match="pp is 8, and its training has 4 layers"):
        placer(topology, job(workers=8, pp=8, activation_MB=1))
    assert len(placer(topology, job(workers=8), spare=1).place().free) == 8


def test_hosts_that_cannot_reach_each_other_are_not_put_together() -> None:
    topology = shapes.leaf_spine(1, 3, 2, 10).without(["spine1", "leaf3"])
    found = placer(topology, job("a", 2), job("b", 2)).place()
    assert {frozenset(each.order) for each in found.placements} == {frozenset({"h1", "h2"}), frozenset({"h3", "h4"})}
    # h5 and h6 have no link.
    assert found.free == ()
    with pytest.raises(PlanError, match=r"job job: .*no switch that sums reaches all 4 hosts"):
        placer(topology, job(workers=4)).place()
    with pytest.raises(PlanError, match=r"no path from h\d to h3"):
        placer(topology, job(workers=4, algorithm="ring")).place()


# Takeovers


def test_a_host_that_is_lost() -> None:
    """Racks of 4, tensor groups of 2: another host of the rack, or else another group, or else a replica fewer, or none."""
    topology = shapes.leaf_spine(1, 2, 4, 10)
    wanted = job(workers=4, activation_MB=1, tp=2, pp=1)
    order = ("h1", "h2", "h5", "h6")

    def lose(host: str, taken: str, *, order: tuple[str, ...] = order) -> Any:
        asked = placer(topology, wanted._replace(wanted=wanted.wanted.model_copy(update={"workers": len(order)})), taken=taken)
        placed = Placement(asked.jobs[0], Sizes(2, 1, len(order) // 2), order)
        return fail_over(asked, asked.plan([placed], StepSimulation(topology, MACHINE)), host)

    near = lose("h2", "")
    assert near.by[0] in ("h3", "h4")
    assert near.nbytes == 40 * MB / 2 * 16
    assert near.source == ("h6",)
    # From the other leaf, at 10 GB/s.
    assert near.seconds == pytest.approx(near.nbytes / 10e9)
    assert near.after.step == pytest.approx(near.before.step)
    far = lose("h2", "h3 h4")
    assert set(far.by) == {"h7", "h8"}
    assert set(far.source) == {"h5", "h6"}
    assert far.nbytes == 2 * near.nbytes
    fewer = lose("h2", "h3 h4 h8")
    assert fewer.by == ()
    assert fewer.placement.order == ("h5", "h6")
    assert fewer.after.step > 1.5 * fewer.before.step
    alone = lose("h2", "", order=("h1", "h2"))
    assert (alone.source, alone.seconds) == ((), None)
    none = lose("h2", "h3 h4 h5 h6 h7 h8", order=("h1", "h2"))
    assert none.after is None
    assert lose("h7", "") is None


# The command


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "blocks.yaml").write_text(to_yaml(BLOCKS))
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(
        "jobs:\n"
        "  - {name: one, training: blocks.yaml, workers: 4, activation_MB: 1, memory_GB: 0.4}\n"
        "  - {name: two, training: blocks.yaml, workers: 4}\n"
    )
    return written(tmp_path, shapes.fat_tree(4, 10)), jobs


def test_the_command(files: tuple[Path, Path]) -> None:
    words = ("plan", "place", *files, "--taken", "h2,h5")
    told = ran(*words, "--lost", "h1", "--lost", "h2", "--compare", "--seeds", 2)
    assert [each["job"] for each in told["jobs"]] == ["one", "two"]
    assert {"step_ms", "efficiency", "tensor_parallel", "order"} <= set(told["jobs"][0])
    assert len(told["compared"]["random"]) == 2
    assert told["efficiency"] >= told["compared"]["first-fit"][0]["efficiency"] - 1e-9
    assert told["lost"][1] == {"lost": "h2", "job": None}
    # The same seed finds the same hosts.
    spec = parse_job(netsum(*words, "--job", "two", "--as", "job").output, "two.yaml")
    assert [*spec.members] == told["jobs"][1]["order"]
    assert spec.algorithm == "switch"


def test_its_tables(files: tuple[Path, Path], tmp_path: Path) -> None:
    scopes = tmp_path / "scopes.yaml"
    scopes.write_text("scopes:\n  all: [" + ", ".join(f"h{n}" for n in range(1, 17)) + "]\ntaken: [h2, h5]\n")
    shown = netsum("plan", "place", *files, "--scopes", scopes, "--lost", "h2")
    assert shown.exit_code == 0, shown.output
    for part in ("fattree4: 14 hosts of 16 free", "h2 lost: no job has it", "two: h", "fragmentation "):
        assert part in shown.output


@pytest.mark.full
def test_its_picture(files: tuple[Path, Path], tmp_path: Path) -> None:
    picture = tmp_path / "racks.png"
    assert netsum("plan", "place", *files, "--plot", picture).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--taken", "h2,h99"), "--taken h2,h99: fattree4 has no host h99"),
        (("--as", "job"), "choose it with --job (one, two)"),
        (("--as", "job", "--json"), "--as prints the order alone"),
        (("--lost", "h99"), "no host h99"),
        (("--scopes", "none.yaml"), "none.yaml: No such file"),
    ],
)
def test_what_is_wrong_is_said(words: tuple[str, ...], told: str, files: tuple[Path, Path]) -> None:
    assert told in refused("plan", "place", *files, *words)
