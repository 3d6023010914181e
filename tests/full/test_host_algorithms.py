"""Jobs whose members combine themselves, through the whole of netsum: controller, join, UDP between the members."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from netsum.descriptor import AUTO, HOST_ALGORITHMS
from netsum_controller.config.job_spec import JobSpec
from netsum_testbed.checking import Screen
from netsum_testbed.fabric import Fabric
from netsum_testbed.opening import open_fabric
from netsum_testbed.verify.command import verify
from netsum_testbed.verify.members import joined
from netsum_trials.bytes.costs import COSTS
from netsum_trials.bytes.hosts import measure_without
from netsum_trials.exact.command import matrix
from netsum_trials.exact.report import MatrixTotals
from netsum_trials.exact.run import Options, run

from tests.full.calls import on_all, results
from tests.full.commands import invoke

EVERY_ALGORITHM = (*HOST_ALGORITHMS, AUTO)


@pytest.fixture(scope="module")
def without() -> Iterator[Fabric]:
    """A fabric whose switch nobody uses."""
    with open_fabric("embedded", hosts=9, rootless=True) as fabric:
        yield fabric


@pytest.mark.parametrize(
    "algorithm",
    [pytest.param(a, marks=[pytest.mark.full] if a in EVERY_ALGORITHM[2:] else []) for a in EVERY_ALGORITHM],
)
def test_every_collective_is_exact(without: Fabric, algorithm: str) -> None:
    options = Options(jobs=1, workers=(5,), sizes=(0, 1, 65, 1025, 70_000), loss=(0.01,), seed=7, algorithm=algorithm)
    totals, said = MatrixTotals("embedded", seed=7, algorithm=algorithm), list[str]()
    run(without, options, totals, Screen(said.append), "star")
    assert said == []
    assert totals.cells == 24
    assert totals.dropped > 0


@pytest.mark.parametrize("algorithm", HOST_ALGORITHMS)
@pytest.mark.parametrize(
    "workers", [pytest.param(1, marks=pytest.mark.full), 2, pytest.param(9, marks=pytest.mark.full)]
)
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
    again = Options(algorithm="ring", topologies=("star",)).replay("embedded", "star", 3)
    assert again == 'make matrix SWITCH=embedded SEED=1 ARGS="--topology star --only 3 --algorithm ring"'
