"""Every fabric that the suite runs on: the same tests see the embedded switch and the real one, loopback and veths."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from netsum.communicator import Communicator
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_controller.config.topology import Topology
from netsum_testbed.fabric import Fabric
from netsum_testbed.opening import fabric_of

FABRICS = [
    "rootless-embedded",
    # Interfaces beneath the embedded switch: test_exactness.py has them in `make test`, too.
    pytest.param("namespace-embedded", marks=[pytest.mark.root, pytest.mark.full]),
    pytest.param("namespace-bmv2", marks=[pytest.mark.root, pytest.mark.bmv2]),
]
HOSTS = 12

Members = Callable[..., AbstractContextManager[list[Communicator]]]

_running: list[Fabric] = []


@contextmanager
def started(kind: str, topology: Topology, options: Sequence[str] = ()) -> Iterator[Fabric]:
    """A running fabric, one of :data:`FABRICS`; ``options`` are added to its switches' command lines."""
    wires, switch = kind.split("-")
    fabric = fabric_of(topology, switch, rootless=wires == "rootless")
    fabric.switch_options = options
    with fabric:
        _running.append(fabric)
        try:
            yield fabric
        finally:
            _running.remove(fabric)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Start switches again that have died: that fails the test in which they did, and not those behind it."""
    for fabric in _running:
        dead = [name for name in fabric.switch_pids if fabric.switch_process(name).exit_code is not None]
        for name in dead:
            fabric.start_switch(name)
        if dead:
            fabric.controller.reconcile()


@pytest.fixture(scope="session", params=FABRICS)
def fabric(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    """A running fabric of twelve hosts around one switch; one of each kind serves the whole session."""
    with started(request.param, star(HOSTS)) as fabric:
        yield fabric


_numbers = itertools.count(1)


@contextmanager
def joined(fabric: Fabric, workers: int, *, first: int = 0, **options: Any) -> Iterator[list[Communicator]]:
    """A job of its own with all its members joined; deleted afterwards. Its members are on the hosts from number
    ``first`` on: on a rootless fabric a host takes part in one job at a time."""
    spec = JobSpec(
        name=f"full-{next(_numbers)}",
        members=tuple(fabric.topology.hosts)[first : first + workers],
        **options,
    )
    job = fabric.create_job(spec)
    communicators: list[Communicator] = []
    try:
        # At once: where no switch combines, nobody is in before all are.
        with ThreadPoolExecutor(workers) as pool:
            communicators.extend(pool.map(lambda rank: fabric.join(job, rank), range(workers)))
        yield communicators
    finally:
        for comm in communicators:
            comm.close()
        fabric.controller.delete_job(spec.name)


@pytest.fixture
def members(fabric: Fabric) -> Members:
    """``with members(workers, window=..., chunks=...) as communicators``: a fresh job on the fabric."""

    def make(workers: int, **options: Any) -> AbstractContextManager[list[Communicator]]:
        return joined(fabric, workers, **options)

    return make


@pytest.fixture(scope="module")
def four(fabric: Fabric) -> Iterator[list[Communicator]]:
    """Four members of one job, for tests that leave them usable."""
    with joined(fabric, 4, first=8) as communicators:
        yield communicators


@pytest.fixture(scope="module", params=FABRICS)
def fragile(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    """A fabric of five hosts for one file of tests, whose switch may be killed and started again."""
    with started(request.param, star(5)) as fabric:
        yield fabric
