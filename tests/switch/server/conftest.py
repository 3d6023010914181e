# SPDX-License-Identifier: MIT
"""A switch of each kind for the contract tests: the same tests pass against both.

One process of each kind serves all tests of a session; a test starts from a freshly pushed program and takes away the
multicast groups and clone sessions that it made (simple_switch_grpc keeps those across programs).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import grpc
import pytest
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.harness import launch
from tests.switch.harness.api import SwitchUnderTest
from tests.switch.harness.contract import PRIMARY, World
from tests.switch.harness.controller import DELETE, Controller, Program

StartSwitch = Callable[[str], SwitchUnderTest]


@pytest.fixture(scope="session")
def start_switch() -> Iterator[StartSwitch]:
    """Starts a switch of a kind, once a session, and anew when a test has ended it: that test fails, and not those behind it."""
    running: dict[str, SwitchUnderTest] = {}
    with contextlib.ExitStack() as closing:

        def start(kind: str) -> SwitchUnderTest:
            if kind not in running:
                running[kind] = launch.start(kind)
                closing.callback(running[kind].close)
            if not running[kind].is_alive:
                running[kind].restart()
            return running[kind]

        yield start


@pytest.fixture(params=launch.KINDS)
def p4rt_switch(request: pytest.FixtureRequest, start_switch: StartSwitch) -> SwitchUnderTest:
    """A running switch, with whatever program the last test left."""
    switch = start_switch(request.param)
    switch.drain()
    return switch


@pytest.fixture
def p4rt_embedded(start_switch: StartSwitch) -> SwitchUnderTest:
    """The embedded switch, for what the other does not offer."""
    switch = start_switch("embedded")
    switch.drain()
    return switch


@pytest.fixture
def fresh_switch(kind: str) -> Iterator[SwitchUnderTest]:
    """A fresh switch, which only this test uses."""
    switch = launch.start(kind)
    yield switch
    switch.close()


@pytest.fixture(params=launch.KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def program() -> Program:
    """The program of the contract tests."""
    return Program("contract")


Connect = Callable[..., Controller]


@pytest.fixture
def connect(p4rt_switch: SwitchUnderTest) -> Iterator[Connect]:
    """``connect(election_id)``: a controller of the switch, which has not spoken yet; closed at the end, the first one last."""
    with contextlib.ExitStack() as closing:
        yield lambda election_id=1: closing.enter_context(Controller(p4rt_switch.grpc_address, election_id))


@pytest.fixture
def controller(p4rt_switch: SwitchUnderTest, program: Program) -> Iterator[Controller]:
    """The primary controller, with a fresh `program` on the switch."""
    with Controller(p4rt_switch.grpc_address).become_primary() as controller:
        controller.push(program)
        yield controller
        clear_replication(controller)


def connected(switch: SwitchUnderTest, program: Program) -> Controller:
    controller = Controller(switch.grpc_address).become_primary()
    controller.push(program)
    return controller


@pytest.fixture
def constructs(p4rt_embedded: SwitchUnderTest) -> Iterator[Controller]:
    """The primary controller of the embedded switch, with a fresh `constructs`."""
    with connected(p4rt_embedded, Program("constructs")) as controller:
        yield controller


@pytest.fixture
def contract(p4rt_embedded: SwitchUnderTest) -> Iterator[Controller]:
    """The same with `contract`."""
    with connected(p4rt_embedded, Program("contract")) as controller:
        yield controller


@pytest.fixture
def world(p4rt_switch: SwitchUnderTest, program: Program) -> Iterator[World]:
    """The switch of a row of the contract, with a fresh `program` and a primary controller."""
    with World(p4rt_switch) as world:
        world.open(PRIMARY, 1).become_primary().push(program)
        yield world
        with contextlib.suppress(grpc.RpcError):  # simple_switch_grpc takes no program while another is saved only
            world.primary.set_config(p4rt.SetForwardingPipelineConfigRequest.COMMIT)
        clear_replication(world.primary)


def clear_replication(controller: Controller) -> None:
    """Delete all groups and sessions; a test that took the mastership or the program away has left none."""
    kinds = ("multicast_group_entry", "clone_session_entry")
    everything = [p4rt.Entity(packet_replication_engine_entry={kind: {}}) for kind in kinds]
    try:
        left = controller.read(*everything)
        if left:
            controller.write(DELETE, *left)
    except grpc.RpcError as error:
        if error.code() not in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.FAILED_PRECONDITION):
            raise
