# SPDX-License-Identifier: MIT
"""PacketOuts of any content: the controller is trusted, and a controller that is wrong must not end the switch."""

from __future__ import annotations

from netsum.wire.codec import Header
from netsum.wire.schema import CPU_PORT, MAX_CHUNKS, RECORD_BITS, SLOTS, PacketOutKind

from tests.fuzz.targets.api import FuzzTarget
from tests.system.fuzz.setup import make_blocks
from tests.system.fuzz.site import JOBS, TRIO, frame
from tests.system.fuzz.targets import InProcess

_PACKET_OUT = 7


def target() -> FuzzTarget:
    """An input is a PacketOut: its metadata as a header, and its payload."""
    switch = InProcess()
    make_blocks(switch)

    def take(data: bytes) -> None:
        sent = switch.pipeline.process(CPU_PORT, data)
        if len(data) >= _PACKET_OUT and data[0] not in tuple(PacketOutKind):
            assert not sent, "it asks for nothing that is defined"
        elif len(data) >= _PACKET_OUT and data[0] != PacketOutKind.SCAN:
            [(port, answer)] = sent
            assert port == CPU_PORT
            if data[0] == PacketOutKind.CLAIM:
                assert (answer[0], answer[3:5]) == (data[0], data[3:5])
            else:
                assert len(answer) >= _PACKET_OUT + RECORD_BITS // 8
                assert answer[:5] == data[:5], "another question's answer"
        assert len(sent) <= (len(JOBS) + SLOTS) * 4
        assert all(len(each) <= len(data) + RECORD_BITS // 8 + 256 * MAX_CHUNKS for _, each in sent)

    seeds = [bytes((kind, 0, slot, 1, 2, 0, 0)) for kind in (0, 1, 2) for slot in (0, 64)]
    for job_id in JOBS:
        scan = frame(JOBS[TRIO].members[0], Header(job_id, 0, worker_cnt=1))
        seeds.append(bytes((PacketOutKind.SCAN, 0, 0, 1, 2, 0, 0)) + scan)
    return FuzzTarget(take, seeds, 600)
