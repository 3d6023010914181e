# SPDX-License-Identifier: MIT
"""SetForwardingPipelineConfig and GetForwardingPipelineConfig; what a switch says before the first."""

from __future__ import annotations

from typing import Any

import pytest
from grpc import StatusCode
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.harness.api import SILENCE, SwitchUnderTest
from tests.switch.harness.controller import INSERT, Controller, Program, refusal
from tests.switch.harness.frames import ether_type_of, frame

Set = p4rt.SetForwardingPipelineConfigRequest
Get = p4rt.GetForwardingPipelineConfigRequest


def get(controller: Controller, response_type: int = Get.ALL) -> p4rt.ForwardingPipelineConfig:
    request = Get(device_id=controller.device_id, response_type=response_type)
    return controller.stub.GetForwardingPipelineConfig(request).config


def test_before_the_first_program(fresh_switch: SwitchUnderTest, program: Program) -> None:
    no_pipeline = (StatusCode.FAILED_PRECONDITION, "No forwarding pipeline config set for this device")
    with Controller(fresh_switch.grpc_address).become_primary() as controller:
        assert refusal(controller.write, INSERT, program.entry("exact_table", {})) == no_pipeline
        assert refusal(controller.read, program.entry("exact_table", {})) == no_pipeline
        fresh_switch.send(1, frame(1))  # and frames are dropped
        assert fresh_switch.recv(2, SILENCE) is None


def test_capabilities(p4rt_switch: SwitchUnderTest) -> None:
    with Controller(p4rt_switch.grpc_address) as controller:
        version = controller.stub.Capabilities(p4rt.CapabilitiesRequest()).p4runtime_api_version
    assert version == "1.3.0"


def test_what_was_set_is_what_is_got(controller: Controller, program: Program) -> None:
    controller.push(program, cookie=77)
    config = get(controller)
    assert config.p4info == program.p4info
    assert config.p4_device_config == program.json
    assert config.cookie.cookie == 77


@pytest.mark.parametrize(
    ("response_type", "p4info", "device_config"),
    [
        (Get.ALL, True, True),
        (Get.COOKIE_ONLY, False, False),
        (Get.P4INFO_AND_COOKIE, True, False),
        (Get.DEVICE_CONFIG_AND_COOKIE, False, True),
    ],
)
def test_response_types(
    controller: Controller, program: Program, response_type: int, *, p4info: bool, device_config: bool
) -> None:
    controller.push(program, cookie=1)
    config = get(controller, response_type)
    assert config.HasField("p4info") == p4info
    assert bool(config.p4_device_config) == device_config
    assert config.cookie.cookie == 1


def test_no_cookie(controller: Controller, program: Program) -> None:
    controller.push(program, cookie=1)
    controller.push(program)
    assert not get(controller).HasField("cookie")


def test_what_is_refused(controller: Controller, program: Program) -> None:
    refused = refusal(get, controller, 99)
    assert refused == (StatusCode.INVALID_ARGUMENT, "Invalid response_type in GetForwardingPipelineConfigRequest")
    refused = refusal(controller.push, program, Set.UNSPECIFIED)
    assert refused == (StatusCode.INVALID_ARGUMENT, "Invalid SetForwardingPipeline action")


def test_a_new_push_clears_the_tables(controller: Controller, program: Program) -> None:
    controller.write(INSERT, program.entry("exact_table", {1: b"\x01"}, program.action("drop")))
    controller.push(program)
    assert controller.read(program.entry("exact_table", {})) == []


def test_save_then_commit(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    """Entries written after SAVE are of the new program; packets meet them after COMMIT."""
    controller.write(INSERT, program.forwarding())
    controller.push(program, Set.VERIFY_AND_SAVE)
    assert controller.read(program.entry("exact_table", {})) == []
    controller.write(INSERT, program.forwarding(port=3))
    assert p4rt_switch.passed(frame(1), 2) == frame(1)
    controller.set_config(Set.COMMIT)
    assert p4rt_switch.passed(frame(1), 3) == frame(1)


def bad_config(program: Program) -> Any:
    """The program's, with a kind of match that there is not."""
    config = program.config()
    config.p4info.tables[0].match_fields[0].match_type = 0
    return config


def test_bad_p4info(controller: Controller, program: Program) -> None:
    _, message = refusal(controller.set_config, Set.VERIFY, bad_config(program))
    assert message.startswith("Error when importing p4info")


def test_bad_push_leaves_the_old_program(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    controller.write(INSERT, program.forwarding())
    refusal(controller.set_config, Set.VERIFY_AND_COMMIT, bad_config(program))
    assert len(controller.read(program.entry("exact_table", {}))) == 1
    assert ether_type_of(p4rt_switch.passed(frame(1), 2)) == 0x9000
