# SPDX-License-Identifier: MIT
"""Replication after ingress and after egress."""

from __future__ import annotations

import struct
from typing import NamedTuple

import pytest

from tests.switch.core.conftest import StartProgram
from tests.switch.core.switches import Frames, Switch

NORMAL, INGRESS_CLONE, EGRESS_CLONE, REPLICATED = 0, 1, 2, 5
PAYLOAD = bytes(range(50))
SIZE = 14 + len(PAYLOAD)
TRACE = struct.Struct(">BHHHHBBB")


class Trace(NamedTuple):
    """The fields that the egress control saw."""

    instance_type: int
    egress_port: int
    egress_rid: int
    ingress_port: int
    packet_length: int
    kept: int
    lost: int
    passes: int


def frame(operation: int, argument: int = 0, src: int = 0) -> bytes:
    return bytes([operation, argument]) + bytes(4) + src.to_bytes(6, "big") + b"\x12\x34" + PAYLOAD


def run(device: Switch, operation: int, argument: int, *ports: int) -> list[tuple[int, Trace, bytes]]:
    """(port, trace, the frame without the trace) of what comes out."""
    out: Frames = device.run(2, frame(operation, argument), ports)
    return [(port, Trace(*TRACE.unpack(data[: TRACE.size])), data[TRACE.size :]) for port, data in out]


UNICAST = Trace(NORMAL, 3, 0, 2, SIZE, 0x11, 0x77, 17)


@pytest.mark.parametrize(("operation", "rid"), [(0, 0), (13, 0x99)], ids=["plain", "ingress gave it an instance"])
def test_unicast(switch: StartProgram, operation: int, rid: int) -> None:
    trace = UNICAST._replace(egress_rid=rid)
    assert run(switch("replication"), operation, 3, 3) == [(3, trace, frame(operation, 3))]


@pytest.mark.parametrize(
    ("operation", "argument"), [(1, 9), (2, 3), (11, 3)], ids=["no such group", "drop in ingress", "drop in egress"]
)
def test_nothing_leaves(switch: StartProgram, operation: int, argument: int) -> None:
    assert run(switch("replication"), operation, argument) == []


def test_multicast_copies_keep_the_metadata(switch: StartProgram) -> None:
    device = switch("replication")
    device.group(5, [(1, 10), (3, 11), (4, 300)])
    assert run(device, 1, 5, 1, 3, 4) == [
        (port, UNICAST._replace(instance_type=REPLICATED, egress_port=port, egress_rid=rid), frame(1, 5))
        for port, rid in ((1, 10), (3, 11), (4, 300))
    ]


def test_the_same_port_twice_in_a_group(switch: StartProgram) -> None:
    device = switch("replication")
    device.group(5, [(1, 10), (1, 11)])
    assert [(port, trace.egress_rid) for port, trace, _ in run(device, 1, 5, 1, 1)] == [(1, 10), (1, 11)]


def test_drop_port_in_ingress_by_number_does_not_fit_a_byte_so_port_255_is_unknown(switch: StartProgram) -> None:
    device = switch("replication")
    assert [each for each in device.run(2, frame(0, 255), ()) if each[0] != 255] == []


def test_exit(switch: StartProgram) -> None:
    [(port, trace, _)] = run(switch("replication"), 12, 3, 3)
    assert (port, trace.passes) == (3, 1)


def test_clone_in_ingress_is_the_packet_that_came_in(switch: StartProgram) -> None:
    device = switch("replication")
    device.session(7, [(4, 42)])
    assert run(device, 3, 3, 3, 4) == [
        (3, UNICAST, frame(3, 3, src=1)),
        (4, Trace(INGRESS_CLONE, 4, 42, 0, SIZE, 0x11, 0, 17), frame(3, 3)),
    ]


def test_clone_in_ingress_of_a_dropped_packet(switch: StartProgram) -> None:
    device = switch("replication")
    device.session(7, [(4, 0)])
    assert run(device, 7, 3, 4) == [(4, Trace(INGRESS_CLONE, 4, 0, 0, SIZE, 0, 0, 0), frame(7, 3))]


def test_clone_to_several_ports(switch: StartProgram) -> None:
    device = switch("replication")
    device.session(7, [(1, 5), (4, 6)])
    assert [(port, trace.egress_rid) for port, trace, _ in run(device, 7, 3, 1, 4)] == [(1, 5), (4, 6)]


def test_clone_without_a_session(switch: StartProgram) -> None:
    assert [port for port, _, _ in run(switch("replication"), 3, 3, 3)] == [3]


def test_clone_in_egress_has_the_headers_as_they_are_at_the_end(switch: StartProgram) -> None:
    device = switch("replication")
    device.session(7, [(4, 0)])
    [(one, first, sent), (two, second, cloned)] = run(device, 8, 3, 3, 4)
    assert (one, first, sent) == (3, UNICAST, frame(8, 3, src=3))
    # The trace that the first pass through egress made counts for the length.
    assert (two, cloned) == (4, frame(8, 3, src=3))
    assert second == Trace(EGRESS_CLONE, 4, 0, 0, SIZE + TRACE.size, 0x11, 0, 17)


@pytest.mark.parametrize(("operation", "size"), [(4, SIZE), (9, SIZE + TRACE.size)], ids=["resubmit", "recirculate"])
def test_again(switch: StartProgram, operation: int, size: int) -> None:
    """The kept metadata counts both passes; what is not kept starts at 0 again, the ingress port too."""
    again = Trace(NORMAL, 3, 0, 0, size, 0x11, 0x77, 34)
    assert run(switch("replication"), operation, 3, 3) == [(3, again, frame(operation, 3))]


def test_truncate_unicast(switch: StartProgram) -> None:
    [(port, data)] = switch("replication").run(2, frame(5, 3), (3,))
    assert (port, len(data)) == (3, 40)
    assert data[TRACE.size :] == frame(5, 3)[: 40 - TRACE.size]


def test_multicast_copies_are_not_truncated(switch: StartProgram) -> None:
    device = switch("replication")
    device.group(1, [(1, 1)])
    [(port, trace, data)] = run(device, 6, 3, 1)
    assert (port, data, trace.instance_type) == (1, frame(6, 3), REPLICATED)


def test_an_invalid_header_does_not_leave(switch: StartProgram) -> None:
    [(port, trace, data)] = run(switch("replication"), 10, 3, 3)
    assert (port, trace.packet_length, data) == (3, SIZE - 14, PAYLOAD)
