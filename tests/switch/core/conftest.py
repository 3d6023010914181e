# SPDX-License-Identifier: MIT
"""`switch("program")`: the core and simple_switch_grpc, in turn, running a program of tests/switch/programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from tests.switch.core.switches import Core, Form, Reference, Switch
from tests.switch.harness import launch
from tests.switch.harness.api import SwitchUnderTest
from tests.switch.harness.controller import Controller


class StartProgram(Protocol):
    """Starts a program of tests/switch/programs, in its JSON's form or another."""

    def __call__(self, name: str, form: Form = bytes) -> Switch: ...


KINDS = ("core", launch.BMV2)


@pytest.fixture(scope="session")
def reference() -> Iterator[Callable[[], SwitchUnderTest]]:
    """Starts simple_switch_grpc when the first test asks for it; one process serves all."""
    running: list[SwitchUnderTest] = []

    def start() -> SwitchUnderTest:
        if not running:
            running.append(launch.start("bmv2"))
        return running[0]

    yield start
    for each in running:
        each.close()


@pytest.fixture(params=KINDS)
def switch(request: pytest.FixtureRequest) -> Iterator[StartProgram]:
    """Starts a program on the core or on simple_switch_grpc."""
    if request.param == "core":
        yield Core  # without ports and server: those are tested in tests/switch/server
        return
    device = request.getfixturevalue("reference")()
    device.drain()
    with Controller(device.grpc_address).become_primary() as controller:
        started: list[Reference] = []

        def start(name: str, form: Form = bytes) -> Reference:
            started.append(Reference(device, controller, name, form))
            return started[-1]

        yield start
        for each in started:
            each.clear()
