# SPDX-License-Identifier: MIT
"""The program on its targets: the pipeline alone, the embedded switch and simple_switch_grpc over their
wires."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest
from netsum_controller.p4runtime.p4info import CompiledProgram

from tests.protocol import star
from tests.protocol.targets import InProcess, OnSwitch, Target
from tests.switch.harness.api import SwitchUnderTest
from tests.switch.harness.launch import BMV2, start

OTHER_SWITCH = "netsum-other-switch"
# The embedded switch is the pipeline behind P4Runtime and sockets, which tests/switch tests too.
TARGETS = (
    InProcess.kind,
    pytest.param("embedded", marks=pytest.mark.full),
    BMV2,
)


class Plugin(Protocol):
    """The plugin of pytest by which tests/conformance runs these tests on another switch."""

    kind: str
    program: CompiledProgram | None

    def start(self) -> SwitchUnderTest:
        """The switch."""


def other_switch(config: pytest.Config) -> Plugin | None:
    """The switch on which the tests run instead of the usual ones, if there is one."""
    plugin: Plugin | None = config.pluginmanager.get_plugin(OTHER_SWITCH)
    return plugin


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that has a target on all of them."""
    if "target" in metafunc.fixturenames:
        other = other_switch(metafunc.config)
        metafunc.parametrize("target", TARGETS if other is None else [other.kind], indirect=True)


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, SwitchUnderTest]]:
    """Switches by kind, started when first asked for."""
    switches: dict[str, SwitchUnderTest] = {}
    yield switches
    for switch in switches.values():
        switch.close()


@pytest.fixture
def target(request: pytest.FixtureRequest, running: dict[str, SwitchUnderTest]) -> Iterator[Target]:
    """The program freshly loaded, with the star's entries."""
    kind, other = request.param, other_switch(request.config)
    if kind == InProcess.kind:
        yield InProcess(star.items())
        return
    if kind not in running:
        running[kind] = start(kind) if other is None else other.start()
    on_switch = OnSwitch(running[kind], star.items(), None if other is None else other.program)
    yield on_switch
    on_switch.close()
