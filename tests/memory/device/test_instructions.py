# SPDX-License-Identifier: MIT
"""Each instruction's effect, and the refusals, by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.wire.codec import without_zeros
from netsum.wire.memory import ADDRESS_STEP, Flag, Instruction, LaneType, MemoryStatus, pack_position, position_seed
from netsum_memory.message import parse, reply

from tests.memory.device.desk import BASE, CLIENT, F32, I32, I64, KEYS, Desk, assignments, region

READ, WRITE, ADD, COPY = Instruction.READ, Instruction.WRITE, Instruction.ADD, Instruction.COPY
LANES = [lane for lane in LaneType if lane != LaneType.BYTES]
OPERATIONS = {Instruction.ADD: np.add, Instruction.MIN: np.minimum, Instruction.MAX: np.maximum}


def test_memory_is_zero_and_then_what_was_written() -> None:
    desk = Desk()
    assert not desk.read(BASE + 8, 64).any()
    desk.write(BASE + 8, np.arange(16, dtype="<i4"))
    assert desk.read(BASE, 80, "<i4").tolist() == [0, 0, *range(16), 0, 0]


@given(st.data())
@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("instruction", OPERATIONS)
def test_arithmetic_is_numpys(instruction: Instruction, lane: LaneType, data: st.DataObject) -> None:
    lanes = data.draw(st.integers(1, 64))
    raw = data.draw(st.binary(min_size=2 * lanes * lane.bytes, max_size=2 * lanes * lane.bytes))
    held, given_ = np.frombuffer(raw, lane.dtype).reshape(2, lanes)
    desk = Desk()
    desk.write(BASE, held)
    assert desk.ask(instruction, BASE, given_, lane=lane).status == MemoryStatus.OK
    with np.errstate(all="ignore"):
        wanted = OPERATIONS[instruction](held, given_)
    assert desk.read(BASE, held.nbytes).tobytes() == wanted.tobytes()


def test_integers_wrap() -> None:
    desk = Desk()
    desk.write(BASE, np.array([2**31 - 1], "<i4"))
    desk.ask(ADD, BASE, np.array([1], "<i4"), lane=I32)
    assert desk.read(BASE, 4, "<i4").tolist() == [-(2**31)]


@pytest.mark.parametrize(("lane", "dtype"), [(I32, "<i4"), (I64, "<i8"), (F32, "<f4")])
def test_fetch_add_brings_what_was_there(lane: int, dtype: str) -> None:
    desk = Desk()
    one = np.array([1], dtype)
    before = [desk.ask(Instruction.FETCH_ADD, BASE + 16, one, lane=lane).payload for _ in range(3)]
    assert [np.frombuffer(each, dtype)[0] for each in before] == [0, 1, 2]


def test_compare_swap_swaps_only_what_is_expected() -> None:
    desk = Desk()

    def swap(expected: int, wanted: int, **more: Any) -> tuple[MemoryStatus, int]:
        got = desk.ask(Instruction.COMPARE_SWAP, BASE, np.array([expected, wanted], "<i8"), **more)
        return got.status, int(np.frombuffer(got.payload, "<i8")[0])

    assert swap(0, 5, lane=I64) == (MemoryStatus.OK, 0)
    assert swap(0, 6, lane=I64) == (MemoryStatus.MISMATCH, 5)
    assert swap(5, 6) == (MemoryStatus.OK, 5)  # as bytes
    assert desk.read(BASE, 8, "<i8")[0] == 6


@pytest.mark.parametrize("source", [BASE + 64, BASE + 8192, BASE + 16384])
def test_copy_takes_its_source_from_any_shard(source: int) -> None:
    desk = Desk()
    desk.write(source, np.arange(8, dtype="<i8"))
    assert desk.ask(COPY, BASE + 4096, length=64, argument=source).status == MemoryStatus.OK
    assert desk.read(BASE + 4096, 64, "<i8").tolist() == list(range(8))


def test_nop_is_answered() -> None:
    got = Desk().ask(Instruction.NOP)
    assert (got.status, got.payload) == (MemoryStatus.OK, b"")


def test_a_reply_repeats_what_the_request_said() -> None:
    desk = Desk()
    got = desk.ask(READ, BASE + 8192, length=16, lane=F32)
    head = got.header
    assert (head.instruction, head.lane, head.address, head.client) == (READ, F32, BASE + 8192, desk.client)
    assert (head.region, head.shard, head.epoch, head.replica, head.length) == (7, 1, 1, 0, 16)
    assert head.key == pack_position(0, position_seed(KEYS.device, 7, 1))


def test_a_payload_may_come_without_its_zeros() -> None:
    desk = Desk()
    values = np.zeros(2048, "<f4")
    values[[3, 77]] = 1.5, -2
    packet = desk.packet(ADD, BASE, values, lane=F32, flags=int(Flag.COMPRESSED))
    thin = without_zeros(packet.payload)
    assert thin is not None
    desk.send(packet._replace(payload=thin))
    assert desk.read(BASE, 8192, "<f4").tolist() == values.tolist()


REFUSED: dict[str, tuple[MemoryStatus, dict[str, Any]]] = {
    "no such instruction": (MemoryStatus.UNSUPPORTED, {"instruction": 77}),
    "of another kind": (MemoryStatus.UNSUPPORTED, {"instruction": Instruction.PUSH}),
    "no key": (MemoryStatus.FORBIDDEN, {"instruction": READ, "length": 4, "key": 0}),
    "a reader writes": (MemoryStatus.FORBIDDEN, {"instruction": WRITE, "payload": b"1234", "key": KEYS.read}),
    "crosses": (MemoryStatus.CROSSES, {"instruction": READ, "address": BASE + ADDRESS_STEP - 4, "length": 8}),
    "copy's source crosses": (MemoryStatus.CROSSES, {"instruction": COPY, "length": 8, "argument": BASE + 8188}),
    "copy's source is elsewhere": (MemoryStatus.BOUNDS, {"instruction": COPY, "length": 8, "argument": 8}),
    "beyond the region": (MemoryStatus.BOUNDS, {"instruction": READ, "address": 4, "length": 4, "region": 7}),
    "nowhere": (MemoryStatus.NO_REGION, {"instruction": READ, "address": 4, "length": 4}),
    "no lanes": (MemoryStatus.TYPE, {"instruction": ADD, "payload": b"1234"}),
    "no such lanes": (MemoryStatus.TYPE, {"instruction": ADD, "payload": b"1234", "lane": 9}),
    "half a lane": (MemoryStatus.ALIGNMENT, {"instruction": ADD, "payload": b"123", "lane": I32}),
    "between lanes": (
        MemoryStatus.ALIGNMENT,
        {"instruction": ADD, "payload": b"1234", "lane": I32, "address": BASE + 2},
    ),
    "two lanes at once": (
        MemoryStatus.ALIGNMENT,
        {"instruction": Instruction.FETCH_ADD, "payload": bytes(8), "lane": I32},
    ),
    "swap of 3 bytes": (MemoryStatus.TYPE, {"instruction": Instruction.COMPARE_SWAP, "payload": bytes(6)}),
    "length is not the payload's": (MemoryStatus.MALFORMED, {"instruction": WRITE, "payload": b"1234", "length": 8}),
    "read with payload": (MemoryStatus.MALFORMED, {"instruction": READ, "payload": b"1234"}),
    "too long": (MemoryStatus.MALFORMED, {"instruction": READ, "length": 8200}),
    "another version": (MemoryStatus.MALFORMED, {"instruction": READ, "length": 8, "version": 2}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_refused_by_name_and_counted(case: str) -> None:
    status, fields = REFUSED[case]
    desk = Desk()
    desk.write(BASE, b"before it")
    got = desk.ask(**fields)
    assert (got.status, got.payload) == (status, b"")
    assert sum(desk.device.tally.refused.values()) == 1
    ((_, reason),) = desk.device.tally.refused
    assert reason == status.name.lower()
    assert desk.read(BASE, 9).tobytes() == b"before it"


def test_a_reader_reads() -> None:
    assert Desk().ask(READ, BASE, length=8, key=KEYS.read).status == MemoryStatus.OK


def test_lanes_are_the_regions() -> None:
    desk = Desk(of=region(dtype="float32"))
    assert desk.ask(ADD, BASE, bytes(4), lane=I32).status == MemoryStatus.TYPE
    assert desk.ask(ADD, BASE, bytes(4), lane=F32).status == MemoryStatus.OK


def test_packets_without_header_and_unexpected_replies_are_dropped_and_counted() -> None:
    desk = Desk()
    assert desk.deliver(b"short") == []
    assert desk.device.tally.dropped == {"malformed": 1}
    packet = desk.packet(READ, BASE, length=8)
    assert desk.deliver(reply(packet.header, payload=b"12345678")) == []
    assert desk.device.tally.dropped == {"malformed": 1, "not expected": 1}


def test_a_shard_that_is_elsewhere_is_not_answered_for() -> None:
    desk = Desk()
    desk.device.assign(assignments(desk.region)[:1], 0)
    assert desk.ask(READ, BASE + 8192, length=8).status == MemoryStatus.NOT_PRIMARY


@pytest.mark.parametrize(("place", "status"), [({"region": 7, "epoch": 2}, "OK"), ({"region": 8, "epoch": 1}, "NOT_PRIMARY")])
def test_what_the_switch_knows_first_is_asked_for(place: dict[str, int], status: str) -> None:
    desk = Desk()
    assert desk.ask(READ, BASE, length=8, region=7, epoch=1).status == MemoryStatus.OK
    assert not desk.device.behind
    assert desk.ask(READ, BASE, length=8, **place).status == MemoryStatus[status]
    assert desk.device.behind


def test_lost_memory_says_so() -> None:
    desk = Desk()
    desk.device.assign([replace(each, epoch=2, lost=True) for each in assignments(desk.region)], 0)
    assert desk.ask(READ, BASE, length=8).status == MemoryStatus.LOST


def test_a_chain_adds_passes_on_and_stores_at_its_end() -> None:
    """Without a switch the packet comes back to the same device, at the next segment."""
    desk = Desk()
    stops = [BASE, BASE + 8192, BASE + 16384, BASE + 24576]
    for number, stop in enumerate(stops):
        desk.write(stop, np.full(4, 10**number, "<f4"))
    got = desk.ask(Instruction.SUM_FORWARD, stops[0], np.full(4, 0.5, "<f4"), lane=F32, segments=stops[1:])
    assert got.status == MemoryStatus.OK
    assert [float(desk.read(stop, 16, "<f4")[0]) for stop in stops] == [1, 10, 100, 1111.5]


def test_a_chains_packet_goes_on_without_its_zeros() -> None:
    desk = Desk()
    desk.device.virtual = ("10.9.9.9", 12001)
    desk.write(BASE + 8, np.ones(1, "<f4"))
    desk.send(desk.packet(Instruction.SUM_FORWARD, BASE, np.zeros(2048, "<f4"), lane=F32, segments=[BASE + 8192]))
    _, data = desk.sends[-1]
    assert len(data) < 400
    assert np.flatnonzero(np.frombuffer(parse(data).payload, "<f4")).tolist() == [2]


def test_a_chains_packet_goes_to_the_virtual_address_with_its_clients() -> None:
    desk = Desk()
    desk.device.virtual = ("10.9.9.9", 12001)
    packet = desk.packet(Instruction.SUM_FORWARD, BASE, bytes(8), lane=F32, segments=[BASE + 8192], epoch=1, region=7)
    assert desk.send(packet) == []
    ((to, data),) = desk.sends
    onward = parse(data)
    assert to == ("10.9.9.9", 12001)
    assert (onward.header.epoch, onward.header.region, onward.segments) == (0, 0, ())
    desk.sends.clear()
    assert desk.deliver(data, ("10.0.0.2", 12001)) == []
    assert [to for to, _ in desk.sends] == [CLIENT]


@given(
    st.fixed_dictionaries(
        {
            "address": st.sampled_from([BASE, BASE + 8184, BASE + 8192, BASE + 4, 0]),
            "length": st.sampled_from([0, 4, 8, 8192, 8193]),
            "key": st.sampled_from([KEYS.read, KEYS.write, KEYS.device, 0]),
            "lane": st.sampled_from([0, F32, I64, 9]),
            "epoch": st.sampled_from([0, 1, 2]),
            "region": st.sampled_from([7, 8]),
            "shard": st.integers(0, 1),
            "flags": st.sampled_from([0, int(Flag.REPEAT)]),
            "status": st.integers(0, 1),
            "replica": st.integers(0, 1),
        }
    )
)
def test_ordinary_reads_are_answered_as_all_others(fields: dict[str, int]) -> None:
    both = []
    for ordinary in (True, False):
        desk = Desk()
        desk.write(BASE, bytes(range(256)) * 32)
        if not ordinary:
            setattr(desk.device._reads, "answer", lambda _: None)  # noqa: B010
        both.append((desk.ask(READ, **fields), desk.device.tally.refused, desk.device.tally.instructions))
    assert both[0] == both[1]
