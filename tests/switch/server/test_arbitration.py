"""Who is primary, what controllers are told, and what only the primary may do."""

from __future__ import annotations

import grpc
from google.rpc import code_pb2
from p4.v1 import p4runtime_pb2 as p4rt

from tests.switch.harness.api import SILENCE, SwitchUnderTest
from tests.switch.harness.controller import INSERT, Controller, Program, refusal


def status_of(update: object) -> tuple[int, str, int]:
    """(status code, message, the primary's election id) of an arbitration update."""
    assert isinstance(update, p4rt.MasterArbitrationUpdate)
    assert update.device_id == 1
    return update.status.code, update.status.message, update.election_id.high << 64 | update.election_id.low


def test_first_controller_is_primary(p4rt_switch: SwitchUnderTest) -> None:
    with Controller(p4rt_switch.grpc_address, election_id=5) as one:
        one.ask_for_mastership()
        assert status_of(one.next("arbitration")) == (code_pb2.OK, "Is primary", 5)


def test_higher_id_takes_over_and_all_are_told(p4rt_switch: SwitchUnderTest) -> None:
    with (
        Controller(p4rt_switch.grpc_address, election_id=5) as one,
        Controller(p4rt_switch.grpc_address, election_id=5 + (1 << 64)) as two,
        Controller(p4rt_switch.grpc_address, election_id=7) as three,
    ):
        one.become_primary()
        two.become_primary()
        assert status_of(one.next("arbitration")) == (code_pb2.ALREADY_EXISTS, "Is backup", 5 + (1 << 64))
        three.ask_for_mastership()
        assert status_of(three.next("arbitration")) == (code_pb2.ALREADY_EXISTS, "Is backup", 5 + (1 << 64))
        assert one.none_within(SILENCE)  # a new backup is no news to the others
        assert two.none_within(0.0)


def test_disconnect_hands_over(p4rt_switch: SwitchUnderTest) -> None:
    with (
        Controller(p4rt_switch.grpc_address, election_id=3) as backup,
        Controller(p4rt_switch.grpc_address, election_id=2) as last,
    ):
        with Controller(p4rt_switch.grpc_address, election_id=9) as primary:
            primary.become_primary()
            backup.ask_for_mastership()
            last.ask_for_mastership()
            assert status_of(backup.next("arbitration"))[2] == 9
            assert status_of(last.next("arbitration"))[2] == 9
        assert status_of(backup.next("arbitration")) == (code_pb2.OK, "Is primary", 3)
        assert status_of(last.next("arbitration")) == (code_pb2.ALREADY_EXISTS, "Is backup", 3)


def test_a_controller_that_vanishes(p4rt_switch: SwitchUnderTest) -> None:
    with (
        Controller(p4rt_switch.grpc_address, election_id=3) as backup,
        Controller(p4rt_switch.grpc_address, election_id=9) as primary,
    ):
        primary.become_primary()
        backup.ask_for_mastership()
        assert status_of(backup.next("arbitration"))[2] == 9
        primary.vanish()
        assert status_of(backup.next("arbitration")) == (code_pb2.OK, "Is primary", 3)


def test_changing_ones_election_id(p4rt_switch: SwitchUnderTest) -> None:
    with (
        Controller(p4rt_switch.grpc_address, election_id=10) as one,
        Controller(p4rt_switch.grpc_address, election_id=5) as two,
    ):
        one.become_primary()
        two.ask_for_mastership()
        assert status_of(two.next("arbitration"))[0] == code_pb2.ALREADY_EXISTS
        two.ask_for_mastership(20)
        assert status_of(two.next("arbitration")) == (code_pb2.OK, "Is primary", 20)
        assert status_of(one.next("arbitration")) == (code_pb2.ALREADY_EXISTS, "Is backup", 20)
        two.ask_for_mastership(1)
        assert status_of(two.next("arbitration")) == (code_pb2.ALREADY_EXISTS, "Is backup", 10)
        assert status_of(one.next("arbitration")) == (code_pb2.OK, "Is primary", 10)
        one.ask_for_mastership(10)  # the same again is not answered
        assert one.none_within(SILENCE)


def test_duplicate_election_id(p4rt_switch: SwitchUnderTest) -> None:
    with (
        Controller(p4rt_switch.grpc_address, election_id=4) as one,
        Controller(p4rt_switch.grpc_address, election_id=4) as two,
    ):
        one.become_primary()
        two.ask_for_mastership()
        error = two.end_of_stream()
        assert (error.code(), error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "Election id already exists")
        assert one.none_within(SILENCE)


def test_election_id_zero_or_none(p4rt_switch: SwitchUnderTest) -> None:
    with Controller(p4rt_switch.grpc_address, election_id=None) as one:
        one.ask_for_mastership()
        assert status_of(one.next("arbitration")) == (code_pb2.OK, "Is primary", 0)


def test_a_stream_stays_with_its_device(p4rt_switch: SwitchUnderTest) -> None:
    with Controller(p4rt_switch.grpc_address) as one:
        one.become_primary()
        one.device_id = 2
        one.ask_for_mastership()
        error = one.end_of_stream()
        assert (error.code(), error.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "Invalid device id")


def test_sixteen_controllers_and_no_more(p4rt_switch: SwitchUnderTest) -> None:
    controllers = [Controller(p4rt_switch.grpc_address, election_id=100 - number) for number in range(17)]
    try:
        for controller in controllers[:16]:
            controller.ask_for_mastership()
            controller.next("arbitration")
        controllers[16].ask_for_mastership()
        error = controllers[16].end_of_stream()
        assert (error.code(), error.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "Too many connections")
    finally:
        for controller in reversed(controllers):
            controller.close()


def test_only_the_primary_writes(controller: Controller, p4rt_switch: SwitchUnderTest, program: Program) -> None:
    entry = program.entry("exact_table", {1: b"\x01"}, program.action("drop"))
    with Controller(p4rt_switch.grpc_address, election_id=0) as backup:
        backup.ask_for_mastership()
        assert backup.next("arbitration").status.message == "Is backup"
        not_primary = (grpc.StatusCode.PERMISSION_DENIED, "Not primary")
        assert refusal(backup.write, INSERT, entry) == not_primary
        assert refusal(backup.push, program) == not_primary
        assert backup.read(program.entry("exact_table", {})) == []  # reading is anyone's right
    controller.write(INSERT, entry)


def test_writes_with_nobody_connected(p4rt_switch: SwitchUnderTest, program: Program) -> None:
    with Controller(p4rt_switch.grpc_address, election_id=1) as unconnected:
        assert refusal(unconnected.push, program) == (grpc.StatusCode.PERMISSION_DENIED, "Not primary")
        unconnected.election_id = None
        unconnected.push(program)
        unconnected.write(INSERT, program.entry("exact_table", {1: b"\x01"}, program.action("drop")))
        assert len(unconnected.read(program.entry("exact_table", {}))) == 1


def test_half_closed_stream_ends_well(p4rt_switch: SwitchUnderTest) -> None:
    with Controller(p4rt_switch.grpc_address, election_id=6) as one:
        one.become_primary()
        one.send(None)
        assert one.end_of_stream() is None
        with Controller(p4rt_switch.grpc_address, election_id=6) as two:  # the id is free again
            two.become_primary()
