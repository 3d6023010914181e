# SPDX-License-Identifier: MIT
"""DigestEntry, DigestList, DigestListAck."""

from __future__ import annotations

from typing import Any

import pytest
from google.rpc import code_pb2
from grpc import StatusCode
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.harness.api import SILENCE, SwitchUnderTest
from tests.switch.harness.controller import DELETE, INSERT, MODIFY, Controller, Program, refusal
from tests.switch.harness.frames import frame

A_MILLISECOND = 1_000_000
LONG = 3600 * 10**9


def digest_entry(program: Program, size: int = 1, timeout: int = 0, ack_timeout: int = 0) -> Any:
    """A DigestEntry; times in nanoseconds."""
    entity = p4rt.Entity()
    entry = entity.digest_entry
    entry.digest_id = program.ids["learn_t"]
    entry.config.max_list_size, entry.config.max_timeout_ns, entry.config.ack_timeout_ns = size, timeout, ack_timeout
    return entity


def learning(controller: Controller, program: Program, **config: int) -> None:
    """Frames to address 1 are learned, by a digest of this configuration, and go to port 2."""
    entry = program.entry("exact_table", {1: b"\x01"}, program.action("learn_and_forward", b"\x02"))
    controller.write(INSERT, entry, digest_entry(program, **config))


def teach(switch: SwitchUnderTest, *sources: int) -> None:
    """Frames from these addresses at port 1, each seen to pass."""
    for source in sources:
        assert switch.passed(frame(1, src=source), 2) is not None


def learned(digest: Any) -> list[tuple[int, int]]:
    """(address, port) of the samples of a DigestList."""
    samples = []
    for data in digest.data:
        address, port = (int.from_bytes(member.bitstring, "big") for member in data.struct.members)
        samples.append((address, port))
    return samples


def acknowledge(controller: Controller, digest: Any) -> None:
    request = p4rt.StreamMessageRequest()
    request.digest_ack.digest_id, request.digest_ack.list_id = digest.digest_id, digest.list_id
    controller.send(request)


def comes_again(controller: Controller, switch: SwitchUnderTest) -> bool:
    """True if the sample of address 5 is sent again, sooner or later."""
    for _ in range(100):
        teach(switch, 5)
        if not controller.none_within(0.1):
            return True
    return False


def test_one_sample_a_list(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    learning(controller, program)
    teach(p4rt_switch, 0xAABB)
    first = controller.next("digest")
    assert (first.digest_id, first.list_id) == (program.ids["learn_t"], 1)
    assert learned(first) == [(0xAABB, 1)]
    assert first.timestamp > 0
    teach(p4rt_switch, 0xCCDD)
    second = controller.next("digest")
    assert (second.list_id, learned(second)) == (2, [(0xCCDD, 1)])


def test_a_full_list(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    timeout = 0 if p4rt_switch.kind == "bmv2" else LONG  # no timeout; in the specification, 0 is at once
    learning(controller, program, size=3, timeout=timeout)
    teach(p4rt_switch, 1, 2)
    assert controller.none_within(SILENCE)
    teach(p4rt_switch, 2, 3)  # what waits already is not added again
    assert learned(controller.next("digest")) == [(1, 1), (2, 1), (3, 1)]


def test_a_list_that_has_waited(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    learning(controller, program, size=100, timeout=A_MILLISECOND)
    teach(p4rt_switch, 5)
    assert learned(controller.next("digest")) == [(5, 1)]


def test_acknowledgment(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    """With an acknowledgment timeout, a sample is not sent again until its list is acknowledged."""
    learning(controller, program, ack_timeout=LONG)
    teach(p4rt_switch, 5)
    digest = controller.next("digest")
    teach(p4rt_switch, 5, 5)
    assert controller.none_within(SILENCE)
    acknowledge(controller, digest)
    assert comes_again(controller, p4rt_switch)  # the acknowledgment and the packet come on different ways


def test_overdue_acknowledgment(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    learning(controller, program, ack_timeout=A_MILLISECOND)
    teach(p4rt_switch, 5)
    assert learned(controller.next("digest")) == [(5, 1)]
    assert comes_again(controller, p4rt_switch)  # simple_switch_grpc looks every 100 ms and forgets at the second look


def test_not_configured_is_not_sent(controller: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    learning(controller, program)
    controller.write(DELETE, digest_entry(program))
    teach(p4rt_switch, 6)
    assert controller.none_within(SILENCE)


def test_configuration(controller: Controller, program: Program) -> None:
    digest_id = program.ids["learn_t"]
    question = p4rt.Entity()
    question.digest_entry.digest_id = digest_id
    absent = f"Digest {digest_id} not configured"
    assert refusal(controller.read, question) == (StatusCode.NOT_FOUND, absent)
    for update in (MODIFY, DELETE):
        assert controller.refused(update, digest_entry(program)) == (code_pb2.NOT_FOUND, absent)
    controller.write(INSERT, digest_entry(program, 7, 8, 9))
    assert controller.read(question) == [digest_entry(program, 7, 8, 9)]
    exists = (code_pb2.ALREADY_EXISTS, f"Digest {digest_id} already configured")
    assert controller.refused(INSERT, digest_entry(program)) == exists
    controller.write(MODIFY, digest_entry(program, 1, 2, 3))
    assert controller.read(question) == [digest_entry(program, 1, 2, 3)]
    controller.write(DELETE, digest_entry(program))
    assert refusal(controller.read, question) == (StatusCode.NOT_FOUND, absent)


def test_refused(controller: Controller, program: Program) -> None:
    entity = digest_entry(program)
    unspecified = controller.refused(p4rt.Update.UNSPECIFIED, entity)
    assert unspecified == (code_pb2.INVALID_ARGUMENT, "Invalid update type for DigestEntry")
    entity.digest_entry.digest_id = 9
    absent = "9 is not a valid digest id"
    assert controller.refused(INSERT, entity) == (code_pb2.NOT_FOUND, absent)
    assert refusal(controller.read, entity) == (StatusCode.NOT_FOUND, absent)


@pytest.mark.parametrize("field", ["max_list_size", "max_timeout_ns", "ack_timeout_ns"])
def test_negative_numbers_are_refused(contract: Controller, program: Program, field: str) -> None:
    entity = digest_entry(program)
    setattr(entity.digest_entry.config, field, -1)
    assert contract.refused(INSERT, entity) == (code_pb2.INVALID_ARGUMENT, f"{field} of a digest cannot be negative")
    contract.write(INSERT, digest_entry(program))
    assert contract.refused(MODIFY, entity)[0] == code_pb2.INVALID_ARGUMENT
    assert contract.read(digest_entry(program)) == [digest_entry(program)]
