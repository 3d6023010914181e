# SPDX-License-Identifier: MIT
"""The fabrics of the suite: the same tests run on the embedded switch and the real one, over loopback and veths."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import pytest
from netsum import controller_client
from netsum.communicator import Communicator
from netsum.core import recovery
from netsum.transports import Transport
from netsum_controller import JobSpec, Topology
from netsum_controller.config.topologies import star
from netsum_controller.errors import UnknownJobError
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import fabric_of

from tests.switch.harness.launch import KINDS
from tests.threads import PATIENCE

FABRICS = [
    "rootless-embedded",
    # Interfaces beneath the embedded switch: test_exactness.py has them in `make test`, too.
    pytest.param("namespace-embedded", marks=[pytest.mark.root, pytest.mark.full]),
    pytest.param("namespace-bmv2", marks=[pytest.mark.root, pytest.mark.bmv2]),
]
HOSTS = 12

Members = Callable[..., AbstractContextManager[list[Communicator]]]

_running: list[Fabric] = []


def make_fabric(kind: str, topology: Topology) -> Fabric:
    """A fabric that does not run yet, by its wires and its switch: one of :data:`FABRICS`, or ``mininet-embedded`` or such."""
    wires, switch = kind.split("-")
    if wires == "mininet":
        from netsum_testbed.mininet_fabric import MininetFabric  # where the tests run without root it may not be there

        return MininetFabric(topology, switch)
    return fabric_of(topology, switch, rootless=wires == "rootless")


@contextmanager
def started(kind: str, topology: Topology, options: Sequence[str] = ()) -> Iterator[Fabric]:
    """A running fabric, one of :data:`FABRICS`; ``options`` are added to its switches' command lines."""
    fabric = make_fabric(kind, topology)
    fabric.switch_options = options
    with fabric:
        _running.append(fabric)
        try:
            yield fabric
        finally:
            _running.remove(fabric)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Restart switches that have died, so that only the test in which they died fails, not those after it."""
    for fabric in _running:
        dead = [name for name in fabric.switch_pids if fabric.switch_process(name).exit_code is not None]
        for name in dead:
            fabric.start_switch(name)
        if dead:
            fabric.controller.reconcile()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the controller may take long to say whom a block waits for. How long a hung one is waited for is for
    ``tests/hosts/test_timeouts.py``, and for the files that override this."""
    monkeypatch.setattr(recovery, "REPLY_TIMEOUT", PATIENCE)
    monkeypatch.setattr(controller_client, "_DIAGNOSIS_TIMEOUT", PATIENCE)


@pytest.fixture(params=KINDS)
def switch(request: pytest.FixtureRequest) -> str:
    """A kind of switch, for commands that start one."""
    return str(request.param)


@pytest.fixture(scope="session", params=FABRICS)
def fabric(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    """A running fabric of twelve hosts around one switch; one of each kind serves the whole session."""
    with started(request.param, star(HOSTS)) as fabric:
        yield fabric


_numbers = itertools.count(1)


@contextmanager
def joined(
    fabric: Fabric,
    workers: int,
    *,
    first: int = 0,
    name: str = "",
    members: Sequence[str] | None = None,
    here: Sequence[int] | None = None,
    wraps: Mapping[int, Callable[[Transport], Transport]] | None = None,
    **options: Any,
) -> Iterator[list[Communicator]]:
    """A new job whose members, or those of its ranks that are ``here``, have joined; deleted afterwards. They are on the hosts
    from number ``first`` on, unless ``members`` names each one's: on a rootless fabric a host takes part in one job at a time.
    ``wraps[rank]`` is put around a rank's transport."""
    name = name or f"full-{next(_numbers)}"
    hosts = tuple(members or tuple(fabric.topology.hosts)[first : first + workers])
    job = fabric.create_job(JobSpec(name=name, members=hosts, **options))
    wraps = wraps or {}
    communicators: list[Communicator] = []
    try:
        # At once: without a switch, no rank's join ends before all have joined.
        with ThreadPoolExecutor(workers) as pool:
            ranks = range(workers) if here is None else here
            communicators.extend(pool.map(lambda rank: fabric.join(job, rank, wrap=wraps.get(rank)), ranks))
        yield communicators
    finally:
        for comm in communicators:
            comm.close()
        with suppress(UnknownJobError):  # a test may have deleted it
            fabric.controller.delete_job(name)


@pytest.fixture
def members(fabric: Fabric) -> Members:
    """Yield a function, a context with the communicators of a fresh job on the fabric: ``members(workers, window=...)``."""

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
