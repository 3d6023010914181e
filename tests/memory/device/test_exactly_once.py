# SPDX-License-Identifier: MIT
"""An instruction is done once, however often it comes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.wire.memory import CLIENT_WINDOW, Flag, Instruction, MemoryHeader, MemoryStatus
from netsum_memory.copies import FIRST_WAIT, PATIENCE
from netsum_memory.dedup import Absent, DedupWindows, Noted
from netsum_memory.execute import Result
from netsum_memory.message import MemoryMessage, parse, reply

from tests.memory.device.desk import BASE, CLIENT, HERE, I64, THERE, Answer, Desk, assignments

FETCH_ADD, READ, COPY = Instruction.FETCH_ADD, Instruction.READ, Instruction.COPY
ONE = np.array([1], "<i8")


def but_position(answer: Answer) -> MemoryMessage:
    """An answer without what it says of the shard's position, which goes on."""
    return answer._replace(header=answer.header._replace(key=0))


def test_a_repeat_gets_the_first_reply_and_changes_nothing() -> None:
    desk = Desk()
    packet = desk.packet(FETCH_ADD, BASE, ONE, lane=I64)
    (first,) = desk.send(packet)
    desk.ask(FETCH_ADD, BASE, ONE, lane=I64)
    (again,) = desk.send(packet._replace(header=packet.header._replace(flags=int(Flag.REPEAT))))
    assert but_position(again) == but_position(first)
    assert desk.read(BASE, 8, "<i8")[0] == 2


def test_a_mismatch_is_repeated_even_if_it_would_match_now() -> None:
    desk = Desk()
    packet = desk.packet(Instruction.COMPARE_SWAP, BASE, np.array([1, 9], "<i8"), lane=I64)
    assert [each.status for each in desk.send(packet)] == [MemoryStatus.MISMATCH]
    desk.write(BASE, ONE)
    assert [each.status for each in desk.send(packet)] == [MemoryStatus.MISMATCH]


def test_clients_do_not_meet() -> None:
    desk = Desk()
    for client in range(5):
        desk.client, desk.sequence = client, 0
        desk.ask(FETCH_ADD, BASE, ONE, lane=I64)
    assert desk.read(BASE, 8, "<i8")[0] == 5


def test_what_is_older_than_the_window_is_told_so_and_not_done() -> None:
    desk = Desk()
    old = desk.packet(FETCH_ADD, BASE, ONE, lane=I64)
    desk.sequence = old.header.sequence + CLIENT_WINDOW - 1
    desk.ask(FETCH_ADD, BASE, ONE, lane=I64)
    assert [each.status for each in desk.send(old)] == [MemoryStatus.EXPIRED]
    assert desk.read(BASE, 8, "<i8")[0] == 1


def test_a_window_is_whole() -> None:
    """The last CLIENT_WINDOW instructions, in any order, are each done once and answered as before."""
    desk = Desk()
    packets = [desk.packet(FETCH_ADD, BASE, ONE, lane=I64) for _ in range(CLIENT_WINDOW)]
    first = {each.header.sequence: desk.send(each) for each in reversed(packets)}
    for packet in packets:
        assert [*map(but_position, desk.send(packet))] == [*map(but_position, first[packet.header.sequence])]
    assert desk.read(BASE, 8, "<i8")[0] == CLIENT_WINDOW


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 700)), max_size=80))
def test_saved_windows_are_the_same(calls: list[tuple[int, int]]) -> None:
    windows = DedupWindows(most=4)
    for client, sequence in calls:
        header = MemoryHeader(FETCH_ADD, sequence, client=client, sequence=sequence, lane=I64, argument=client)
        if windows.find(client, sequence) is Absent.NEW:
            result = Result(0, bytes(sequence % 9), sequence if sequence % 2 else None, sequence % 7 or None)
            windows.note(header, None if sequence % 5 == 0 else result)
    loaded = DedupWindows.load(windows.save(), most=4)
    assert loaded.save() == windows.save()
    for client in range(6):
        for sequence in range(1, 701, 7):
            assert loaded.find(client, sequence) == windows.find(client, sequence)


def test_the_client_idle_longest_is_forgotten() -> None:
    windows = DedupWindows(most=2)
    for client in (1, 2, 1, 3):
        windows.note(MemoryHeader(FETCH_ADD, client=client, sequence=10), Result())
    assert windows.find(2, 10) is Absent.NEW
    assert isinstance(windows.find(1, 10), Noted)


@pytest.fixture
def copying() -> Desk:
    """A device that asks a switch for the source of a COPY."""
    desk = Desk()
    desk.device.virtual = ("10.9.9.9", 12001)
    return desk


def test_a_copy_asks_for_its_source_until_it_comes_and_is_done_once(copying: Desk) -> None:
    packet = copying.packet(COPY, BASE, length=8, argument=BASE + 8192)
    assert copying.send(packet) == []
    assert copying.send(packet) == []  # the client asks again, the device does not
    ((to, first),) = copying.sends
    assert to == ("10.9.9.9", 12001)
    request = parse(first).header
    assert (request.instruction, request.address, request.length, request.key) == (READ, BASE + 8192, 8, packet.header.key)
    ((_, second),) = copying.device.tend(FIRST_WAIT * 1.01)
    assert parse(second).header == request._replace(flags=int(Flag.REPEAT))
    copying.device.receive([(to, reply(request, MemoryStatus.NOT_PRIMARY))], 0.1)  # it will be asked again
    sends = copying.device.receive([(to, reply(request, payload=b"abcdefgh"))], 0.2)
    assert [(to, parse(data).header.status) for to, data in sends] == [(CLIENT, MemoryStatus.OK)]
    assert copying.device.receive([(to, reply(request, payload=b"ABCDEFGH"))], 0.2) == []
    assert copying.read(BASE, 8).tobytes() == b"abcdefgh"
    assert [each.status for each in copying.send(packet)] == [MemoryStatus.OK]


@pytest.mark.parametrize("status", [MemoryStatus.NO_REGION, MemoryStatus.LOST])
def test_a_copy_whose_source_is_refused_is_refused_and_may_come_again(copying: Desk, status: MemoryStatus) -> None:
    copying.send(copying.packet(COPY, BASE, length=8, argument=BASE + 8192))
    ((to, data),) = copying.sends
    ((_, answer),) = copying.device.receive([(to, reply(parse(data).header, status))], 0)
    assert parse(answer).header.status == status


def test_a_copy_whose_source_is_silent_is_to_come_again(copying: Desk) -> None:
    copying.send(copying.packet(COPY, BASE, length=8, argument=BASE + 8192))
    ((to, data),) = copying.device.tend(PATIENCE)
    assert (to, parse(data).header.status) == (CLIENT, MemoryStatus.BUSY)


def test_a_device_that_is_primary_no_more_copies_nothing(copying: Desk) -> None:
    copying.send(copying.packet(COPY, BASE, length=8, argument=BASE + 8192))
    ((to, data),) = copying.sends
    copying.device.assign(assignments(copying.region, 2, (THERE, HERE)), 0)
    ((_, answer),) = copying.device.receive([(to, reply(parse(data).header, payload=b"abcdefgh"))], 0)
    assert parse(answer).header.status == MemoryStatus.NOT_PRIMARY
