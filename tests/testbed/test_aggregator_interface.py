# SPDX-License-Identifier: MIT
"""`netsum aggregator --interface`: the switch takes raw frames of an Ethernet interface, at an address that the kernel does not
have. Hosts are on a Linux bridge, and behind a router with NAT."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import netsum as library
import numpy as np
import pytest
from netsum import Communicator
from netsum.wire.schema import UDP_PORT
from netsum_controller.config.topology import mac_of
from netsum_testbed.errors import TestbedError
from netsum_testbed.raw_interface import check_raw_interface

from tests.system.cluster.network import AGGREGATOR, OrdinaryNetwork
from tests.system.cluster.run import NETSUM, AggregatorProcess
from tests.testbed.conftest import Refused
from tests.testbed.test_aggregator import CLIENTS
from tests.threads import PATIENCE, returned, until

ADDRESS = "10.1.0.200"
MTU = 9000
SIZE = 5000
OPTIONS = ("--interface", "eth0", "--switch-address", ADDRESS)


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks share no memory, so that the switch makes the sums although all are in this process."""
    for name in CLIENTS:
        monkeypatch.setattr(name, lambda: "")
    monkeypatch.setattr("netsum_testbed.aggregator.end_on_signals", lambda: None)


@pytest.fixture(scope="module")
def network() -> Iterator[OrdinaryNetwork]:
    with OrdinaryNetwork(3, mtu=MTU, routed=1, nat=True) as network:
        yield network


@pytest.fixture(scope="module")
def aggregator(network: OrdinaryNetwork, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AggregatorProcess]:
    process = AggregatorProcess(network, tmp_path_factory.mktemp("aggregator"), MTU, *OPTIONS)
    yield process
    process.stop()


def on_hosts(network: OrdinaryNetwork, hosts: Sequence[str], line: str, run: Callable[[Communicator], Any]) -> list[Any]:
    """Join a rank on each host, and call ``run`` there, so that all sockets are that host's."""

    def rank_on(host: str) -> Any:
        comm = library.join(rank=hosts.index(host), size=len(hosts), controller=line, timeout=PATIENCE)
        try:
            return run(comm)
        finally:
            comm.close()

    return returned([partial(network.on, host, partial(rank_on, host)) for host in hosts])


def add(comm: Communicator, more: int = 0) -> int:
    """Sum an array over the ranks, and check it. Returns the sum of ``more``."""
    mine = np.append(np.arange(SIZE) * (comm.rank + 1), more)
    result = comm.allreduce(mine, timeout=PATIENCE)
    assert (result[:-1] == np.arange(SIZE) * (comm.size * (comm.size + 1) // 2)).all()
    return int(result[-1])


@pytest.mark.root
def test_sums_go_on_after_a_restart(network: OrdinaryNetwork, aggregator: AggregatorProcess) -> None:
    """Two ranks on the bridge and one behind the router. The aggregator is killed in the middle of their calls."""
    hosts = network.hosts
    steps = [0] * len(hosts)
    restarted = threading.Event()

    def train(comm: Communicator) -> Any:
        descriptor = comm.descriptor
        add(comm)
        neighbor = network.run(hosts[comm.rank], "ip", "neighbor", "show", ADDRESS)
        while add(comm, restarted.is_set()) < comm.size:
            steps[comm.rank] += 1
        return descriptor, neighbor, comm.stats.resumes

    with ThreadPoolExecutor(1) as elsewhere:  # the kernel ends the aggregator with the thread that started it
        training = elsewhere.submit(on_hosts, network, hosts, aggregator.line, train)
        until(lambda: min(steps) >= 5 or training.done())
        aggregator.kill()
        aggregator.start()
        restarted.set()
        found = training.result()
    for host, (descriptor, neighbor, resumes) in zip(hosts, found, strict=True):
        assert descriptor.by_switch
        assert (descriptor.switch.ip, descriptor.switch.mac, descriptor.switch.port) == (ADDRESS, mac_of(ADDRESS), UDP_PORT)
        assert descriptor.key
        assert (f"lladdr {mac_of(ADDRESS)}" in neighbor) == (host != hosts[-1]), "a router is between"
        assert resumes > 0
    sockets = network.on(AGGREGATOR, lambda: Path("/proc/thread-self/net/udp").read_text()).splitlines()[1:]
    assert not sockets, "the kernel has no UDP socket for it"
    (link,) = json.loads(network.run(AGGREGATOR, "ip", "-details", "-json", "link", "show", "eth0"))
    assert link["promiscuity"] == 1, "a NIC lets in the frames for the switch's MAC address"


@pytest.fixture(scope="module")
def interfaces(network: OrdinaryNetwork) -> OrdinaryNetwork:
    """On the aggregator's server, an interface with a second address, one without any, and one that is down."""
    network.run(AGGREGATOR, "ip", "addr", "add", "10.1.2.6/30", "dev", "eth0", "label", "eth0:1")
    network.run(AGGREGATOR, "ip", "link", "add", "bare0", "type", "veth", "peer", "name", "down0")
    network.run(AGGREGATOR, "ip", "link", "set", "bare0", "up")
    return network


@pytest.mark.root
@pytest.mark.parametrize(
    ("interface", "address", "complaint"),
    [
        ("eth0", "10.1.0.13", "--switch-address 10.1.0.13: this machine has that address already, at eth0. Give a free one"),
        ("eth0", "10.1.1.9", "--switch-address 10.1.1.9: it is not in the network of eth0 (10.1.0.13/24, 10.1.2.6/30)"),
        ("eth0", "10.1.2.9", "--switch-address 10.1.2.9: it is not in the network of eth0"),
        ("eth0", "10.1.0.0", "it is the network's or the broadcast address of 10.1.0.0/24, no host's"),
        ("eth0", "10.1.2.7", "it is the network's or the broadcast address of 10.1.2.4/30, no host's"),
        ("eth0", "10.1.2.6", "this machine has that address already, at eth0"),
        ("down0", "10.1.0.20", "--interface down0: it is down (`ip link set down0 up`)"),
        ("wlan7", "10.1.0.20", "--interface wlan7: there is no such interface (there are: bare0, down0, eth0, lo)"),
    ],
)
def test_what_an_interface_cannot_be(interfaces: OrdinaryNetwork, interface: str, address: str, complaint: str) -> None:
    with pytest.raises(TestbedError) as refused:
        interfaces.on(AGGREGATOR, partial(check_raw_interface, interface, address))
    assert complaint in str(refused.value)


@pytest.mark.root
def test_the_mtu_is_the_interfaces(interfaces: OrdinaryNetwork) -> None:
    """An interface may have further networks, or none."""
    for interface, address, mtu in (("eth0", ADDRESS, MTU), ("eth0", "10.1.2.5", MTU), ("bare0", "192.168.7.1", 1500)):
        assert interfaces.on(AGGREGATOR, partial(check_raw_interface, interface, address)) == mtu


@pytest.mark.root
@pytest.mark.parametrize(
    ("code", "words", "complaint"),
    [
        (2, ["--stripes", "2"], "--stripes is for the kernel's UDP: with --interface there is one switch"),
        (1, ["--mtu", "9001"], "--mtu 9001: eth0 carries IP packets of at most 9000 bytes"),
        (
            1,
            [],
            "--interface eth0: raw frames need root or the capability CAP_NET_RAW (systemd: AmbientCapabilities=CAP_NET_RAW); "
            "without, leave --interface out",
        ),
    ],
)
def test_what_the_command_refuses(network: OrdinaryNetwork, tmp_path: Path, code: int, words: list[str], complaint: str) -> None:
    drop = ["setpriv", "--bounding-set=-net_raw", "--"] * (not words)
    options = ["--host", network.address(AGGREGATOR), "--state", str(tmp_path), *OPTIONS, *words]
    command = [*network.prefix(AGGREGATOR), *drop, sys.executable, *NETSUM, "aggregator", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert complaint in done.stderr


@pytest.mark.parametrize(
    ("code", "words", "complaint"),
    [
        (2, ["--interface", "eth0"], "--interface and --switch-address go together"),
        (2, ["--switch-address", ADDRESS], "--interface and --switch-address go together"),
        (
            2,
            [*OPTIONS, "--udp-port", "12001"],
            "--udp-port chooses a port of the kernel's; with --interface it is the P4 program's",
        ),
        (1, ["--interface", "lo", "--switch-address", ADDRESS], "--interface lo: it carries no Ethernet frames"),
        (1, ["--interface", "lo", "--switch-address", "10.1.0"], "--switch-address 10.1.0: not an IPv4 address like"),
        (1, ["--interface", "lo", "--switch-address", "239.1.0.1"], "--switch-address 239.1.0.1: hosts cannot send to it"),
        (1, ["--interface", "", "--switch-address", ADDRESS], "there is no such interface (there are: "),
    ],
)
def test_options_that_do_not_fit(refused: Refused, tmp_path: Path, code: int, words: list[str], complaint: str) -> None:
    found, lines = refused("aggregator", "--host", "127.0.0.1", "--state", str(tmp_path), *words)
    assert found == code
    assert complaint in "".join(lines)
