"""The program on its targets: the pipeline alone, the embedded switch and simple_switch_grpc over their
wires."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.protocol import star
from tests.protocol.targets import InProcess, OnSwitch, Target
from tests.switch.harness.api import SwitchUnderTest
from tests.switch.harness.launch import BMV2, start

# The embedded switch is the pipeline behind P4Runtime and sockets, which tests/switch tests too.
TARGETS = (
    InProcess.kind,
    pytest.param("embedded", marks=pytest.mark.full),
    BMV2,
)


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, SwitchUnderTest]]:
    """Switches by kind, started when first asked for."""
    switches: dict[str, SwitchUnderTest] = {}
    yield switches
    for switch in switches.values():
        switch.close()


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest, running: dict[str, SwitchUnderTest]) -> Iterator[Target]:
    """The program freshly loaded, with the star's entries."""
    kind = request.param
    if kind == InProcess.kind:
        yield InProcess(star.items())
        return
    if kind not in running:
        running[kind] = start(kind)
    on_switch = OnSwitch(running[kind], star.items())
    yield on_switch
    on_switch.close()
