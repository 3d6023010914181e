# SPDX-License-Identifier: MIT
"""Jobs of different classes on one switch: the lower gives way while the higher is busy, loses no block, and completes. How far
it gives way is shown in simulated time (tests/hosts/test_priority_backoff.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from netsum import Communicator, Work
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import tree
from netsum_controller.entries import JobEntry
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import fabric_of

from tests.full.calls import on_all, results
from tests.full.conftest import Members, joined
from tests.threads import PATIENCE

BLOCKS = 4000
LANES = 64  # of 32 bits in a block of one chunk
ROUNDS = 50
"""Long calls, at most: on a busy machine one may be over before the other job has made a call beside it."""


def begin(low: Sequence[Communicator], blocks: int = BLOCKS) -> list[Work[Any]]:
    """A long call of every rank, already begun."""
    return [comm.allreduce_async(np.arange(blocks * LANES, dtype=np.int32) + comm.rank, timeout=PATIENCE) for comm in low]


def end(works: Sequence[Work[Any]], blocks: int = BLOCKS) -> None:
    """Its sum, on every rank."""
    expected = len(works) * np.arange(blocks * LANES, dtype=np.int32) + len(works) * (len(works) - 1) // 2
    for work in works:
        assert np.array_equal(work.wait(), expected)


def call(comm: Communicator) -> None:
    """A call of 64 blocks."""
    total = comm.allreduce(np.full(64 * LANES, comm.rank + 1, np.int32), timeout=PATIENCE)
    assert set(total.tolist()) == {comm.size * (comm.size + 1) // 2}


def told(communicators: Sequence[Communicator]) -> int:
    """Results that told a rank to give way."""
    return sum(comm.stats.backoffs for comm in communicators)


def until_told(low: Sequence[Communicator], high: Sequence[Communicator], blocks: int = BLOCKS) -> None:
    """Make long calls of one job beside calls of the other until a result has told it to give way."""
    for _ in range(ROUNDS):
        works = begin(low, blocks)
        while not told(low) and not all(work.done() for work in works):
            results(on_all(high, call))
        end(works, blocks)
        if told(low):
            return
    raise AssertionError("its calls ended beside those of the other, and it was never told to give way")


def test_a_job_gives_way_to_one_of_a_higher_class_and_still_ends(members: Members) -> None:
    with (
        members(2, chunks=1, window=4, priority=1) as low,
        members(2, first=2, chunks=1, window=32, priority=5) as high,
    ):
        until_told(low, high)
        assert told(high) == 0


def test_jobs_of_one_class_do_not_back_off(members: Members) -> None:
    with members(2, chunks=1, priority=3) as one, members(2, first=2, chunks=1, priority=3) as other:
        works = begin(one, 500)
        for _ in range(5):
            results(on_all(other, call))
        end(works, 500)
        assert told(one) == told(other) == 0


def test_no_job_backs_off_for_one_that_is_idle_or_gone(fabric: Fabric, members: Members) -> None:
    urgent = JobSpec(name="urgent", members=tuple(fabric.topology.hosts)[2:4], chunks=1, priority=7)
    with members(2, chunks=1) as low:
        job = fabric.create_job(urgent)
        try:
            results(on_all(low, call))
            assert told(low) == 0, "the other has made no call"
            epochs = [comm.descriptor.epoch for comm in low]
        finally:
            fabric.controller.delete_job(job.name)
        with fabric.controller.context.client("s1") as client:
            entries = [item for item in client.read_items() if isinstance(item, JobEntry)]
        assert {entry.priority for entry in entries} == {0}
        results(on_all(low, call))
        assert told(low) == 0
        assert [comm.descriptor.epoch for comm in low] == epochs


@pytest.mark.full
def test_in_a_tree_those_give_way_who_share_a_switch() -> None:
    """A job on both leaves, beside one of a higher class that only the first leaf has."""
    with fabric_of(tree(2, 3), "embedded", rootless=True) as fabric:
        hosts = fabric.topology.hosts
        (near, *pair), (far, *_) = (list(fabric.topology.hosts_of(leaf)) for leaf in ("leaf1", "leaf2"))
        assert list(hosts)[:3] == [near, *pair]
        wide = fabric.create_job(JobSpec(name="wide", members=(near, far), chunks=1, window=4))
        with joined(fabric, 2, first=1, chunks=1, window=32, priority=5) as high:
            low = [fabric.join(wide, rank) for rank in range(2)]
            until_told(low, high, 1000)
            assert (low[0].stats.backoffs > 0, low[1].stats.backoffs) == (True, 0)
            assert told(high) == 0
            for comm in low:
                comm.close()
