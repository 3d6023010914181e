# SPDX-License-Identifier: MIT
"""The data-plane thread: changes are atomic to packets, controllers and other ports get through under load, a failure is
one frame's."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from netsum_p4runtime import p4runtime_pb2 as p4rt
from netsum_switch.dataplane import DataPlane, FifoLock
from netsum_switch.ports import PortError
from netsum_switch.runtime import EmbeddedSwitch

from tests.switch.harness.controller import INSERT, MODIFY, PROGRAMS, Controller, Program
from tests.switch.harness.embedded import EmbeddedUnderTest
from tests.switch.harness.frames import ether_type_of, frame, source_of
from tests.threads import repeatedly, returned


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


def test_a_batch_of_writes_is_atomic_to_packets(embedded: EmbeddedUnderTest, controller: Controller, program: Program) -> None:
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


def test_a_packet_out_that_the_program_fails_on(
    embedded: EmbeddedUnderTest, controller: Controller, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataplane: DataPlane = embedded.switch.device._dataplane
    controller.write(INSERT, program.forwarding())
    pipeline = dataplane.pipeline
    assert pipeline is not None
    process = pipeline.process

    def failing(port: int, data: bytes) -> list[tuple[int, bytes]]:
        if dataplane.failed_packets == 0:
            raise ZeroDivisionError("a bug")
        return process(port, data)

    monkeypatch.setattr(pipeline, "process", failing)
    for _ in range(2):
        controller.packet_out(frame(1), {1: b"\x02"})
    assert embedded.recv(2) == frame(1, ether_type=0)
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
