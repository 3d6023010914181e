# SPDX-License-Identifier: MIT
"""A real switch under the controller, and members that are made by hand: frames in, frames out."""

from __future__ import annotations

import struct

from netsum.descriptor import Descriptor
from netsum.frames import FrameFormat
from netsum.wire import Header, Lane, Status, pack_header, parse_header
from netsum.wire.schema import HEADER_BYTES
from netsum_controller import Controller, JobSpec

from tests.controller.members import TOKEN, join_all
from tests.switch.harness.api import SwitchUnderTest

LANES = 64
PAYLOAD = LANES * 4


def run_job(
    controller: Controller, name: str = "resnet", instance: str = "a", hosts: tuple[str, ...] = ("h1", "h2", "h4")
) -> list[Descriptor]:
    """Create the job (or find it) and join all its ranks."""
    controller.create_job(JobSpec(name=name, members=hosts, window=8, token=TOKEN))
    return join_all(controller, instance, name)


def contribute(switch: SwitchUnderTest, member: Descriptor, block: int, value: int) -> None:
    """One member's frame with ``value`` in all lanes of a block."""
    header = Header(member.job_id, block, src_id=member.src_id, lane_cnt=LANES, lane=int(Lane.L32), data_cnt=1)
    packet = pack_header(header) + struct.pack(">I", value) * LANES
    switch.send(port_of(member), FrameFormat.of(member).prefix(len(packet)) + packet)


def port_of(member: Descriptor) -> int:
    return int(member.host.ip.rpartition(".")[2])


def receive(switch: SwitchUnderTest, member: Descriptor) -> tuple[Header, bytes]:
    """Receive a member's next packet, which must be for it: (header, payload)."""
    frame = switch.recv(port_of(member))
    assert frame is not None
    packets = FrameFormat.of(member).payloads([memoryview(frame)])
    assert packets, f"not for {member.host}: {frame.hex()}"
    (packet,) = packets
    return parse_header(bytes(packet)), bytes(packet[HEADER_BYTES:])


def summed(switch: SwitchUnderTest, members: list[Descriptor], block: int, values: list[int]) -> int:
    """Let all contribute to a block; return the value that everyone gets back."""
    for member, value in zip(members, values, strict=True):
        contribute(switch, member, block, value)
    results = [receive(switch, member) for member in members]
    for member, (header, payload) in zip(members, results, strict=True):
        assert (header.block_id, header.receiver_id, header.worker_cnt) == (block, member.src_id, len(members))
        assert header.status == Status.OK
        assert payload == results[0][1]
    (value,) = set(struct.unpack(f">{LANES}I", results[0][1]))
    return int(value)
