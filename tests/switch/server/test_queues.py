# SPDX-License-Identifier: MIT
"""Egress queues of a running switch: a link that is slower than the switch, rates, and packets that start over for ever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from google.rpc import code_pb2
from netsum_switch.cli import parse
from netsum_switch.ports.udp import UdpPort
from netsum_switch.queues import QueueOptions
from netsum_switch.runtime import EmbeddedSwitch

from tests.switch.core.switches import load
from tests.switch.core.test_queues import RECIRCULATE, Seen, request, seen
from tests.switch.harness import launch
from tests.switch.harness.api import DEVICE_ID, SwitchUnderTest
from tests.switch.harness.bmv2 import ProcessUnderTest
from tests.switch.harness.controller import INSERT, MODIFY, Controller, Program
from tests.switch.server.test_packet_loop import LOOPBACK, address, running, wire
from tests.switch.server.test_reconciliation import RECONCILE
from tests.switch.server.test_replication import session
from tests.threads import repeatedly

DEEPEST = 63  # packets before the last one of a queue of 64


@pytest.fixture
def slow_switch(kind: str) -> Iterator[ProcessUnderTest]:
    """A switch of its own, with a link of 2 Mbit/s at port 2 and no option of queues, as p4lang's tutorials start it."""
    switch = ProcessUnderTest(kind)
    try:
        switch.namespace.run("tc", "qdisc", "add", "dev", "s2", "root", "handle", "5:0", "htb", "default", "1")
        limit = ("rate", "2Mbit", "burst", "15k")
        switch.namespace.run("tc", "class", "add", "dev", "s2", "parent", "5:0", "classid", "5:1", "htb", *limit)
        with Controller(switch.grpc_address).become_primary() as controller:
            controller.push(Program("queues"))
            yield switch
    finally:
        switch.close()


@pytest.mark.root
@pytest.mark.parametrize("kind", launch.KINDS, indirect=True)
def test_packets_wait_for_a_link_that_is_slower(slow_switch: ProcessUnderTest) -> None:
    frame = request(target=2) + bytes(1400)
    slow_switch.send(1, frame)
    found = [_seen(slow_switch, 2)]
    assert (found[0].depth_before, found[0].depth_after) == (0, 0)
    with repeatedly(lambda: slow_switch.send(1, frame)):
        while found[-1].depth_before < DEEPEST or found[-1].waited < DEEPEST * 5000:  # microseconds; a packet takes 5.6 ms
            found.append(_seen(slow_switch, 2))
    assert max(each.depth_before for each in found) == DEEPEST
    assert max(each.depth_after for each in found) <= DEEPEST + 1


@pytest.mark.root
@pytest.mark.parametrize("kind", ["embedded"], indirect=True)  # simple_switch_grpc has one thread for all ports, which waits
def test_a_slow_link_holds_up_no_other(slow_switch: ProcessUnderTest) -> None:
    with repeatedly(lambda: slow_switch.send(1, request(target=2) + bytes(1400))):
        while _seen(slow_switch, 2).depth_before < DEEPEST:
            pass
        for number in range(10):
            slow_switch.send(4, request(target=3, number=number))
            found = _seen(slow_switch, 3)
            assert (found.number, found.depth_before, found.waited) == (number, 0, 0)


def test_a_rate_holds_packets_back() -> None:
    with ExitStack() as undo:
        peer = wire(undo)
        ports = [UdpPort(number, LOOPBACK, address(peer)) for number in (1, 2)]
        running(undo, load("queues"), *ports, queues=QueueOptions(rates={2: 100}))
        for number in range(5):
            peer.sendto(request(target=2, number=number), ports[0].address)
        found = [seen(2, peer.recv(2000)) for _ in range(5)]
    assert [each.number for each in found] == list(range(5))
    assert all(each.enqueued + each.waited >= found[0].enqueued + 10_000 * number for number, each in enumerate(found))
    assert found[-1].waited > 0


@pytest.mark.root
def test_options_of_the_command_line() -> None:
    options = ("--port-rate", "2=200", "--queue-depth", "2=5")
    switch = ProcessUnderTest("embedded", more=options)
    try:
        with Controller(switch.grpc_address).become_primary() as controller:
            controller.push(Program("queues"))
            with repeatedly(lambda: switch.send(1, request(target=2))):
                while _seen(switch, 2).depth_before < 4:
                    pass
            switch.send(1, request(target=3, number=1))
            assert _seen(switch, 3).waited == 0
    finally:
        switch.close()


def test_a_class_of_service_is_a_priority_queue() -> None:
    with (
        EmbeddedSwitch(device_id=DEVICE_ID, queues=QueueOptions(priorities=4)) as switch,
        Controller(switch.grpc_address).become_primary() as controller,
    ):
        controller.push(Program("contract"))
        entity = session(5, (3, 7), class_of_service=3)
        controller.write(INSERT, entity)
        assert controller.read(session(5)) == [entity]
        code, message = controller.refused(MODIFY, session(5, (3, 7), class_of_service=4))
        assert (code, message) == (code_pb2.INVALID_ARGUMENT, "class_of_service 4: clones have 4, one for each priority queue")
        controller.push(Program("contract"), RECONCILE)
        assert controller.read(session(5)) == [entity]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--port-rate=2=-1", "a rate of -1 packets per second"),
        ("--port-rate=nan", "a rate of nan packets per second"),
        ("--port-rate=x", "'x' is neither a number nor PORT=NUMBER"),
        ("--queue-depth=2=a", "'2=a' is neither a number nor PORT=NUMBER"),
        ("--queue-depth=a=2", "'a' is not a number"),
        ("--port-rate=512=2", "port 512: ports are numbered 0 to 511"),
    ],
)
def test_wrong_options(option: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(["--no-p4", option])
    assert message in capsys.readouterr().err


def test_packets_that_start_over_for_ever_let_others_pass() -> None:
    with ExitStack() as undo:
        peer = wire(undo)
        ports = [UdpPort(number, LOOPBACK, address(peer)) for number in (1, 2)]
        running(undo, load("queues"), *ports)
        for _ in range(100):
            peer.sendto(request(RECIRCULATE, target=2, passes=1 << 31), ports[0].address)
        for number in range(50):
            peer.sendto(request(target=2, number=number), ports[1].address)
            assert seen(2, peer.recv(2000)).number == number


def _seen(switch: SwitchUnderTest, port: int) -> Seen:
    data = switch.recv(port)
    assert data is not None, "no frame came"
    return seen(port, data)
