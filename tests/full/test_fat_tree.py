# SPDX-License-Identifier: MIT
"""32 workers on a fat-tree of twenty switches, without root: two ranks on each of 16 hosts, four cores that share the blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from netsum.communicator import Communicator
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import fat_tree
from netsum_controller.planning.items import job_trees
from netsum_testbed.fabrics import RootlessFabric
from netsum_testbed.verify.ranks import joined

from tests.full.calls import on_all, results
from tests.system.traffic.links import between, read_links

RANKS = 32


@pytest.fixture(scope="module", params=["embedded"])
def fabric() -> Iterator[RootlessFabric]:
    with RootlessFabric(fat_tree(4)) as fabric:
        yield fabric


@pytest.fixture(scope="module")
def members(fabric: RootlessFabric) -> Iterator[list[Communicator]]:
    hosts = list(fabric.topology.hosts)
    spec = JobSpec(name="large", members=tuple(hosts[rank // 2] for rank in range(RANKS)))
    with joined(fabric, spec) as made:
        yield made.communicators


@pytest.mark.full
def test_32_workers_sum_exactly(members: list[Communicator]) -> None:
    rng = np.random.default_rng(32)
    whole = rng.integers(-(2**31) // RANKS, 2**31 // RANKS, (RANKS, 3000), dtype=np.int32)
    for got in results(on_all(members, lambda comm: comm.allreduce(whole[comm.rank]))):
        np.testing.assert_array_equal(got, whole.sum(axis=0, dtype=np.int32))
    # Multiples of 1/8 far below the quantum's reach: these sums are exact too, and so are their means.
    eighths = (whole >> 20).astype(np.float32) / 8
    means = results(on_all(members, lambda comm: comm.allreduce(eighths[comm.rank], op="mean")))
    for got in means:
        np.testing.assert_array_equal(got, eighths.sum(axis=0) / RANKS)


@pytest.mark.full
def test_every_link_carries_its_share(fabric: RootlessFabric, members: list[Communicator]) -> None:
    """Four cores have a quarter of the blocks each; on every link of the trees each block goes up once, and down."""
    topology = fabric.topology
    trees = job_trees(topology, fabric.controller.job("large"))
    assert Counter(trees.roots) == {f"core{n}": 4 for n in range(1, 5)}
    assert len(trees.nodes) == len(topology.switches) == 20
    size = 64 * 4096
    before = read_links(fabric.controller.context)
    results(on_all(members, lambda comm: comm.allreduce(np.ones(size // 4, np.float32))))
    traffic = between(before, read_links(fabric.controller.context))
    for host, place in topology.hosts.items():
        assert traffic[host, place.switch].bytes >= 2 * size
    for child, parent in trees.edges:
        share = size // (2 if child.startswith("edge") else 4)
        for way in ((child, parent), (parent, child)):
            assert traffic[way].bytes >= share, way
            assert traffic[way].frames >= share // 4096
