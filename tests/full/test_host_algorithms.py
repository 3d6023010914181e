# SPDX-License-Identifier: MIT
"""Jobs whose members combine themselves, through the whole of netsum: controller, join, UDP between the members."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from netsum.descriptor import AUTO, CHAIN, HOST_ALGORITHMS, MULTICAST
from netsum.transports.impairment import Impairment
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.errors import InputError, RejectedError
from netsum_planner.topologies import shapes
from netsum_planner.trees.plan import plan_allreduce
from netsum_testbed.checking import Screen
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import open_fabric
from netsum_testbed.verify.command import verify
from netsum_testbed.verify.ranks import joined
from pydantic import ValidationError

from tests.full.calls import on_all, results
from tests.full.commands import invoke
from tests.hosts.plan_files import chain, plan_of, written
from tests.system.matrix.command import MatrixOptions, MatrixTotals, matrix, run
from tests.system.traffic.costs import COSTS
from tests.system.traffic.links import measure_without

EVERY_ALGORITHM = (*HOST_ALGORITHMS, AUTO)


@pytest.fixture(scope="module")
def without() -> Iterator[Fabric]:
    """A fabric whose switch no rank uses."""
    with open_fabric("embedded", hosts=9, rootless=True) as fabric:
        yield fabric


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(name, marks=[pytest.mark.full] if name in (*EVERY_ALGORITHM[2:], MULTICAST) else [])
        for name in (*EVERY_ALGORITHM, CHAIN, MULTICAST)
    ],
)
def test_every_collective_is_exact(without: Fabric, algorithm: str) -> None:
    options = MatrixOptions(jobs=1, workers=(5,), sizes=(0, 1, 65, 1025, 70_000), loss=(0.01,), seed=7, algorithm=algorithm)
    totals, said = MatrixTotals("embedded", seed=7, algorithm=algorithm), list[str]()
    run(without, options, totals, Screen(said.append), "star")
    assert said == []
    assert totals.cells == 24
    assert totals.dropped > 0


@pytest.mark.parametrize("algorithm", HOST_ALGORITHMS)
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.full), 2, pytest.param(9, marks=pytest.mark.full)])
def test_bytes_between_members_and_none_through_the_switch(without: Fabric, algorithm: str, workers: int) -> None:
    """2 (n - 1)/n S, or 2 S, is what the busiest rank sends; each says in its descriptor who combines."""
    count = 9 * 64 * 1024 * 2 // 4  # whole rows for each of 1, 2 and 9 ranks
    spec = JobSpec(name=f"bytes-{algorithm}-{workers}", members=tuple(without.topology.hosts)[:workers])
    with joined(without, spec, algorithm=algorithm) as members:
        assert {comm.descriptor.algorithm for comm in members.communicators} == {algorithm}
        assert {comm.descriptor.by_switch for comm in members.communicators} == {False}
        ranks = members.communicators
        sums = results(on_all(ranks, lambda comm: comm.allreduce(np.full(count, comm.rank + 1, np.float32))))
        assert all((each == workers * (workers + 1) // 2).all() for each in sums)
        sent = max(comm.stats.bytes_sent for comm in members.communicators) / (4 * count)
        again = sum(comm.stats.retransmissions for comm in members.communicators)
    least = 2 * (workers - 1) / workers
    assert sent >= least
    if not again:
        assert sent <= {"double_binary_tree": 2.1, "halving_doubling": 3.6 if workers == 9 else 1.2 * least}.get(
            algorithm, 1.2 * least
        )


def test_every_collective_is_exact_by_a_plan(without: Fabric, tmp_path: Path) -> None:
    """The planner's plan of a star."""
    plan = plan_allreduce(shapes.star(5, 10), chunk_bytes=9 * 4096).to_json()
    assert len(plan["parts"]) > 1
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    name = f"plan:{tmp_path}/plan.json"
    spec = JobSpec(name="by-plan", members=tuple(plan["hosts"]))
    data = np.arange(70_000)
    with joined(without, spec, Impairment(drop=0.01), seed=7, algorithm=name) as members:
        ranks = members.communicators
        assert {comm.descriptor.algorithm for comm in ranks} == {name}
        sums = results(on_all(ranks, lambda comm: comm.allreduce(data * (comm.rank + 1))))
        assert all((each == 15 * data).all() for each in sums)
        assert (results(on_all(ranks, lambda comm: comm.reduce(data + comm.rank, root=3)))[3] == 5 * data + 10).all()
        copies = results(on_all(ranks, lambda comm: comm.broadcast(data if comm.rank == 2 else 0 * data, root=2)))
        assert all((each == data).all() for each in copies)
        parts = results(on_all(ranks, lambda comm: comm.reduce_scatter(data)))
        assert (np.concatenate(parts) == 5 * data).all()
        wholes = results(on_all(ranks, lambda comm: comm.all_gather(data[:1000] + comm.rank)))
        assert all((np.ravel(each)[4000:] == data[:1000] + 4).all() for each in wholes)


def test_a_torus_has_a_place_for_each_member(without: Fabric) -> None:
    hosts = tuple(without.topology.hosts)[:4]
    with pytest.raises(RejectedError, match="'askew': chain:2x2 is for 4 ranks, one at each place of the torus, not for 3"):
        without.create_job(JobSpec(name="askew", members=hosts[:3], algorithm="chain:2x2"))
    ranks = without.join_all(without.create_job(JobSpec(name="torus", members=hosts, algorithm="chain:2x2")))
    data = np.arange(20_000, dtype=np.float32)
    sums = results(on_all(ranks, lambda comm: comm.allreduce(data, scale="float")))
    assert all((each == 4 * data).all() for each in sums)
    groups = results(on_all(ranks, lambda comm: comm.split(comm.rank == 2)))
    assert {comm.descriptor.algorithm for comm in groups} == {CHAIN}
    assert [int(each[0]) for each in results(on_all(groups, lambda comm: comm.allreduce(np.ones(1, np.int64))))] == [
        *(3, 3, 1, 3)
    ]
    for comm in (*groups, *ranks):
        comm.close()


def test_a_plan_is_checked_when_a_job_is_created(without: Fabric, tmp_path: Path) -> None:
    hosts = tuple(without.topology.hosts)[:3]
    name = written(tmp_path, plan_of(3, chain(3), roots={"s1": 1}))
    with pytest.raises(RejectedError, match=r"has the members h1, h3, h2, and .* is for h1, h2, h3, in this order"):
        without.create_job(JobSpec(name="askew", members=(hosts[0], hosts[2], hosts[1]), algorithm=name))
    with pytest.raises(InputError, match=r"nowhere\.json: No such file"):
        without.create_job(JobSpec(name="nowhere", members=hosts, algorithm=f"plan:{tmp_path}/nowhere.json"))
    job = without.create_job(JobSpec(name="planned", members=hosts, algorithm=name))
    ranks = without.join_all(job)
    assert results(on_all(ranks, lambda comm: int(comm.allreduce(np.ones(1, np.int64))[0]))) == [3] * 3
    groups = results(on_all(ranks, lambda comm: comm.split(comm.rank == 2)))
    assert results(on_all(groups, lambda comm: int(comm.allreduce(np.ones(1, np.int64))[0]))) == [2, 2, 1]
    for comm in (*groups, *ranks):
        comm.close()
    assert JobSpec(name="striped", members=hosts, roots=f"plan:{tmp_path}/plan.json").roots == {"s1": 1}  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="names no roots"):
        JobSpec(name="striped", members=hosts, roots=written(tmp_path, plan_of(3, chain(3)), "none.json"))  # type: ignore[arg-type]


@pytest.mark.full
def test_verify_checks_an_algorithm() -> None:
    words = "--rootless --calls 40 --seed 3 --workers 4 --loss 0.01 --max-elements 5000 --algorithm halving_doubling"
    output, last = invoke(verify, f"--switch embedded {words}")
    assert "verify by halving_doubling" in output
    assert (last["algorithm"], last["wrong"], last["timeouts"]) == ("halving_doubling", 0, 0)
    assert last["calls"] >= 40
    assert last["dropped"] > 0


@pytest.mark.full
def test_matrix_checks_an_algorithm() -> None:
    words = "--rootless --topology star --jobs 1 --workers 3 --sizes 0,65 --loss 0 --algorithm auto"
    output, last = invoke(matrix, f"--switch embedded {words}")
    assert (last["algorithm"], last["wrong"], last["cases"]) == ("auto", 0, 24)
    assert [row["collective"] for row in last["bytes"]] == [cost.collective for cost in COSTS]
    assert "Bytes by auto, of all ranks together" in output


@pytest.mark.parametrize("algorithm", EVERY_ALGORITHM)
def test_bytes_of_each_collective_are_what_the_formula_says(without: Fabric, algorithm: str) -> None:
    spec = JobSpec(name=f"volume-{algorithm.replace('_', '-')}", members=tuple(without.topology.hosts)[:4])
    with joined(without, spec, algorithm=algorithm) as members:
        volumes = measure_without(members.communicators, 1 << 16)
    for volume in volumes:
        assert volume.measured >= volume.expected, volume
        if not volume.again and not volume.formula.startswith(">"):
            assert volume.measured <= 1.05 * volume.expected + 7500, volume


def test_what_is_wrong_is_said_with_its_algorithm() -> None:
    again = MatrixOptions(algorithm="ring", topologies=("star",)).replay("embedded", "star", 3)
    assert again == 'make matrix SWITCH=embedded SEED=1 ARGS="--topology star --only 3 --algorithm ring"'
