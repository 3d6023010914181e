# SPDX-License-Identifier: MIT
"""Ranks of one host that sum in its memory first: the switch gets one contribution a host, and no result differs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from netsum import Communicator, EvictedError
from netsum.transports import ImpairedTransport, Impairment, Transport
from netsum_controller.config.topologies import star
from netsum_controller.state.model import Late
from netsum_testbed.fabric import Fabric

from tests.full.calls import check_some_of_each, kinds, on_all, results
from tests.full.conftest import joined, started
from tests.full.trouble import Training, restart_switch
from tests.threads import PATIENCE

MEMBERS = ("h1", "h2", "h1", "h3", "h3", "h3")
"""Of h1, the ranks are not neighbors: it gets every payload."""
LOCAL = [(0, 2), (), (0, 2), (3, 4, 5), (3, 4, 5), (3, 4, 5)]


@pytest.fixture(
    scope="module",
    params=[
        "rootless-embedded",
        pytest.param("namespace-embedded", marks=[pytest.mark.root, pytest.mark.full]),
        pytest.param("namespace-bmv2", marks=[pytest.mark.root, pytest.mark.bmv2]),
    ],
)
def site(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    """A switch with three hosts, of which two share a port."""
    with started(request.param, star(3, shared=2)) as fabric:
        yield fabric


def ranks(comm: Communicator) -> tuple[int, ...]:
    return comm.descriptor.local_ranks


def test_all_calls(site: Fabric) -> None:
    with joined(site, 6, members=MEMBERS, share_memory=True) as communicators:
        assert [ranks(comm) for comm in communicators] == LOCAL
        check_some_of_each(communicators)
        stats = site.controller.stats(communicators[0].descriptor.job).outcomes
        assert stats["accepted"] == 2 * stats["completed"], "three hosts contribute, not six ranks"


def test_bits_are_those_of_ranks_that_contribute_each(site: Fabric) -> None:
    def floats(comm: Communicator) -> bytes:
        values = np.random.default_rng(comm.rank).standard_normal(30_000).astype(np.float32)
        return comm.allreduce(values, timeout=PATIENCE).tobytes() + comm.allreduce(values, exact=True, timeout=PATIENCE).tobytes()

    with joined(site, 6, members=MEMBERS, share_memory=True) as communicators:
        together = results(on_all(communicators, floats))
    if not site.rootless:  # there each host has one wire
        with joined(site, 6, members=MEMBERS) as communicators:
            assert [ranks(comm) for comm in communicators] == [()] * 6
            assert results(on_all(communicators, floats)) == together
    assert len(set(together)) == 1


def test_on_a_bad_network(site: Fabric) -> None:
    def bad(transport: Transport, seed: int) -> Transport:
        return ImpairedTransport(transport, Impairment(drop=0.05, duplicate=0.05, reorder=0.05), seed)

    wraps = {rank: lambda transport, rank=rank: bad(transport, rank) for rank in (0, 1, 3)}
    with joined(site, 6, members=MEMBERS, share_memory=True, wraps=wraps) as communicators:
        check_some_of_each(communicators)


def test_calls_go_on_after_the_switch_restarted(site: Fabric) -> None:
    with joined(site, 6, members=MEMBERS, share_memory=True, window=16) as communicators, Training(communicators) as training:
        training.on(10)
        restart_switch(site)
        training.finish(10)
        assert all(comm.stats.resumes > 0 for comm in communicators)


@pytest.mark.full
@pytest.mark.parametrize("gone", [3, 4])
def test_a_rank_is_evicted(site: Fabric, gone: int) -> None:
    """The leader of a host, or another of its ranks: all get a new epoch, in which the others go on."""
    with joined(site, 6, members=MEMBERS, share_memory=True) as communicators:
        check_some_of_each(communicators)
        job = communicators[0].descriptor.job
        site.controller.evict(job, gone)
        outcomes = on_all(communicators, lambda comm: comm.resync(timeout=PATIENCE))
        assert kinds(outcomes) == [EvictedError if rank == gone else None for rank in range(6)]
        rest = [comm for comm in communicators if comm.rank != gone]
        left = tuple(rank for rank in (3, 4, 5) if rank != gone)
        assert [ranks(comm) for comm in rest] == [(0, 2), (), (0, 2), left, left]
        totals = results(on_all(rest, lambda comm: int(comm.allreduce(np.array([comm.rank]), timeout=PATIENCE)[0])))
        assert totals == [15 - gone] * 5


@pytest.mark.full
def test_a_job_that_degrades(site: Fabric) -> None:
    late = partial(joined, late=Late.DEGRADE, block_exp=200.0, quorum=3)
    with late(site, 6, members=MEMBERS, share_memory=True) as communicators:
        sums = results(on_all(communicators, lambda comm: comm.allreduce(np.full(5000, comm.rank + 1), timeout=PATIENCE)))
        assert all((each == sums[0]).all() for each in sums)
        assert set(sums[0]) <= {21, 21 - 4, 21 - 2, 21 - 6, 21 - 15}, "a host is in a sum with all of its ranks or with none"
