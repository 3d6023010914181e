# SPDX-License-Identifier: MIT
"""Multicast groups and clone sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from google.rpc import code_pb2
from grpc import StatusCode
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.harness.api import PORTS, SILENCE, SwitchUnderTest
from tests.switch.harness.controller import DELETE, INSERT, MODIFY, Controller, Program, refusal
from tests.switch.harness.frames import frame, source_of

INVALID, UNKNOWN, UNIMPLEMENTED = code_pb2.INVALID_ARGUMENT, code_pb2.UNKNOWN, code_pb2.UNIMPLEMENTED


def group(group_id: int, *replicas: tuple[int, int]) -> Any:
    """A multicast group of (port, instance)."""
    entity = p4rt.Entity()
    message = entity.packet_replication_engine_entry.multicast_group_entry
    message.multicast_group_id = group_id
    for port, instance in replicas:
        message.replicas.add(egress_port=port, instance=instance)
    return entity


def session(session_id: int, *replicas: tuple[int, int], **fields: int) -> Any:
    """A clone session of (port, instance)."""
    entity = p4rt.Entity()
    message = entity.packet_replication_engine_entry.clone_session_entry
    message.session_id = session_id
    for name, value in fields.items():
        setattr(message, name, value)
    for port, instance in replicas:
        message.replicas.add(egress_port=port, instance=instance)
    return entity


def shown(entities: Sequence[Any]) -> list[tuple[int, list[str]]]:
    """Groups by id with their replicas, in an order of their own."""
    groups = [entity.packet_replication_engine_entry.multicast_group_entry for entity in entities]
    return sorted((each.multicast_group_id, sorted(map(str, each.replicas))) for each in groups)


def multicasting(controller: Controller, program: Program) -> None:
    """Frames to address 1 go to group 1."""
    controller.write(INSERT, program.entry("exact_table", {1: b"\x01"}, program.action("multicast", b"\x00\x01")))


def assert_copies(switch: SwitchUnderTest, expected: dict[int, list[int]]) -> None:
    """Copies with these replica ids leave, by port, and no others; their order is not promised."""
    found: dict[int, list[int]] = {}
    for port in PORTS:
        ids = [source_of(switch.recv(port)) & 0xFFFF for _ in expected.get(port, ())]
        while (data := switch.recv(port, SILENCE)) is not None:
            ids.append(source_of(data) & 0xFFFF)
        if ids:
            found[port] = sorted(ids)
    assert found == expected


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        pytest.param([(2, 7), (3, 7), (2, 9)], {2: [7, 9], 3: [7]}, id="a port twice"),
        pytest.param([(1, 1), (2, 1)], {1: [1], 2: [1]}, id="the ingress port, which the program may leave out"),
    ],
)
def test_copies_to_a_group(
    controller: Controller,
    program: Program,
    p4rt_switch: SwitchUnderTest,
    replicas: Any,
    expected: dict[int, list[int]],
) -> None:
    multicasting(controller, program)
    controller.write(INSERT, group(1, *replicas))
    p4rt_switch.send(1, frame(1))
    assert_copies(p4rt_switch, expected)


def test_modify_and_delete_a_group(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    multicasting(controller, program)
    controller.write(INSERT, group(1, (2, 1), (3, 2)))
    changed = group(1, (3, 2), (4, 3), (4, 1))
    controller.write(MODIFY, changed)
    assert shown(controller.read(group(1))) == shown([changed])
    p4rt_switch.send(1, frame(1))
    assert_copies(p4rt_switch, {3: [2], 4: [1, 3]})
    controller.write(DELETE, group(1))
    p4rt_switch.send(1, frame(1))
    assert_copies(p4rt_switch, {})
    assert refusal(controller.read, group(1)) == (StatusCode.NOT_FOUND, "Multicast group does not exist")


def test_reading_groups(controller: Controller) -> None:
    one, two = group(1, (2, 7), (3, 8)), group(4000, (2, 1))
    controller.write(INSERT, one, two)
    assert shown(controller.read(group(0))) == shown([one, two])
    assert controller.read(group(4000)) == [two]


def test_ports_as_bytes(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    multicasting(controller, program)
    entity = group(1)
    replicas = entity.packet_replication_engine_entry.multicast_group_entry.replicas
    replicas.add(port=b"\x02", instance=1)
    replicas.add(port=b"\x03", instance=2)
    controller.write(INSERT, entity)
    assert shown(controller.read(group(1))) == shown([entity])
    p4rt_switch.send(1, frame(1))
    assert_copies(p4rt_switch, {2: [1], 3: [2]})


REFUSED_GROUPS = [
    ("id 0", group(0, (1, 1)), INVALID, "0 is not a valid group id"),
    ("id 32768", group(32768, (1, 1)), code_pb2.OUT_OF_RANGE, "Group id value is too high"),
    ("twice", group(1, (1, 1), (1, 1)), INVALID, "Duplicate replica in multicast group"),
]


@pytest.mark.parametrize(("entity", "code", "message"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED_GROUPS])
def test_refused_groups(controller: Controller, entity: Any, code: int, message: str) -> None:
    assert controller.refused(INSERT, entity) == (code, message)
    assert controller.read(group(0)) == []


@pytest.mark.parametrize(
    ("port", "code", "message"),
    [
        (None, INVALID, "Missing port in multicast group replica"),
        (b"", INVALID, "Port must not be the empty string"),
        (b"\x00", INVALID, "Port must be non-negative."),
        (b"\xff\xff\xff\xff", INVALID, "Port must be non-negative."),
    ],
)
def test_refused_ports(controller: Controller, port: bytes | None, code: int, message: str) -> None:
    entity = group(1)
    replica = entity.packet_replication_engine_entry.multicast_group_entry.replicas.add(instance=1)
    if port is not None:
        replica.port = port
    assert controller.refused(INSERT, entity) == (code, message)


def test_groups_that_are_or_are_not_there(controller: Controller) -> None:
    absent = (code_pb2.NOT_FOUND, "Multicast group does not exist")
    assert controller.refused(MODIFY, group(1, (1, 1))) == absent
    assert controller.refused(DELETE, group(1)) == absent
    controller.write(INSERT, group(1, (1, 1)))
    exists = (code_pb2.ALREADY_EXISTS, "Multicast group already exists")
    assert controller.refused(INSERT, group(1, (2, 1))) == exists
    assert controller.read(group(0)) == [group(1, (1, 1))]
    assert refusal(controller.read, group(40000)) == (StatusCode.OUT_OF_RANGE, "Group id value is too high")


def test_no_kind_of_replication_and_no_type_of_update(controller: Controller) -> None:
    entity = p4rt.Entity(packet_replication_engine_entry={})
    assert controller.refused(INSERT, entity) == (INVALID, "Invalid PRE operation")
    assert refusal(controller.read, entity) == (StatusCode.INVALID_ARGUMENT, "Invalid PRE operation")
    for entity in (group(1, (1, 1)), session(1, (1, 1))):
        assert controller.refused(p4rt.Update.UNSPECIFIED, entity) == (INVALID, "Update type is not set")


def test_cloning(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    controller.write(INSERT, program.entry("exact_table", {1: b"\x01"}, program.action("clone_to", b"\x02")))
    assert p4rt_switch.passed(frame(1), 2) == frame(1)  # no such session: no clone
    controller.write(INSERT, session(5, (3, 1), (4, 2)))
    assert p4rt_switch.passed(frame(1), 2) == frame(1)
    assert_copies(p4rt_switch, {3: [1], 4: [2]})
    controller.write(MODIFY, session(5, (4, 6)))
    assert controller.read(session(0)) == [session(5, (4, 6))]
    assert p4rt_switch.passed(frame(1), 2) == frame(1)
    assert_copies(p4rt_switch, {4: [6]})
    controller.write(DELETE, session(5))
    assert p4rt_switch.passed(frame(1), 2) == frame(1)
    assert_copies(p4rt_switch, {})


def test_refused_sessions(controller: Controller) -> None:
    assert controller.refused(INSERT, session(0)) == (INVALID, "0 is not a valid session id")
    assert controller.refused(INSERT, session(32768)) == (INVALID, "Clone session id out-of-range")
    absent = (code_pb2.NOT_FOUND, "Clone session id does not exist")
    assert controller.refused(MODIFY, session(1)) == absent
    assert controller.refused(DELETE, session(1)) == absent
    assert refusal(controller.read, session(1)) == (StatusCode.NOT_FOUND, "Clone session id does not exist")
    controller.write(INSERT, session(1, (1, 1)))
    exists = (code_pb2.ALREADY_EXISTS, "Clone session id already exists")
    assert controller.refused(INSERT, session(1, (1, 1))) == exists
    assert controller.read(group(0)) == []  # a session is not seen as a group
