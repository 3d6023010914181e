# SPDX-License-Identifier: MIT
"""Jobs side by side: no sum is wrong beside a job that misbehaves, and a host sends no more than its rate."""

from __future__ import annotations

import json
import threading
from functools import partial

import numpy as np
import pytest
from netsum.transports.base import Transport
from netsum_bench.traffic_generator import contribution
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import NamespaceFabric
from netsum_testbed.links import limit_rate
from netsum_testbed.netns import NamespaceError, run_command

from tests.full.conftest import joined
from tests.threads import PATIENCE, meanwhile, returned, until

FLOODS: dict[str, tuple[dict[str, int], ...]] = {
    "one window again and again": ({},),
    "jobs and members that do not exist": ({"job_id": 254}, {"src_id": 200}),
}


@pytest.mark.full
@pytest.mark.parametrize("flood", FLOODS)
def test_no_sum_is_wrong_beside_a_flood(fabric: Fabric, flood: str) -> None:
    hosts = tuple(fabric.topology.hosts)
    opened: list[Transport] = []

    def keep(transport: Transport) -> Transport:
        opened.append(transport)
        return transport

    job = fabric.create_job(JobSpec(name="flood", members=(hosts[-1], hosts[-1])))
    over, sent = threading.Event(), threading.Event()
    with joined(fabric, 2, window=16) as honest, fabric.join(job, 0, wrap=keep) as flooder:
        own, payload = flooder.descriptor, bytes(flooder.descriptor.block_bytes)
        packets = [contribution(own, at, payload, **changes) for at in range(own.window) for changes in FLOODS[flood]]

        def send() -> None:
            while not over.is_set():
                opened[0].send(packets)
                sent.set()

        with meanwhile(send):
            until(sent.is_set, "the flood has begun")
            for number in range(20):
                values = np.arange(20_000, dtype=np.int32) + number
                calls = [partial(comm.allreduce, values, timeout=PATIENCE) for comm in honest]
                for total in returned(calls):
                    assert np.array_equal(total, 2 * values)
            over.set()
    fabric.delete_job("flood")


@pytest.mark.root
def test_a_host_sends_no_more_than_its_rate() -> None:
    topology = star(2).filled(hosts={"h1": {"rate_mbps": 80}})
    with NamespaceFabric(topology, "embedded") as fabric:

        def shaped(host: str) -> list[tuple[str, int]]:
            said = fabric._namespace.run("tc", "-j", "qdisc", "show", "dev", fabric.interface(host))
            return [(each["kind"], each["options"].get("rate")) for each in json.loads(said)]

        assert shaped("h1") == [("tbf", 80_000_000 // 8)]
        assert "tbf" not in dict(shaped("h2"))


@pytest.mark.root
def test_a_rate_that_this_machine_cannot_do() -> None:
    with pytest.raises(NamespaceError, match=r"cannot limit the rate of a link .* leave rate_mbps out\): tc qdisc add"):
        limit_rate(run_command, "nosuch0", 80)
