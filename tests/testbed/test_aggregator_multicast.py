# SPDX-License-Identifier: MIT
"""`netsum aggregator --multicast` on a Linux bridge: a result leaves the aggregator once for all hosts that have joined."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from netsum import Communicator, EvictedError
from netsum.frames import FrameFormat, group_mac
from netsum.join_url import JoinUrl
from netsum.transports.sockets import parse_address
from netsum.transports.udp import join_group
from netsum.wire.codec import Header, pack_header
from netsum.wire.schema import CHUNK_BYTES, EVERYONE, SWITCH_SOURCE, UDP_PORT
from netsum_testbed.aggregator import aggregator as command

from tests.system.cluster.network import AGGREGATOR, OUTSIDER, OrdinaryNetwork
from tests.system.cluster.run import AggregatorProcess
from tests.testbed.conftest import Refused
from tests.testbed.test_aggregator_interface import add, apart, on_hosts
from tests.threads import PATIENCE, until

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


def of_job(line: str, name: str) -> str:
    """The join line for a job of its own."""
    return replace(JoinUrl.parse(line), job=name).format()


def who_has_joined(aggregator: AggregatorProcess, job: str) -> list[bool]:
    return [member["multicast"] for member in aggregator.ask("job", "show", job)["members"]]


@pytest.mark.root
def test_after_an_eviction_the_group_gets_nothing(network: OrdinaryNetwork, aggregator: AggregatorProcess) -> None:
    """A socket that stays in the evicted rank's group receives no packet more. The others go on without an error."""
    evicted, finished = threading.Event(), threading.Event()
    steps, others = [0] * 4, (0, 1, 3)

    def train(comm: Communicator) -> Any:
        result = np.zeros(1)
        try:
            while result[-1] < len(others):
                mine = np.append(np.full(SIZE, 1 << comm.rank), finished.is_set())
                result = comm.allreduce(mine, timeout=PATIENCE)
                assert {*result[:-1].tolist()} <= {0b1111, 0b1011}, "with the evicted rank's part or without"
                steps[comm.rank] += 1
        except EvictedError:
            evicted.set()
        return {*result[:-1].tolist()}, comm.stats.malformed

    with ThreadPoolExecutor(1) as elsewhere, ExitStack() as stack:
        stack.callback(finished.set)
        training = elsewhere.submit(on_hosts, network, network.hosts, of_job(aggregator.line, "evicting"), train)
        until(lambda: min(steps) >= 5 or training.done())
        before = aggregator.ask("job", "show", "evicting")
        assert [member["multicast"] for member in before["members"]] == [True, True, True, False]
        sender = network.address(AGGREGATOR), UDP_PORT
        group = parse_address(before["group"])
        stays = network.on("h3", partial(join_group, group, network.address("h3"), [sender]))
        stack.callback(stays.close)
        until(lambda: len(stays.recv(0.01)) > 0 or training.done(), "it receives results")
        aggregator.ask("job", "evict", "evicting", "2")
        until(lambda: evicted.is_set() or training.done())
        on_by(steps, others, training)
        while stays.recv(0.0):
            pass
        on_by(steps, others, training)
        assert not stays.recv(0.0)
        after = aggregator.ask("job", "show", "evicting")
        assert after["epoch"] == before["epoch"]
        assert after["group"] != before["group"]
        assert not any(member["multicast"] for member in after["members"])
        finished.set()
        found = training.result()
    assert [found[rank] for rank in others] == [({0b1011}, 0)] * 3


def on_by(steps: Sequence[int], ranks: Sequence[int], training: Future[Any]) -> None:
    """Wait until these ranks have made some more steps."""
    goal = max(steps[rank] for rank in ranks) + 5
    until(lambda: min(steps[rank] for rank in ranks) >= goal or training.done(), steps)


@pytest.mark.root
def test_a_host_that_the_group_does_not_reach_returns_to_unicast(
    network: OrdinaryNetwork, aggregator: AggregatorProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """As behind a switch that snoops on IGMP in a network without a querier. No sum is wrong, before or after."""
    for rule in (
        "add table ip snooping",
        "add chain ip snooping in { type filter hook prerouting priority -300 ; }",
        "add rule ip snooping in ip daddr 239.0.0.0/8 drop",
    ):
        network.run("h2", "nft", rule)
    steps, returned_to_unicast = [0] * 4, threading.Event()

    def train(comm: Communicator) -> Any:
        result = np.zeros(1)
        while result[-1] < comm.size:
            result = comm.allreduce(np.append(np.full(SIZE, comm.rank + 1), returned_to_unicast.is_set()), timeout=PATIENCE)
            assert (result[:-1] == 10).all()
            steps[comm.rank] += 1
        return comm.stats

    try:
        with ThreadPoolExecutor(1) as elsewhere, ExitStack() as stack:
            stack.callback(returned_to_unicast.set)
            training = elsewhere.submit(on_hosts, network, network.hosts, of_job(aggregator.line, "unreached"), train)
            until(lambda: min(steps) >= 1 or training.done())
            until(lambda: who_has_joined(aggregator, "unreached") == [True, False, True, False] or training.done())
            before = counted(network)
            on_by(steps, range(4), training)
            to_group, _, to_single_hosts = (now - then for then, now in zip(before, counted(network), strict=True))
            assert to_single_hosts >= 2 * 5 * SIZE, "to the two that are served by unicast"
            assert to_group >= 5 * SIZE
            returned_to_unicast.set()
            stats = training.result()
    finally:
        network.run("h2", "nft", "delete table ip snooping")
    assert [each.multicast > 0 for each in stats] == [True, False, True, False]
    assert stats[1].multicast_lost >= 8, "rounds"
    assert any("have not come by IP multicast" in record.getMessage() for record in caplog.records)


def test_nat_is_refused(refused: Refused, tmp_path: Path) -> None:
    words = ("--host", "127.0.0.1", "--advertise", "192.0.2.7", "--multicast", "--state", str(tmp_path))
    code, lines = refused("aggregator", *words)
    assert code == 2
    assert "--multicast does not go through NAT" in lines[-1]
    assert command.name == "aggregator"
