# SPDX-License-Identifier: MIT
"""Garbage frames and garbage requests give errors, and the switch goes on."""

from __future__ import annotations

import random

import grpc
import pytest
from netsum_p4runtime import p4runtime_pb2 as p4rt
from netsum_p4runtime.p4runtime_pb2_grpc import P4RuntimeStub

from tests.switch.harness.api import SwitchUnderTest
from tests.switch.harness.controller import INSERT, Controller, Program
from tests.switch.harness.embedded import EmbeddedUnderTest
from tests.switch.harness.frames import frame
from tests.threads import PATIENCE


def lives(switch: SwitchUnderTest, controller: Controller, program: Program) -> None:
    """The switch serves requests and forwards frames."""
    controller.push(program)
    controller.write(INSERT, program.forwarding())
    switch.send(1, frame(1))
    while (data := switch.recv(2)) != frame(1):  # behind what may be left of the garbage
        assert data is not None, "no frame came"


def test_garbage_frames(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    chance = random.Random(1)
    for _ in range(200):
        p4rt_switch.send(chance.choice((1, 2, 3, 4)), chance.randbytes(chance.choice((14, 15, 60, 1500, 9000))))
    for size in range(20):
        controller.packet_out(bytes(size), {1: b"\x02"})
    lives(p4rt_switch, controller, program)


def test_tiny_frames(p4rt_embedded: EmbeddedUnderTest, program: Program) -> None:
    """Shorter than an Ethernet header, empty ones too: only UDP-carried ports can bring them."""
    with Controller(p4rt_embedded.grpc_address).become_primary() as controller:
        controller.push(program)
        for size in range(14):
            p4rt_embedded.send(1, bytes(size))
        lives(p4rt_embedded, controller, program)


METHODS = (
    "Write", "Read", "SetForwardingPipelineConfig", "GetForwardingPipelineConfig", "Capabilities", "StreamChannel",
)  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_bytes_that_are_no_messages(
    method: str, controller: Controller, program: Program, p4rt_embedded: EmbeddedUnderTest
) -> None:
    del controller
    chance = random.Random(method)
    with grpc.insecure_channel(p4rt_embedded.grpc_address) as channel:
        for size in (1, 2, 10, 1000):
            garbage = b"\xff" + chance.randbytes(size)
            path = f"/p4.v1.P4Runtime/{method}"
            with pytest.raises(grpc.RpcError):
                _call(channel, path, method, garbage)
    with Controller(p4rt_embedded.grpc_address, election_id=50).become_primary() as other:
        lives(p4rt_embedded, other, program)


def _call(channel: grpc.Channel, path: str, method: str, message: bytes) -> None:
    if method == "StreamChannel":
        list(channel.stream_stream(path)(iter([message]), timeout=PATIENCE))
    elif method == "Read":
        list(channel.unary_stream(path)(message, timeout=PATIENCE))
    else:
        channel.unary_unary(path)(message, timeout=PATIENCE)


@pytest.mark.full
def test_streams_that_say_nothing(p4rt_embedded: EmbeddedUnderTest) -> None:
    """Silent streams hold a thread each, up to a limit; requests are served all the same."""
    silent = [Controller(p4rt_embedded.grpc_address) for _ in range(50)]
    try:
        for controller in silent:
            controller.send(p4rt.StreamMessageRequest())
        refused = [controller for controller in silent if _is_refused(controller)]
        assert len(refused) == 50 - 32
        with grpc.insecure_channel(p4rt_embedded.grpc_address) as channel:
            assert P4RuntimeStub(channel).Capabilities(p4rt.CapabilitiesRequest(), timeout=PATIENCE).p4runtime_api_version
    finally:
        for controller in silent:
            controller.close()


def _is_refused(controller: Controller) -> bool:
    """A stream that is refused ends at once."""
    return not controller.none_within(0.1)
