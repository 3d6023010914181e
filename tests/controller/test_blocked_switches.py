# SPDX-License-Identifier: MIT
"""A blocked path to one of several switches: of a tree, or of those that share the blocks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from netsum.wire.schema import EVERYONE, BlockState, Outcome
from netsum_controller import JobSpec, Topology
from netsum_controller.config.topologies import leaf_spine
from netsum_controller.entries.aggregation import COUNTER, indices
from netsum_controller.jobs.rejoin import Progress
from netsum_controller.monitoring.path_monitor import PathMonitor
from netsum_controller.planning.items import switch_for

from tests.controller.fake_fabric import FakeFabric
from tests.controller.members import TOKEN
from tests.controller.test_stripes import striped
from tests.controller.watched import put_record

LARGE = 4136


@pytest.mark.parametrize(
    ("topology", "switch", "address"),
    [(leaf_spine(2, 2, 2), "leaf2", "10.0.0.253:12000"), (striped(2), "s2", "10.1.0.9:12001")],
    ids=["tree", "stripes"],
)
@pytest.mark.parametrize("arrives", [False, True])
def test_the_path_to_one_of_several_switches_is_blocked(
    open_fabric: Callable[[Topology], FakeFabric], topology: Topology, switch: str, address: str, arrives: bool
) -> None:
    """Packets of the other rank come to another switch, or to the same one; those of this rank go on coming to another. What
    another sender forges where ports are shared does not hold the move up."""
    fabric = open_fabric(topology)
    controller = fabric.open()
    controller.push()
    controller.create_job(JobSpec(name="wide", members=("h1", "h3"), window=8, token=TOKEN))
    for rank in (0, 1):
        controller.join("wide", TOKEN, rank, "a", peer=f"10.0.0.{rank + 1}:4000")
    job = controller.job("wide")
    first, source = job.epoch.first_block_id, job.epoch.seats[1].src_id
    before, ahead = [each for each in range(12) if switch_for(job, 1, first + each) == switch][-2:]
    large = {"lane_cnt": 1024, "lane": 2, "dest": EVERYONE, "data_cnt": 2}
    put_record(fabric.switches[switch], job, before, 0b11, BlockState.DONE, on=switch, **large)
    put_record(fabric.switches[switch], job, ahead, 0b11, BlockState.DONE if arrives else BlockState.OPEN, on=switch, **large)
    now, counter = 0.0, controller.context.program.object_id("counters", COUNTER)
    monitor = PathMonitor(controller.context, 0, blocked_after=10.0, clock=lambda: now)
    for look in range(4):
        now = 4.0 * look
        for name, each in fabric.switches.items():
            for forged in (Outcome.BAD_KEY, Outcome.MALFORMED)[: 1 if fabric.topology.links else 2]:
                each.counters[counter, indices(job.job_id)[forged]] = 100 * look
            each.let_in({0: 9 + 3 * look, 1: 9 + 3 * look} | ({source: 9 + 2 * look * arrives} if name == switch else {}))
        place = Progress(job.epoch.number, None, None, first + ahead, 5 + 2 * look, LARGE, 7)
        controller.join("wide", TOKEN, 1, "a", progress=place)
        reasons = [done.why for done in monitor.look()]
        assert len(reasons) == (look == 3)
    way = f"from {address} to rank 1 (h3)" if arrives else f"from rank 1 (h3) to {address}"
    assert f"UDP {way} is blocked: " in reasons[0]
    assert f"switch {switch}" in reasons[0]
    assert not controller.job("wide").by_switch
