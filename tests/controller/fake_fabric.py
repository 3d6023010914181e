# SPDX-License-Identifier: MIT
"""Several fake switches as one topology, under a controller."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from netsum_controller import Controller, Job, JobSpec, Topology
from netsum_controller.entries import Item
from netsum_controller.planning.items import of_job

from tests.controller.fake_switch import FakeSwitch
from tests.controller.members import TOKEN, join_all

HOSTS = ("h1", "h2", "h3", "h4")
ALL = ("spine1", "spine2", "leaf1", "leaf2")
"""Hosts and switches of the fixture ``fabric``."""


def patient(controller: Controller) -> Controller:
    """The controller, which waits for fake switches however busy the machine is: they answer unless they are told not to."""
    controller.context.connect_timeout = controller.context.patience = 60.0
    return controller


class FakeFabric:
    """Every switch of a topology as a fake; ``open`` makes a controller on the same state file, as a new process would."""

    def __init__(self, topology: Topology, sockets: Path, state: Path) -> None:
        self.switches = {
            name: FakeSwitch(f"unix:{sockets}/{name}", switch.device_id).start() for name, switch in topology.switches.items()
        }
        self.topology = topology.filled({name: {"p4runtime": one.address} for name, one in self.switches.items()})
        self._state = state
        self._undo = ExitStack()
        for one in self.switches.values():
            self._undo.callback(one.stop)

    def open(self) -> Controller:
        return self._undo.enter_context(patient(Controller(self.topology, self._state)))

    def close(self) -> None:
        self._undo.close()

    def installed(self) -> dict[str, set[bytes]]:
        """Everything on every switch, for comparing before and after."""
        return {name: switch.installed for name, switch in self.switches.items()}

    def items(self, controller: Controller, job_id: int) -> dict[str, set[Item]]:
        """The items of a job, by switch."""
        found = {}
        for name in self.switches:
            with controller.context.client(name) as client:
                found[name] = set(of_job(client.read_items(), job_id))
        return found

    def fail_everywhere(self, fail: Callable[[str, Any], str | None]) -> None:
        """``fail(switch, update)`` is asked of every update on any switch."""
        for name, switch in self.switches.items():
            switch.fail_update = lambda update, name=name: fail(name, update)  # type: ignore[misc]


@pytest.fixture
def controller(fabric: FakeFabric) -> Controller:
    """A controller with its program on every switch of the fabric."""
    one = fabric.open()
    one.push()
    return one


@pytest.fixture
def job(controller: Controller) -> Job:
    """A job over all four switches that everyone has joined."""
    made = controller.create_job(JobSpec(name="wide", members=HOSTS, window=8, token=TOKEN, algorithm="switch"))
    join_all(controller, name="wide")
    return made
