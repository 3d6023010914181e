# SPDX-License-Identifier: MIT
"""A job of 1,024 ranks on 64 hosts: the switch gets one contribution from each host, for 16 workers, and answers all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import pytest
from netsum.core.blocks import Block
from netsum.core.endpoint_factory import open_transport
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.transports.base import Transport
from netsum.wire.codec import Header
from netsum.wire.schema import EVERYONE, Lane, Op
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_testbed.fabric import Fabric

from tests.full.conftest import started
from tests.threads import PATIENCE

HOSTS, RANKS = 64, 16
LANES = 256


@pytest.fixture(scope="module")
def site() -> Iterator[Fabric]:
    with started("rootless-embedded", star(HOSTS, shared=HOSTS)) as fabric:
        yield fabric


@dataclass
class Leader:
    """The rank that contributes for a host's, without the others' processes."""

    endpoint: SwitchEndpoint
    transport: Transport
    results: list[tuple[Header, bytes]] = field(default_factory=list)

    def submit(self, value: int, dest: int) -> None:
        """A contribution for all ranks of the host, each with this value in every lane."""
        payload = np.full(LANES, RANKS * value, ">u4").tobytes()
        block = Block(1, Op.SUM, Lane.L32, payload, dest=dest, counts=(RANKS, RANKS))
        block.on_result = lambda header, data: self.results.append((header, bytes(data)))
        self.endpoint.submit(block)

    def turn(self) -> None:
        self.transport.send(self.endpoint.poll(time.monotonic()))
        self.endpoint.receive(self.transport.recv(0), time.monotonic())


@pytest.mark.parametrize("dest", [EVERYONE, 700])
def test_a_block(site: Fabric, dest: int) -> None:
    members = tuple(f"h{1 + rank // RANKS}" for rank in range(HOSTS * RANKS))
    job = site.create_job(JobSpec(name=f"thousand-{dest}", members=members, share_memory=True))
    with ExitStack() as stack:
        stack.callback(site.delete_job, job.name)
        leaders = []
        for rank in range(0, HOSTS * RANKS, RANKS):
            descriptor = site.controller.descriptor(job.name, rank)
            assert (descriptor.workers, descriptor.local_ranks) == (1024, tuple(range(rank, rank + RANKS)))
            transport = open_transport(descriptor)
            stack.callback(transport.close)
            leaders.append(Leader(SwitchEndpoint(descriptor), transport))
        for number, leader in enumerate(leaders):
            leader.submit(number, dest)
        deadline = time.monotonic() + PATIENCE
        while not all(leader.results for leader in leaders):
            for leader in leaders:
                leader.turn()
            assert time.monotonic() < deadline, "no result"
        right = np.full(LANES, RANKS * sum(range(HOSTS)), ">u4").tobytes()
        for number, leader in enumerate(leaders):
            ((header, payload),) = leader.results
            assert (header.worker_cnt, header.data_cnt, header.degraded) == (1024, 1024, 0)
            assert payload == (right if dest in (EVERYONE, *range(number * RANKS, (number + 1) * RANKS)) else b"")
        outcomes = site.controller.stats(job.name).outcomes
        assert (outcomes["accepted"], outcomes["completed"]) == (HOSTS - 1, 1)
