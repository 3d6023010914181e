# SPDX-License-Identifier: MIT
"""The fabrics used from a program: exact sums on each, and a working network."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from netsum.transports.segmentation import has_large_frames
from netsum_controller import JobSpec, Topology, load_topology
from netsum_controller.config.topologies import star
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import NamespaceFabric, RootlessFabric, common_prefix
from netsum_testbed.switches import SwitchStartError, choose_switch

from tests.full.calls import on_all, results
from tests.threads import PATIENCE, meanwhile

if TYPE_CHECKING:
    from netsum_testbed.mininet_fabric import MininetFabric

ROOT = Path(__file__).parents[2]


def check_exact_sums(fabric: Fabric, workers: int) -> None:
    """int32 and float64 sums of a job of its own."""
    job = fabric.create_job(JobSpec(name="exact", members=tuple(fabric.topology.hosts)[:workers]))
    with ExitStack() as stack:
        communicators = []
        for rank in range(workers):
            communicators.append(fabric.join(job, rank))
            stack.callback(communicators[-1].close)
        rng = np.random.default_rng(workers)
        values = rng.integers(-(10**6), 10**6, (workers, 5000), dtype=np.int32)
        for sums in results(on_all(communicators, lambda comm: comm.allreduce(values[comm.rank]))):
            np.testing.assert_array_equal(sums, values.sum(axis=0, dtype=np.int32))
        # Multiples of 1/8 far below the quantum's reach: these sums are exact too.
        eighths = values.astype(np.float64) / 8
        for sums in results(on_all(communicators, lambda comm: comm.allreduce(eighths[comm.rank]))):
            np.testing.assert_array_equal(sums, eighths.sum(axis=0))
    fabric.controller.delete_job("exact")


@pytest.mark.parametrize("workers", [pytest.param(2, marks=pytest.mark.full), 4])
def test_rootless_exact_on_the_embedded_switch(workers: int) -> None:
    with RootlessFabric(star(workers)) as fabric:
        check_exact_sums(fabric, workers)
        check_worker_processes(fabric)
        directory = fabric.directory
    assert not directory.exists()


def test_switches_that_share_the_blocks() -> None:
    """Hosts reach all of them, each by its own socket: a fabric without root has those."""
    data = star(3, shared=3).model_dump()
    first = data["switches"]["s1"]
    for number, more in enumerate(({"stripes": ["s2", "s3"]}, {}, {}), 1):
        own = {"device_id": number, "endpoint": f"127.0.0.1:{number}"}
        data["switches"][f"s{number}"] = first | own | more
    topology = Topology.model_validate(data)
    with RootlessFabric(topology) as fabric:
        check_exact_sums(fabric, 3)
    with pytest.raises(TestbedError, match=r"topology star3: its hosts reach several switches \(`stripes`\) by UDP"):
        NamespaceFabric(topology, "embedded")


DELAY_US = 30_000


@pytest.mark.full
@pytest.mark.root
def test_frames_are_under_way_for_as_long_as_links_are() -> None:
    """A ping crosses the links of two hosts there and back, and nothing is lost or changed on them."""
    from netsum_testbed.mininet_fabric import MininetFabric  # where the tests run without root it may not be there

    with MininetFabric(star(2, rate_mbps=200), "embedded", delay_us=DELAY_US) as fabric:
        said = fabric.net["h1"].cmd(f"ping -c2 -W5 -M do -s {9000 - 28} {fabric.topology.hosts['h2'].ip}")
        assert "2 received" in said
        assert float(said.rpartition("= ")[2].partition("/")[0]) >= 4 * DELAY_US / 1000
        check_tcp(fabric)
        check_exact_sums(fabric, 2)


@pytest.fixture
def mininet(switch: str) -> Iterator[MininetFabric]:
    """The star of two hosts of mininet/topologies/star2.yaml."""
    from netsum_testbed.mininet_fabric import MininetFabric  # where the tests run without root it may not be there

    with MininetFabric(load_topology(ROOT / "mininet" / "topologies" / "star2.yaml"), switch) as fabric:
        yield fabric


@pytest.mark.full
def test_mininet(mininet: MininetFabric) -> None:
    """One network for all of it: it takes seconds to come up."""
    assert "2 received" in mininet.net["h1"].cmd("ping -c2 -i0.2 -W5 10.0.0.2")
    # A frame as large as the links take, and not one byte more.
    assert "1 received" in mininet.net["h1"].cmd(f"ping -c1 -W5 -M do -s {9000 - 28} 10.0.0.2")
    assert "1 received" not in mininet.net["h1"].cmd(f"ping -c1 -W1 -M do -s {9001 - 28} 10.0.0.2")
    for host, end in (("h1", "h1-eth0"), ("s1", "s1-eth2")):
        features = mininet.net[host].cmd(f"ethtool -k {end}")
        large = "on" if mininet.switch == "embedded" and has_large_frames() else "off"
        assert f"tcp-segmentation-offload: {large}" in features
        assert f"tx-checksumming: {large}" in features
        assert f"tx-udp-segmentation: {large}" in features
        assert "rate 1Gbit" in mininet.net[host].cmd(f"tc class show dev {end}")
    check_tcp(mininet)
    check_exact_sums(mininet, 2)
    check_worker_processes(mininet)
    check_worker_processes(mininet, "ring")  # UDP between the hosts, through the switch's plain forwarding


def check_tcp(fabric: MininetFabric) -> None:
    """A megabyte from h2 to h1 over TCP, through the switch's plain forwarding."""
    data = np.random.default_rng(1).bytes(1 << 20)
    server = fabric.on_host("h1", lambda: socket.create_server(("10.0.0.1", 5001)))
    with server:
        server.settimeout(PATIENCE)

        def send() -> None:
            with client:
                client.sendall(data)

        client = fabric.on_host("h2", lambda: socket.create_connection(("10.0.0.1", 5001), PATIENCE))
        with meanwhile(send):
            connection, peer = server.accept()
            with connection:
                connection.settimeout(PATIENCE)
                received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert peer[0] == "10.0.0.2"
    assert received == data


def check_worker_processes(fabric: Fabric, algorithm: str = "auto") -> None:
    """Two processes join with nothing but their environment."""
    program = "import netsum; c = netsum.join(); print(c.allreduce([1 + c.rank])); c.barrier(); c.close()"
    job = fabric.create_job(JobSpec(name=f"processes-{algorithm}", members=("h1", "h2"), algorithm=algorithm))
    children = [
        fabric.spawn(host, [sys.executable, "-c", program], name=host, environment=fabric.environment(job, rank))
        for rank, host in enumerate(("h1", "h2"))
    ]
    for host, child in zip(("h1", "h2"), children, strict=True):
        assert child.wait(PATIENCE) == 0, child.last_words()
        assert (fabric.directory / f"{host}.log").read_text() == "[3]\n"


@pytest.mark.parametrize("hosts", [2, 4, 8])
def test_the_files_are_stars(hosts: int) -> None:
    file, made = load_topology(ROOT / "mininet" / "topologies" / f"star{hosts}.yaml"), star(hosts)
    assert file.switches == made.switches
    rated = made.filled(hosts={name: {"rate_mbps": 1000} for name in made.hosts})
    assert file == rated


def test_one_subnet_for_all() -> None:
    assert common_prefix(["10.0.0.1", "10.0.0.254"]) == 24
    assert common_prefix(["10.0.0.1", "10.0.1.1"]) == 23
    assert common_prefix(["10.0.0.1", "192.168.0.1"]) == 0


def test_what_is_measured_is_what_was_meant_on_the_embedded_switch() -> None:
    """A job that no switch can serve is not silently combined by its members."""
    with RootlessFabric(star(2)) as fabric:
        spec = JobSpec(name="large", members=("h1", "h2"), window=4096)
        fabric.create_job(spec)
        with pytest.raises(TestbedError, match=r"no switch serves job more: .*0 of 8192 are free"):
            fabric.create_job(JobSpec(name="more", members=("h1", "h2")))
        assert [job.name for job in fabric.controller.jobs()] == ["large"]
        assert fabric.create_job(JobSpec(name="ring", members=("h1", "h2"), algorithm="ring")).combines == "ring"


def test_a_switch_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert choose_switch("auto") == "embedded"
    with pytest.raises(SwitchStartError, match="simple_switch_grpc is not on PATH"):
        choose_switch("bmv2")


def test_a_switch_that_does_not_start_on_the_embedded_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error quotes the switch, and nothing is left behind."""
    topology = star(1).filled()
    made: list[Path] = []
    start: Callable[[RootlessFabric], None] = RootlessFabric._start_switches

    def taken(fabric: RootlessFabric) -> None:
        made.append(fabric.directory)
        (fabric.directory / "s1.sock").mkdir()  # where the switch wants its socket
        start(fabric)

    monkeypatch.setattr(RootlessFabric, "_start_switches", taken)
    with (
        pytest.raises(SwitchStartError, match=r"the embedded switch did not start: (?s:.*)netsum-switch: cannot serve P4Runtime"),
        RootlessFabric(topology),
    ):
        pass
    assert not made[0].exists()
