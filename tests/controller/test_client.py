# SPDX-License-Identifier: MIT
"""The P4Runtime client: arbitration and its quirks, errors that name the update, block records."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from netsum.wire.schema import BlockState
from netsum_controller.config.topology import Switch, Topology
from netsum_controller.controller import Controller
from netsum_controller.entries import ForeignEntry, ForwardEntry
from netsum_controller.errors import InputError, SwitchError, WriteError
from netsum_controller.p4runtime import channel, stream
from netsum_controller.p4runtime.client import SwitchClient, Update, UpdateKind
from netsum_controller.p4runtime.p4info import netsum_program
from netsum_controller.p4runtime.stream import MessageStream

from tests.controller.fake_switch import FakeSwitch, pack_record
from tests.threads import until

A, B, C = ForwardEntry(1, 1), ForwardEntry(2, 2), ForwardEntry(3, 3)


def client_of(topology: Topology) -> SwitchClient:
    return SwitchClient("s1", topology.switches["s1"], netsum_program())


@pytest.mark.parametrize("refusals", [1, 3])
def test_election_id_already_exists(switch: FakeSwitch, topology: Topology, refusals: int) -> None:
    switch.refuse_first_streams = refusals
    with client_of(topology) as client:
        assert client.pipeline_cookie() is None
        client.push_pipeline()
        assert client.pipeline_cookie() == netsum_program().cookie


@pytest.mark.usefixtures("switch")
def test_a_stream_that_is_never_answered_is_opened_again(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch that was stopping when the stream came has lost it, and its connection stays open."""
    opened: list[MessageStream] = []

    class FirstUnanswered(MessageStream):
        def __init__(self, stub: Any, tell: Callable[[Any], None]) -> None:
            opened.append(self)
            super().__init__(stub, tell if len(opened) > 1 else lambda _message: None)

    monkeypatch.setattr(stream, "SILENCE", 0.2)
    monkeypatch.setattr(stream, "MessageStream", FirstUnanswered)
    with client_of(topology) as client:
        client.push_pipeline()
    assert len(opened) > 1


@pytest.mark.usefixtures("switch")
def test_an_interrupt_inside_grpc_keeps_no_client_open(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC has begun a call and not counted it yet. Closing its channel then waits for a call that no thread finishes."""
    monkeypatch.setattr(channel, "_CLOSING", 0.1)
    client = client_of(topology).connect()
    calls: Any = client._channel._call_state  # type: ignore[union-attr]
    whole = calls.channel

    def interrupted(*arguments: Any) -> None:
        whole.integrated_call(*arguments)
        raise KeyboardInterrupt

    calls.channel = SimpleNamespace(integrated_call=interrupted, next_call_event=whole.next_call_event)
    with pytest.raises(KeyboardInterrupt):
        client.push_pipeline()
    client.close()


def test_a_later_client_is_primary(switch: FakeSwitch, topology: Topology) -> None:
    with client_of(topology) as first:
        first.push_pipeline()
        with client_of(topology) as second:
            second.write([Update(UpdateKind.INSERT, A)])
            with pytest.raises(SwitchError, match="Write: another netsum took over as primary, one with another state file"):
                first.write([Update(UpdateKind.INSERT, B)])
        until(lambda: len(switch._streams) == 1, "the switch sees that the second has left")
        first.write([Update(UpdateKind.INSERT, B)])


def test_a_client_with_a_higher_id_is_overtaken(switch: FakeSwitch, topology: Topology) -> None:
    with client_of(topology) as first:
        first.push_pipeline()
        switch._streams[0].election_id = (2, 1 << 63)
        with client_of(topology) as second:
            second.write([Update(UpdateKind.INSERT, A)])


def test_no_server() -> None:
    nowhere = Switch(device_id=1, p4runtime="127.0.0.1:1", ip="10.0.0.254", mac="02:00:00:00:00:01")
    with pytest.raises(SwitchError, match=r"switch s1: no P4Runtime server answers at 127\.0\.0\.1:1"):
        SwitchClient("s1", nowhere, netsum_program()).connect()
    with pytest.raises(InputError, match="gives no p4runtime address"):
        SwitchClient("s1", nowhere.model_copy(update={"p4runtime": None}), netsum_program())


def test_a_failed_batch_names_the_update(switch: FakeSwitch, topology: Topology) -> None:
    with client_of(topology) as client:
        client.push_pipeline()
        client.write([Update(UpdateKind.INSERT, B)])
        with pytest.raises(WriteError) as caught:
            client.write([Update(UpdateKind.INSERT, A), Update(UpdateKind.INSERT, B), Update(UpdateKind.INSERT, C)])
        assert str(caught.value).startswith("switch s1: insert forward eth_dst=2: ALREADY_EXISTS Match entry exists")
        assert list(caught.value.failed) == [1]
        assert set(client.read_items()) == {A, B, C}  # the rest of the batch was carried out
        switch.fail_update = lambda _: "no"
        with pytest.raises(WriteError, match=r"\(and 1 more of 2 updates\)"):
            client.write([Update(UpdateKind.DELETE, A), Update(UpdateKind.DELETE, B)])


def test_before_the_pipeline(topology: Topology) -> None:
    with client_of(topology) as client, pytest.raises(SwitchError, match="`netsum switch push`"):
        client.read_items()


def test_the_switch_goes_away(switch: FakeSwitch, topology: Topology) -> None:
    with client_of(topology) as client:
        client.push_pipeline()
        switch.stop()
        with pytest.raises(SwitchError, match=r"went away during Read|no answer"):
            client.read_items()
        with pytest.raises(SwitchError, match="PacketIn"):
            client.query_records([0], 5.0)


def test_records(switch: FakeSwitch, topology: Topology) -> None:
    with client_of(topology) as client:
        client.push_pipeline()
        switch.records[7] = pack_record(epoch=3, block_id=135, state=1, seen=0b101, worker_cnt=2, status=1)
        switch.lose_packet_ins = 3  # they are asked for again
        records = client.query_records(range(100))
        assert sorted(records) == list(range(100))
        assert (records[7].epoch, records[7].block_id, records[7].seen) == (3, 135, 5)
        assert records[7].state is BlockState.OPEN
        assert records[8].state is BlockState.EMPTY


def test_a_late_answer_to_an_earlier_query_is_dropped(
    switch: FakeSwitch, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netsum_controller.p4runtime.client.QUERY_PATIENCE", 0.01)
    with client_of(topology) as client:
        client.push_pipeline()
        for block in range(5):
            switch.records[7] = pack_record(epoch=3, block_id=block, state=1)
            switch.hold_packet_ins = 1  # so it is sent again, and answered twice
            assert client.query_records([7])[7].block_id == block


def test_records_that_do_not_come(switch: FakeSwitch, topology: Topology) -> None:
    with client_of(topology) as client:
        client.push_pipeline()
        switch.lose_packet_ins = 1 << 30
        with pytest.raises(SwitchError, match="2 block records did not arrive in time"):
            client.query_records([1, 2], timeout=0.2)


@pytest.mark.usefixtures("switch")
def test_records_of_a_slow_switch(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each comes within the timeout of the one before it, all together take four times as long."""
    with client_of(topology) as client:
        client.push_pipeline()
        clock = itertools.count(time.monotonic(), 6.0)
        monkeypatch.setattr("netsum_controller.p4runtime.client.time", SimpleNamespace(monotonic=clock.__next__))
        assert sorted(client.query_records(range(5), timeout=10.0)) == list(range(5))


def test_a_claim_whose_answer_is_late_was_our_own(controller: Controller, switch: FakeSwitch) -> None:
    """The repeated claim finds the numbers taken, by the first."""
    with controller.context.client("s1") as client:
        before = client.claim(0)
        switch.hold_packet_ins = 1
        assert client.claim(before + 40) == before
        assert client.claim(0) == before + 40


def test_an_entry_with_another_action_is_foreign(controller: Controller, switch: FakeSwitch) -> None:
    """An operator has set `flood` for a host by hand: reconcile restores the port."""
    program = controller.context.program
    for row in switch.rows.values():
        if row.table_id == program.object_id("tables", "forward"):
            row.action.action.Clear()
            row.action.action.action_id = program.object_id("actions", "flood")
            break
    with controller.context.client("s1") as client:
        assert [item for item in client.read_items() if isinstance(item, ForeignEntry)]
    (report,) = controller.reconcile()
    assert (report.inserted, report.modified, report.deleted) == (0, 1, 0)
    assert not controller.reconcile()[0].changed


def test_nothing_is_left_running(topology: Topology) -> None:
    before = set(threading.enumerate())
    for _ in range(3):
        with client_of(topology) as client:
            client.push_pipeline()

    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "p4runtime"]
