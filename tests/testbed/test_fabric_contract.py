# SPDX-License-Identifier: MIT
"""The contract of every fabric's links (:class:`netsum_testbed.fabric.Fabric`), so that no caller needs to know which one it
has."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from netsum.communicator import Communicator
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import leaf_spine
from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric
from netsum_testbed.links import LinkEnd

from tests.full.calls import on_all, results
from tests.full.conftest import make_fabric

ROOT = pytest.mark.root
FABRICS = [
    "rootless-embedded",
    pytest.param("namespace-embedded", marks=ROOT),
    pytest.param("mininet-embedded", marks=ROOT),
]


@pytest.fixture(scope="module", params=FABRICS)
def fabric(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    """Two leaves with a host each, and a spine, of embedded switches."""
    with make_fabric(request.param, leaf_spine(1, 2, 1)) as up:
        yield up


def addresses(end: LinkEnd) -> Sequence[str]:
    """The kernel's description of an interface, in the place that the end names."""
    shown = subprocess.run(
        [*end.prefix, "cat", f"/sys/class/net/{end.interface}/ifindex", f"/sys/class/net/{end.interface}/iflink"],
        capture_output=True,
        text=True,
        check=True,
    )
    return shown.stdout.split()


def test_the_ends_of_a_link_are_each_others(fabric: Fabric) -> None:
    """Each end of a veth pair has the other's index as its link."""
    ends: list[tuple[Callable[[str], tuple[LinkEnd, LinkEnd]], str]]
    ends = [(fabric.link_ends, host) for host in fabric.topology.hosts]
    ends += [(fabric.trunk_ends, link) for link in fabric.topology.links]
    assert len(ends) == 4
    for ask, name in ends:
        if fabric.rootless:
            with pytest.raises(TestbedError, match="no interface"):
                ask(name)
            continue
        (mine, other), (theirs, back) = (addresses(end) for end in ask(name))
        assert (mine, other) == (back, theirs)


def test_the_first_end_is_the_hosts_own(fabric: Fabric) -> None:
    for host in fabric.topology.hosts:
        if fabric.rootless:
            with pytest.raises(TestbedError, match="no interface"):
                fabric.interface(host)
        else:
            assert fabric.interface(host) == fabric.link_ends(host)[0].interface
            assert tuple(fabric.prefix(host)) == tuple(fabric.link_ends(host)[0].prefix)


def test_members_join_through_the_openings(fabric: Fabric) -> None:
    job = fabric.create_job(JobSpec(name="opened", members=tuple(fabric.topology.hosts)))
    opened: list[Communicator] = []
    try:
        for rank, host in enumerate(job.members):
            link = None
            if (interface := fabric.opening(host).interface) is not None:
                link = {"kind": "packet", "interface": interface}
            descriptor = fabric.controller.join(job.name, fabric.tokens[job.name], rank, f"{rank:016x}", link)
            opened.append(Communicator(descriptor, fabric.opening(host).open(descriptor), timeout=60.0))
        for total in results(on_all(opened, lambda comm: comm.allreduce(np.arange(2000) + comm.rank))):
            np.testing.assert_array_equal(total, 2 * np.arange(2000) + 1)
    finally:
        for comm in opened:
            comm.close()
        fabric.delete_job("opened", force=True)
