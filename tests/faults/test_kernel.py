# SPDX-License-Identifier: MIT
"""Packets lost in the kernel: between namespaces of Mininet and in one namespace, both directions, and nothing left behind."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import RootlessFabric

from tests.full.calls import on_all, results
from tests.full.conftest import make_fabric
from tests.system.faults.make import KernelError, KernelLink, check_kernel, list_rules
from tests.system.faults.scenario import LinkFaults, Rates


@pytest.fixture(params=["namespace-embedded", "mininet-embedded"])
def fabric(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    """Two hosts, in one namespace or in namespaces of their own."""
    with make_fabric(request.param, star(2)) as fabric:
        yield fabric


@pytest.mark.root
def test_sums_are_exact_over_a_kernel_that_loses_packets(fabric: Fabric) -> None:
    job = fabric.create_job(JobSpec(name="lossy", members=("h1", "h2")))
    lossy = LinkFaults(up=Rates(loss=0.1), down=Rates(loss=0.1))
    with ExitStack() as stack:
        links = [stack.enter_context(KernelLink(fabric, host, lossy)) for host in ("h1", "h2")]
        members = [stack.enter_context(fabric.join(job, rank)) for rank in range(2)]
        x = np.arange(100_000, dtype=np.int32)
        for _ in range(50):  # 10 large frames are 100 packets, and the kernel draws for each frame
            sums = results(on_all(members, lambda comm: comm.allreduce(x * (comm.rank + 1), timeout=30.0)))
            assert all(np.array_equal(each, 3 * x) for each in sums)
            for link in links:
                link.heal()
            if all(link.lost > 0 for link in links):
                break
        links[0].cut()
        with pytest.raises(TimeoutError):
            members[0].barrier(timeout=0.2)
        links[0].heal()
    assert all(link.lost > 0 for link in links)
    assert links[0].cut_off > 0
    for host in ("h1", "h2"):
        for end in fabric.link_ends(host):
            assert not [item for item in list_rules(end) if "table" in item]


@pytest.mark.root
def test_this_kernel_can() -> None:
    check_kernel()


def test_a_kernel_that_cannot_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "", "Error: Could not process rule: Operation not supported\n")

    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.setattr("shutil.which", lambda name: name)
    with pytest.raises(KernelError, match=r"CONFIG_NETFILTER_EGRESS.*Operation not supported"):
        check_kernel()
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(KernelError, match="needs `nft`"):
        check_kernel()


def test_a_rootless_fabric_has_no_interfaces() -> None:
    with pytest.raises(TestbedError, match="sockets"):
        RootlessFabric(star(1)).link_ends("h1")
