"""`netsum aggregator --multicast` on a Linux bridge: a result leaves the aggregator once for all hosts that have joined."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from netsum import Communicator
from netsum.frames import FrameFormat, group_mac
from netsum.transports.sockets import parse_address
from netsum.wire.codec import Header, pack_header
from netsum.wire.schema import CHUNK_BYTES, EVERYONE, SWITCH_SOURCE, UDP_PORT
from netsum_testbed.aggregator import aggregator as command

from tests.system.cluster.network import AGGREGATOR, OUTSIDER, OrdinaryNetwork
from tests.system.cluster.run import AggregatorProcess
from tests.testbed.conftest import Refused
from tests.testbed.test_aggregator_interface import add, apart, on_hosts
from tests.threads import until

MTU, STEPS, SIZE = 9000, 4, 1 << 17
UNABLE = "h4"
"""A host whose kernel refuses to join a group."""


__all__ = ["apart"]  # the fixture


@pytest.fixture(scope="module")
def network() -> Iterator[OrdinaryNetwork]:
    with OrdinaryNetwork(4, mtu=MTU) as network:
        network.run(UNABLE, "sysctl", "-qw", "net.ipv4.igmp_max_memberships=0")
        rules = (
            "add table ip count",
            "add chain ip count out { type filter hook output priority 0 ; }",
            f"add rule ip count out ip daddr 239.0.0.0/8 udp sport {UDP_PORT} counter",
            f"add rule ip count out ip daddr {network.address(UNABLE)} udp sport {UDP_PORT} counter",
            f"add rule ip count out ip daddr 10.1.0.0/16 udp sport {UDP_PORT} counter",
        )
        for rule in rules:
            network.run(AGGREGATOR, "nft", rule)
        yield network


@pytest.fixture(scope="module")
def aggregator(network: OrdinaryNetwork, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AggregatorProcess]:
    process = AggregatorProcess(network, tmp_path_factory.mktemp("aggregator"), MTU, "--multicast")
    yield process
    process.stop()


def counted(network: OrdinaryNetwork) -> list[int]:
    """IP bytes that have left the aggregator: to the group, to the host that is unable, and to all single hosts."""
    listed = json.loads(network.run(AGGREGATOR, "nft", "-j", "list", "table", "ip", "count"))["nftables"]
    rules = [each["rule"]["expr"] for each in listed if "rule" in each]
    return [part["counter"]["bytes"] for rule in rules for part in rule if "counter" in part]


@pytest.mark.root
def test_a_result_leaves_once(network: OrdinaryNetwork, aggregator: AggregatorProcess) -> None:
    before = counted(network)

    def train(comm: Communicator) -> Any:
        for _ in range(STEPS):
            assert (comm.allreduce(np.full(SIZE, comm.rank + 1)) == 10).all()
        return comm.stats

    stats = on_hosts(network, network.hosts, aggregator.line, train)
    to_group, to_unable, _ = (now - then for then, now in zip(before, counted(network), strict=True))
    payload = STEPS * SIZE  # such small numbers go in lanes of a byte
    assert payload <= to_group <= 1.1 * payload, "each result once, whatever was sent again"
    assert to_unable >= payload
    assert [each.multicast > 0 for each in stats] == [True, True, True, False]
    assert all(each.malformed == 0 for each in stats)


@pytest.mark.root
def test_sums_go_on_after_a_restart(network: OrdinaryNetwork, aggregator: AggregatorProcess) -> None:
    steps, restarted = [0] * 4, threading.Event()
    came: list[int] = []

    def train(comm: Communicator) -> int:
        while add(comm, restarted.is_set()) < comm.size:
            steps[comm.rank] += 1
        came.append(comm.stats.multicast)
        return comm.stats.resumes

    with ThreadPoolExecutor(1) as elsewhere:
        training = elsewhere.submit(on_hosts, network, network.hosts, aggregator.line, train)
        until(lambda: min(steps) >= 5 or training.done())
        aggregator.kill()
        aggregator.start()
        restarted.set()
        assert min(training.result()) > 0
    assert sorted(map(bool, came)) == [False, True, True, True]


@pytest.mark.root
def test_who_lacks_the_groups_key_changes_nothing(network: OrdinaryNetwork, aggregator: AggregatorProcess) -> None:
    """An outsider sends results of the next blocks to the group, from the aggregator's address, with a key one bit off."""

    def forge(comm: Communicator) -> None:
        described = comm.descriptor
        address, port = parse_address(described.group)
        ends = ("02:00:00:00:00:01", network.address(AGGREGATOR), UDP_PORT), (group_mac(address) or "", address, port)
        frames = FrameFormat(*ends)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
            sock.bind(("eth0", 0))
            for block in range(64):
                header = Header(
                    described.job_id, (described.first_block_id + block) & 0xFFFFFFFF, src_id=SWITCH_SOURCE,
                    receiver_id=SWITCH_SOURCE, worker_cnt=4, data_cnt=4, lane_cnt=CHUNK_BYTES // 8, lane=3, dest=EVERYONE,
                    key=int(described.group_key, 16) ^ 1,
                )  # fmt: skip
                body = pack_header(header) + bytes(CHUNK_BYTES)
                sock.send(frames.prefix(len(body)) + body)

    def train(comm: Communicator) -> int:
        add(comm)  # all have joined
        if comm.rank == 0:
            network.on(OUTSIDER, partial(forge, comm))
        for _ in range(3):
            add(comm)
        return comm.stats.malformed

    assert [each > 0 for each in on_hosts(network, network.hosts, aggregator.line, train)] == [True, True, True, False]


def test_nat_is_refused(refused: Refused, tmp_path: Path) -> None:
    words = ("--host", "127.0.0.1", "--advertise", "192.0.2.7", "--multicast", "--state", str(tmp_path))
    code, lines = refused("aggregator", *words)
    assert code == 2
    assert "--multicast does not go through NAT" in lines[-1]
    assert command.name == "aggregator"
