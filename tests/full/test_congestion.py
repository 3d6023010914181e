# SPDX-License-Identifier: MIT
"""Links with short queues that mark packets: what hosts learn of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_testbed.fabrics import NamespaceFabric
from netsum_testbed.links import make_link
from netsum_testbed.netns import NamespaceError, run_command

pytestmark = pytest.mark.root


def test_all_ranks_hear_of_one_congested_link(switch: str) -> None:
    """Only the first host's link marks, and its marks come to the other rank by the switch."""
    topology = star(2).filled(hosts={"h1": {"rate_mbps": 50, "queue": 100, "ecn": 1}})
    with NamespaceFabric(topology, switch) as fabric:
        for end in (fabric.interface("h1"), fabric.switch_interface("h1")):
            said = json.loads(fabric._namespace.run("tc", "-j", "qdisc", "show", "dev", end))
            assert [each["kind"] for each in said] == ["tbf", "pfifo"]
        job = fabric.create_job(JobSpec(name="two", members=("h1", "h2")))
        comms = fabric.join_all(job)
        values = np.arange(200_000, dtype=np.float32)
        work = comms[0].allreduce_async(values)
        assert np.array_equal(comms[1].allreduce(values), 2 * values)
        assert np.array_equal(work.wait(), 2 * values)
        assert all(comm.stats.congested > 0 for comm in comms)
        for comm in comms:
            comm.close()


def test_a_link_that_this_machine_cannot_make() -> None:
    with pytest.raises(NamespaceError, match=r"cannot make a link with a queue .* leave queue and ecn out\): tc qdisc"):
        make_link(run_command, "nosuch0", 80, 16, 8)
