# SPDX-License-Identifier: MIT
"""PacketIn and PacketOut with controller headers."""

from __future__ import annotations

from tests.switch.harness.api import SILENCE, SwitchUnderTest
from tests.switch.harness.controller import INSERT, Controller, Program
from tests.switch.harness.frames import frame
from tests.switch.server.conftest import Connect

EGRESS_PORT, PADDING, TAG = 1, 2, 3  # metadata of packet_out
INGRESS_PORT, IN_PADDING, REASON = 1, 2, 3  # and of packet_in


def punting(controller: Controller, program: Program) -> None:
    """Frames to address 1 go to the controller."""
    entry = program.entry("exact_table", {1: b"\x01"}, program.action("to_controller", b"\xbe\xef"))
    controller.write(INSERT, entry)


def test_packet_in(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    punting(controller, program)
    p4rt_switch.send(3, frame(1))
    packet = controller.next("packet")
    assert packet.payload == frame(1)
    metadata = {each.metadata_id: each.value for each in packet.metadata}
    assert metadata == {INGRESS_PORT: b"\x03", IN_PADDING: b"\x00", REASON: b"\xbe\xef"}


def test_packet_out(controller: Controller, p4rt_switch: SwitchUnderTest) -> None:
    controller.packet_out(frame(7), {EGRESS_PORT: b"\x04", PADDING: b"\x00", TAG: b"\x12\x34"})
    assert p4rt_switch.recv(4) == frame(7, ether_type=0x1234)
    controller.packet_out(frame(7), {EGRESS_PORT: b"\x00\x02"})
    assert p4rt_switch.recv(2) == frame(7, ether_type=0)  # missing metadata is zero


def test_bad_packet_outs_are_dropped(controller: Controller, p4rt_switch: SwitchUnderTest) -> None:
    controller.packet_out(frame(7), {EGRESS_PORT: b"\x02", 9: b"\x00"})  # unknown metadata
    controller.packet_out(frame(7), {EGRESS_PORT: b"\x02", TAG: b"\x01\x00\x00"})  # too wide
    assert p4rt_switch.recv(2, SILENCE) is None
    controller.packet_out(frame(8), {EGRESS_PORT: b"\x02"})
    assert p4rt_switch.recv(2) == frame(8, ether_type=0)


def test_only_the_primary_has_packet_io(
    controller: Controller, program: Program, p4rt_switch: SwitchUnderTest, connect: Connect
) -> None:
    punting(controller, program)
    backup = connect(0)
    backup.ask_for_mastership()
    backup.next("arbitration")
    p4rt_switch.send(3, frame(1))
    controller.next("packet")
    assert backup.none_within(SILENCE)


def test_a_thousand_packet_ins_in_order(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    """Sent one by one, as fast as they come back, none is lost and none overtakes another."""
    punting(controller, program)
    for number in range(1000):
        p4rt_switch.send(1, frame(1, ether_type=number))
        packet = controller.next("packet")
        assert packet.payload == frame(1, ether_type=number)
