# SPDX-License-Identifier: MIT
"""Differences from simple_switch_grpc, as docs/switch.md says."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import grpc
import pytest
from grpc import StatusCode
from netsum_p4runtime import p4runtime_pb2 as p4rt
from netsum_p4runtime.p4runtime_pb2_grpc import P4RuntimeStub
from netsum_switch.p4runtime import device
from netsum_switch.p4runtime.server import MAX_STREAMS
from netsum_switch.runtime import EmbeddedSwitch

from tests.switch.harness.controller import INSERT, Controller, Program, refusal
from tests.switch.harness.embedded import EmbeddedUnderTest
from tests.switch.harness.frames import frame
from tests.switch.server.test_replication import group, multicasting, session
from tests.threads import PATIENCE

Set = p4rt.SetForwardingPipelineConfigRequest


@pytest.fixture
def controller(p4rt_embedded: EmbeddedUnderTest, program: Program) -> Iterator[Controller]:
    with Controller(p4rt_embedded.grpc_address).become_primary() as controller:
        controller.push(program)
        yield controller


def test_a_new_push_clears_replication(controller: Controller, program: Program, p4rt_embedded: EmbeddedUnderTest) -> None:
    multicasting(controller, program)
    controller.write(INSERT, group(1, (2, 1)), session(5, (3, 1)))
    controller.push(program)
    assert controller.read(group(0), session(0)) == []
    multicasting(controller, program)
    p4rt_embedded.send(1, frame(1))
    assert p4rt_embedded.recv(2, 0.3) is None


@pytest.mark.parametrize("text", [b"{", b"{}", b"null", b"[1]", b'{"__meta__": {"version": [99, 0]}}', b"\xff\xfe", b"x" * 100])
def test_bad_programs(controller: Controller, program: Program, p4rt_embedded: EmbeddedUnderTest, text: bytes) -> None:
    """Refused with a reason; the program that runs goes on running."""
    controller.write(INSERT, program.forwarding())
    config = p4rt.ForwardingPipelineConfig(p4info=program.p4info, p4_device_config=text)
    code, message = refusal(controller.set_config, Set.VERIFY_AND_COMMIT, config)
    assert code is StatusCode.INVALID_ARGUMENT
    assert message.startswith("p4_device_config")
    assert p4rt_embedded.passed(frame(1), 2) == frame(1)


def test_verify_loads_the_json(controller: Controller, program: Program) -> None:
    config = p4rt.ForwardingPipelineConfig(p4info=program.p4info, p4_device_config=b"{}")
    assert refusal(controller.set_config, Set.VERIFY, config)[0] is StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("tables", "table X is not"),
        ("counters", "counter X is not"),
        ("actions", "action X is not"),
        ("registers", "register X is not"),
    ],
)
def test_p4info_of_another_program(controller: Controller, program: Program, kind: str, message: str) -> None:
    config = program.config()
    getattr(config.p4info, kind)[0].preamble.name = "X"
    code, text = refusal(controller.set_config, Set.VERIFY, config)
    assert code is StatusCode.INVALID_ARGUMENT
    assert message in text


def test_p4info_with_another_key(controller: Controller, program: Program) -> None:
    config = program.config()
    config.p4info.tables[0].match_fields[0].bitwidth = 32
    assert "has another key" in refusal(controller.set_config, Set.VERIFY, config)[1]


def test_large_reads_come_in_pieces(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = p4rt.Entity(counter_entry={})
    [whole] = controller.responses_to_read(everything)
    monkeypatch.setattr(device, "_ENTITIES_PER_RESPONSE", 10)
    pieces = list(controller.responses_to_read(everything))
    assert [len(piece.entities) for piece in pieces] == [10, 10, 4]
    assert [entity for piece in pieces for entity in piece.entities] == list(whole.entities)


def test_an_election_id_that_another_has(p4rt_embedded: EmbeddedUnderTest, program: Program) -> None:
    """The other stays primary."""
    with (
        Controller(p4rt_embedded.grpc_address, election_id=9) as one,
        Controller(p4rt_embedded.grpc_address, election_id=3) as two,
    ):
        one.become_primary()
        one.push(program)  # without one, no write is answered
        two.ask_for_mastership()
        two.next("arbitration")
        two.ask_for_mastership(9)
        assert two.refused_stream() == (StatusCode.INVALID_ARGUMENT, "New election id already exists")
        one.write_updates([])


def test_streams_by_the_hundred_leave_room_for_others() -> None:
    """Clients open streams on many connections and say nothing: all but a bounded number are refused, and a client that asks
    something is still answered; afterwards everything is free again."""
    # Channels to one address share a connection unless told not to, and a connection has a limit of its own.
    apart = [("grpc.use_local_subchannel_pool", 1)]
    with EmbeddedSwitch(device_id=1) as switch, ExitStack() as stack:
        *silent, asker = [stack.enter_context(grpc.insecure_channel(switch.grpc_address, apart)) for _ in range(5)]
        for channel in silent:
            grpc.channel_ready_future(channel).result(timeout=PATIENCE)
        silence = threading.Event()
        stack.callback(silence.set)
        streams = [P4RuntimeStub(channel).StreamChannel(iter(silence.wait, True)) for channel in silent for _ in range(50)]
        refused: queue.SimpleQueue[StatusCode] = queue.SimpleQueue()
        for stream in streams:
            stream.add_done_callback(lambda ended: refused.put(ended.code()))
        codes = {refused.get(timeout=PATIENCE) for _ in range(len(streams) - MAX_STREAMS)}
        assert codes == {StatusCode.RESOURCE_EXHAUSTED}
        assert sum(stream.is_active() for stream in streams) == MAX_STREAMS
        assert P4RuntimeStub(asker).Capabilities(p4rt.CapabilitiesRequest(), timeout=PATIENCE).p4runtime_api_version
        silence.set()
