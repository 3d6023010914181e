# SPDX-License-Identifier: MIT
"""Collectives over trees of switches, with losses on every wire; an error on one leaf is reported on all."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from netsum import AbortedError, Communicator, MismatchError, NotFiniteError
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import fat_tree, leaf_spine, tree
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import fabric_of
from netsum_testbed.verify.ranks import joined

from tests.full.calls import kinds, on_all, results
from tests.full.conftest import FABRICS, started
from tests.full.test_collectives import cells
from tests.hosts.cells import check
from tests.system.faults.make import KernelTrunk
from tests.threads import PATIENCE

SHAPES = {"tree": tree(3, 3), "leaf-spine": leaf_spine(2, 3, 3)}
"""Three leaves with three hosts each, under one root or two."""
LOSSY = {"loss": 0.01, "duplicate": 0.01, "reorder": 0.01}
_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=["tree", pytest.param("leaf-spine", marks=pytest.mark.full)])
def shape(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module", params=[FABRICS[0], FABRICS[2]])
def net(request: pytest.FixtureRequest, shape: str) -> Iterator[Fabric]:
    """A fabric of that shape. The embedded switches' wires are bad, all of them; the kernel spoils those of the others."""
    faults = ("--faults", json.dumps({"seed": 5, "ports": {"*": {"in": LOSSY, "out": LOSSY}}}))
    real = request.param.endswith("bmv2")
    with started(request.param, SHAPES[shape], () if real else faults) as fabric, ExitStack() as stack:
        if real:
            for link in fabric.topology.links:
                stack.enter_context(KernelTrunk(fabric, link, 0.02))
        yield fabric


def spec_of(fabric: Fabric, workers: int, **options: Any) -> JobSpec:
    """A job whose ranks are on all leaves in turn."""
    hosts = sorted(fabric.topology.hosts, key=lambda name: (int(name[1:]) % 3, name))
    return JobSpec(name=f"trees-{next(_numbers)}", members=tuple(hosts[:workers]), **options)


@pytest.mark.parametrize(("workers", "turn"), [(4, 1), *(pytest.param(*of, marks=pytest.mark.full) for of in ((2, 0), (9, 2)))])
def test_collectives_are_exact_whatever_is_lost_between_switches(net: Fabric, workers: int, turn: int) -> None:
    with joined(net, spec_of(net, workers)) as there:
        check(there.communicators, cells(workers, turn)[:: 1 + (workers > 4)])
        assert sum(comm.stats.retransmissions for comm in there.communicators) > 0


@pytest.mark.full
def test_two_jobs_over_the_same_switches(net: Fabric) -> None:
    with (
        joined(net, spec_of(net, 4, window=8)) as first,
        joined(net, JobSpec(name=f"trees-{next(_numbers)}", members=tuple(net.topology.hosts)[5:], window=16)) as second,
    ):
        every = [*first.communicators, *second.communicators]
        got = results(on_all(every, lambda comm: comm.allreduce(np.full(30_000, comm.rank + 1), timeout=PATIENCE)))
        assert [set(array.tolist()) for array in got] == [{10}] * 8


def test_what_fails_on_one_leaf_is_told_on_all(net: Fabric) -> None:
    def failing(comm: Communicator) -> Any:
        array = np.ones(5000, np.float32)
        if comm.rank == 5:
            array[77] = np.nan
        return comm.allreduce(array, timeout=PATIENCE)

    with joined(net, spec_of(net, 6)) as there:
        assert kinds(on_all(there.communicators, failing)) == [AbortedError] * 5 + [NotFiniteError]
        sums = results(on_all(there.communicators, lambda comm: int(comm.allreduce(np.arange(3), timeout=PATIENCE)[-1])))
        assert sums == [12] * 6


@pytest.mark.parametrize("odd", [0, pytest.param(1, marks=pytest.mark.full), 5])
def test_a_rank_that_makes_another_call_ends_it_for_all(net: Fabric, odd: int) -> None:
    def differing(comm: Communicator) -> Any:
        return comm.allreduce(np.ones(3000 + (comm.rank == odd), np.int32), timeout=PATIENCE)

    with joined(net, spec_of(net, 6)) as there:
        assert kinds(on_all(there.communicators, differing)) == [MismatchError] * 6


@pytest.mark.full
def test_three_levels_and_four_roots() -> None:
    """Racks of two edges under two aggregation switches, four cores: a stripe for each, every wire bad."""
    fabric = fabric_of(fat_tree(4), "embedded", rootless=True)
    fabric.switch_options = ("--faults", json.dumps({"seed": 6, "ports": {"*": {"in": LOSSY, "out": LOSSY}}}))
    with fabric, joined(fabric, JobSpec(name="fat", members=tuple(fabric.topology.hosts)[::2])) as there:
        assert set(fabric.controller.job("fat").epoch.shape.roots) == {"core1", "core2", "core3", "core4"}
        check(there.communicators, cells(8, 3)[::4])
