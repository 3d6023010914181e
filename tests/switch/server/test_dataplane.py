"""The data-plane thread: changes are atomic to packets, controllers and other ports get through under load, a failure is
one frame's."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from netsum_p4runtime import p4runtime_pb2 as p4rt
from netsum_switch.dataplane import DataPlane, FifoLock
from netsum_switch.pipeline import ENGINE_VARIABLE
from netsum_switch.ports import PortError
from netsum_switch.ports.base import TURN
from netsum_switch.ports.udp import UdpPort
from netsum_switch.runtime import EmbeddedSwitch

from tests.switch.harness.controller import INSERT, MODIFY, PROGRAMS, Controller, Program
from tests.switch.harness.embedded import EmbeddedUnderTest
from tests.switch.harness.frames import ether_type_of, frame, source_of
from tests.threads import PATIENCE, repeatedly, returned


@pytest.fixture
def embedded() -> Iterator[EmbeddedUnderTest]:
    """A switch of its own."""
    switch = EmbeddedUnderTest()
    yield switch
    switch.close()


@pytest.fixture
def controller(embedded: EmbeddedUnderTest, program: Program) -> Iterator[Controller]:
    """Its primary controller, with the program on it."""
    with Controller(embedded.grpc_address).become_primary() as controller:
        controller.push(program)
        yield controller


def test_fair_lock_excludes() -> None:
    lock, inside, most = FifoLock(), 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(2000):
            with lock:
                inside += 1
                most = max(most, inside)
                inside -= 1

    returned([work] * 4)
    assert most == 1


def test_a_batch_of_writes_is_atomic_to_packets(
    embedded: EmbeddedUnderTest, controller: Controller, program: Program
) -> None:
    """Two tables change together a hundred times; no frame sees one without the other."""

    def versions(number: int) -> list[p4rt.Entity]:
        rewrite = program.action("rewrite", b"\x02", bytes([number]), b"\x01")
        mark = program.action("mark", bytes([number]))
        lpm = p4rt.FieldMatch.LPM(value=b"\x01", prefix_len=48)
        return [program.entry("exact_table", {1: b"\x01"}, rewrite), program.entry("lpm_table", {1: lpm}, mark)]

    controller.write(INSERT, *versions(100))
    with repeatedly(lambda: embedded.send(1, frame(1))):
        for number in range(101, 201):
            controller.write(MODIFY, *versions(number))
            data = embedded.recv(2)
            assert source_of(data) == ether_type_of(data)
    while (data := embedded.recv(2, 0.1)) is not None:
        assert source_of(data) == ether_type_of(data)


class Recorder:
    """In place of a pipeline: at which ports frames came in, in order. ``done`` when so many have."""

    def __init__(self, frames: int) -> None:
        self.ports: list[int] = []
        self.done = threading.Event()
        self._frames = frames

    def process(self, port: int, _frame: bytes) -> list[tuple[int, bytes]]:
        self.ports.append(port)
        if len(self.ports) == self._frames:
            self.done.set()
        return []


def test_ports_are_served_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flooded port gets one turn at a time, like every other."""
    waiting = {1: 25 * TURN, 2: 3 * TURN, 3: 2}
    ports = [UdpPort(number, ("127.0.0.1", 0)) for number in waiting]
    dataplane, recorder = DataPlane(ports), Recorder(sum(waiting.values()))
    monkeypatch.setattr(dataplane, "_pipeline", recorder)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for port in ports:
            for _ in range(waiting[port.number]):
                sender.sendto(frame(port.number), port.address)  # loopback delivers in the call that sends
    dataplane.start()
    assert recorder.done.wait(PATIENCE)
    dataplane.stop()
    order = recorder.ports
    assert {number: order.count(number) for number in waiting} == waiting
    assert order[: 3 * TURN].count(3) == 2
    last = len(order) - order[::-1].index(2)
    assert order[:last].count(1) <= 4 * TURN


@pytest.fixture
def on_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that are pushed from now on run as Python, where a test can put in a failure."""
    monkeypatch.setenv(ENGINE_VARIABLE, "python")


@pytest.mark.usefixtures("on_python")
def test_a_frame_that_the_program_fails_on(
    embedded: EmbeddedUnderTest, controller: Controller, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataplane: DataPlane = embedded.switch.device._dataplane
    controller.write(INSERT, program.forwarding())
    pipeline = dataplane.pipeline
    assert pipeline is not None
    process = pipeline.process

    def failing(port: int, data: bytes) -> list[tuple[int, bytes]]:
        if data == frame(3):
            raise ZeroDivisionError("a bug")
        return process(port, data)

    monkeypatch.setattr(pipeline, "process", failing)
    for each in (frame(3), frame(1), frame(3), frame(1)):
        embedded.send(1, each)
    assert embedded.recv(2) == frame(1)
    assert embedded.recv(2) == frame(1)
    assert dataplane.failed_packets == 2


@pytest.mark.usefixtures("on_python")
def test_a_port_that_fails(
    embedded: EmbeddedUnderTest, controller: Controller, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure behind the pipeline also costs only one frame."""
    dataplane: DataPlane = embedded.switch.device._dataplane
    port = dataplane.ports[2]
    controller.write(INSERT, program.forwarding())
    send = port.send

    def failing(data: bytes) -> None:
        if len(data) == 100:
            raise ZeroDivisionError("a bug")
        send(data)

    monkeypatch.setattr(port, "send", failing)
    for size in (100, 64):
        embedded.send(1, frame(1, size=size))
    assert embedded.recv(2) == frame(1, size=64)
    assert dataplane.failed_packets == 1


def test_port_counters(embedded: EmbeddedUnderTest, controller: Controller, program: Program) -> None:
    controller.write(INSERT, program.forwarding())
    for size in (64, 1000):
        assert embedded.passed(frame(1, size=size), 2) is not None
    embedded.switch.stop()  # a frame may be here before it is counted
    one, two = (embedded.switch.device._dataplane.ports[number].counters for number in (1, 2))
    assert (one.rx_packets, one.rx_bytes) == (2, 1064)
    assert (two.tx_packets, two.tx_bytes) == (2, 1064)


def threads_of_switches() -> set[threading.Thread]:
    """The threads that this package starts."""
    names = ("data-plane", "digests", "p4runtime")
    return {thread for thread in threading.enumerate() if thread.name.startswith(names)}


def test_stop_is_clean_and_can_be_repeated() -> None:
    before = threads_of_switches()
    switch = EmbeddedSwitch(["1@udp:127.0.0.1:0"], program=PROGRAMS / "contract.json")
    address = switch.port_address(1)
    switch.stop()
    switch.stop()
    assert threads_of_switches() <= before  # a stream of a test before may have ended meanwhile
    with EmbeddedSwitch([f"1@udp:{address[0]}:{address[1]}"]) as again:  # the address is free again
        assert again.port_address(1) == address


def test_what_fails_at_start_leaves_nothing_open() -> None:
    before = threads_of_switches()
    with pytest.raises(PortError, match="port 1 is given twice"):
        EmbeddedSwitch(["1@udp:127.0.0.1:0", "1@udp:127.0.0.1:0"])
    assert threads_of_switches() <= before  # a stream of a test before may have ended meanwhile


def test_port_address_of_no_port(embedded: EmbeddedUnderTest) -> None:
    with pytest.raises(PortError, match="port 9 is not a UDP port"):
        embedded.switch.port_address(9)
