# SPDX-License-Identifier: MIT
"""Arbitration: who is primary, what controllers are told, and what only the primary may do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.rpc import code_pb2
from grpc import StatusCode
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.harness.api import SILENCE
from tests.switch.harness.controller import INSERT, Controller, Program, refusal
from tests.switch.server.conftest import Connect


def status_of(update: object) -> tuple[int, str, int]:
    """(status code, message, the primary's election id) of an arbitration update."""
    assert isinstance(update, p4rt.MasterArbitrationUpdate)
    assert update.device_id == 1
    return update.status.code, update.status.message, update.election_id.high << 64 | update.election_id.low


def test_first_controller_is_primary(connect: Connect) -> None:
    one = connect(5)
    one.ask_for_mastership()
    assert status_of(one.next("arbitration")) == (code_pb2.OK, "Is primary", 5)


def test_higher_id_takes_over_and_all_are_told(connect: Connect) -> None:
    higher = 5 + (1 << 64)
    one, two, three = connect(5), connect(higher), connect(7)
    one.become_primary()
    two.become_primary()
    assert status_of(one.next("arbitration")) == (code_pb2.ALREADY_EXISTS, "Is backup", higher)
    three.ask_for_mastership()
    assert status_of(three.next("arbitration")) == (code_pb2.ALREADY_EXISTS, "Is backup", higher)
    assert one.none_within(SILENCE)  # a new backup is no news to the others
    assert two.none_within(0.0)


@pytest.mark.parametrize("leave", [Controller.close, Controller.vanish])
def test_disconnect_hands_over(connect: Connect, leave: Callable[[Controller], None]) -> None:
    backup, last, primary = connect(3), connect(2), connect(9)
    primary.become_primary()
    backup.ask_for_mastership()
    last.ask_for_mastership()
    assert status_of(backup.next("arbitration"))[2] == 9
    assert status_of(last.next("arbitration"))[2] == 9
    leave(primary)
    assert status_of(backup.next("arbitration")) == (code_pb2.OK, "Is primary", 3)
    assert status_of(last.next("arbitration")) == (code_pb2.ALREADY_EXISTS, "Is backup", 3)


def test_changing_ones_election_id(connect: Connect) -> None:
    one, two = connect(10), connect(5)
    one.become_primary()
    two.ask_for_mastership()
    assert status_of(two.next("arbitration"))[0] == code_pb2.ALREADY_EXISTS
    two.ask_for_mastership(20)
    assert status_of(two.next("arbitration")) == (code_pb2.OK, "Is primary", 20)
    assert status_of(one.next("arbitration")) == (code_pb2.ALREADY_EXISTS, "Is backup", 20)


def test_duplicate_election_id(connect: Connect) -> None:
    one, two = connect(4), connect(4)
    one.become_primary()
    two.ask_for_mastership()
    assert two.refused_stream() == (StatusCode.INVALID_ARGUMENT, "Election id already exists")
    assert one.none_within(SILENCE)


def test_a_stream_stays_with_its_device(connect: Connect) -> None:
    one = connect().become_primary()
    one.device_id = 2
    one.ask_for_mastership()
    assert one.refused_stream() == (StatusCode.FAILED_PRECONDITION, "Invalid device id")


def test_sixteen_controllers_and_no_more(connect: Connect) -> None:
    *sixteen, last = [connect(100 - number) for number in range(17)]
    for controller in sixteen:
        controller.ask_for_mastership()
        controller.next("arbitration")
    last.ask_for_mastership()
    assert last.refused_stream() == (StatusCode.RESOURCE_EXHAUSTED, "Too many connections")


def test_only_the_primary_writes(controller: Controller, connect: Connect, program: Program) -> None:
    entry = program.entry("exact_table", {1: b"\x01"}, program.action("drop"))
    backup = connect(0)
    backup.ask_for_mastership()
    assert backup.next("arbitration").status.message == "Is backup"
    not_primary = (StatusCode.PERMISSION_DENIED, "Not primary")
    assert refusal(backup.write, INSERT, entry) == not_primary
    assert refusal(backup.push, program) == not_primary
    assert backup.read(program.entry("exact_table", {})) == []  # reading is anyone's right
    controller.write(INSERT, entry)


def test_writes_without_a_controller_connected(connect: Connect, program: Program) -> None:
    unconnected = connect()
    assert refusal(unconnected.push, program) == (StatusCode.PERMISSION_DENIED, "Not primary")


def test_half_closed_stream_ends_well(connect: Connect) -> None:
    one = connect(6).become_primary()
    one.send(None)
    assert one.end_of_stream() is None
    connect(6).become_primary()  # the id is free again
