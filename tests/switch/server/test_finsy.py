# SPDX-License-Identifier: MIT
"""finsy drives both switches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.switch.harness.api import SwitchUnderTest
from tests.switch.harness.finsy_client import Finsy
from tests.switch.harness.frames import ether_type_of, frame

pytestmark = [pytest.mark.finsy, pytest.mark.full]

FORWARD = 'fy.P4TableEntry("exact_table", match=fy.Match(**{"hdr.ethernet.dst": 1}), action=fy.Action("forward", port=2))'


@pytest.fixture
def finsy(p4rt_switch: SwitchUnderTest) -> Iterator[Finsy]:
    with closing(Finsy(p4rt_switch.grpc_address)) as made:
        yield made
        made.run("await sw.delete_all()")


def test_connects_as_primary_and_reads_the_pipeline(finsy: Finsy) -> None:
    assert finsy.run("return [sw.is_up, sw.is_primary]") == [True, True]
    assert "exact_table" in finsy.run("return [table.alias for table in sw.p4info.tables]")


def test_table_entries(finsy: Finsy, p4rt_switch: SwitchUnderTest) -> None:
    read = 'return [entry.action.args["port"] async for entry in sw.read(fy.P4TableEntry("exact_table"))]'
    assert finsy.run(f"await sw.write([+{FORWARD}])") is None
    assert p4rt_switch.passed(frame(1), 2) == frame(1)
    assert finsy.run(read) == [2]
    assert "ALREADY_EXISTS" in finsy.run(f"await sw.write([+{FORWARD}])")["error"]
    assert finsy.run(f"await sw.write([~{FORWARD.replace('port=2', 'port=3')}])") is None
    assert p4rt_switch.passed(frame(1), 3) == frame(1)
    assert finsy.run(read) == [3]
    assert finsy.run(f"await sw.delete([{FORWARD}])") is None
    assert finsy.run(read) == []
    assert "NOT_FOUND" in finsy.run(f"await sw.write([-{FORWARD}])")["error"]


def test_every_kind_of_match(finsy: Finsy, p4rt_switch: SwitchUnderTest) -> None:
    finsy.run(
        f"""
        mark = lambda ether_type: fy.Action("mark", ether_type=ether_type)
        match = lambda name, value: fy.Match(**{{f"hdr.ethernet.{{name}}": value}})
        kind = "ether_type"
        await sw.write([
            +{FORWARD},
            +fy.P4TableEntry("lpm_table", match=match("dst", "00:00:00:00:00:00/40"), action=mark(0x1111)),
            +fy.P4TableEntry("ternary_table", match=match(kind, "0x1100/&0xff00"), action=mark(0x2222), priority=1),
            +fy.P4TableEntry("range_table", match=match(kind, "0x2000...0x2fff"), action=mark(0x3333), priority=1),
            +fy.P4TableEntry("optional_table", match=match(kind, 0x3333), action=mark(0x4444), priority=1),
        ])
        """
    )
    assert ether_type_of(p4rt_switch.passed(frame(1), 2)) == 0x4444


def test_counters(finsy: Finsy, p4rt_switch: SwitchUnderTest) -> None:
    finsy.run(f"await sw.write([+{FORWARD}])")
    for _ in range(3):
        assert p4rt_switch.passed(frame(1), 2) == frame(1)
    seen = 'return [[each.packet_count, each.byte_count] async for each in sw.read(fy.P4CounterEntry("seen", index=1))]'
    assert finsy.run(seen) == [[3, 3 * 64]]
    direct = "return [each.packet_count async for each in sw.read(fy.P4DirectCounterEntry('forwarded'))]"
    assert finsy.run(direct) == [3]
    finsy.run('await sw.write([~fy.P4CounterEntry("seen", index=1, data=fy.P4CounterData(packet_count=9, byte_count=9))])')
    assert finsy.run(seen) == [[9, 9]]


def test_packet_io(finsy: Finsy, p4rt_switch: SwitchUnderTest) -> None:
    finsy.run(
        """
        action = fy.Action("to_controller", reason=0xBEEF)
        await sw.write([+fy.P4TableEntry("exact_table", match=fy.Match(**{"hdr.ethernet.dst": 3}), action=action)])
        state["packet"] = asyncio.ensure_future(anext(sw.read_packets()))
        await asyncio.sleep(0)  # it listens now
        """
    )
    p4rt_switch.send(4, frame(3))
    packet = finsy.run('packet = await state["packet"]; return [packet.payload.hex(), packet["ingress_port"], packet["reason"]]')
    assert packet == [frame(3).hex(), 4, 0xBEEF]
    out = f'fy.P4PacketOut(bytes.fromhex("{frame(7).hex()}"), egress_port=2, padding=0, tag=0x1234)'
    assert finsy.run(f"await sw.write([{out}])") is None
    assert p4rt_switch.recv(2) == frame(7, ether_type=0x1234)


def test_digests(finsy: Finsy, p4rt_switch: SwitchUnderTest) -> None:
    finsy.run(
        """
        action = fy.Action("learn_and_forward", port=2)
        await sw.write([
            +fy.P4TableEntry("exact_table", match=fy.Match(**{"hdr.ethernet.dst": 5}), action=action),
            +fy.P4DigestEntry("learn_t", max_list_size=1),
        ])
        state["digest"] = asyncio.ensure_future(anext(sw.read_digests("learn_t")))
        await asyncio.sleep(0)
        """
    )
    assert p4rt_switch.passed(frame(5, src=0x77), 2) == frame(5, src=0x77)
    found = finsy.run(
        """
        digest = await state["digest"]
        await sw.write([fy.P4DigestListAck(digest.digest_id, list_id=digest.list_id)])
        return [digest.digest_id, [list(each.values()) for each in digest]]
        """
    )
    assert found == ["learn_t", [[0x77, 1]]]


def test_multicast_groups_and_clone_sessions(finsy: Finsy, p4rt_switch: SwitchUnderTest) -> None:
    finsy.run(
        """
        to = lambda number, action: fy.P4TableEntry("exact_table", match=fy.Match(**{"hdr.ethernet.dst": number}), action=action)
        await sw.write([
            +fy.P4MulticastGroupEntry(7, replicas=[2, 3]),
            +fy.P4CloneSessionEntry(5, replicas=[4]),
            +to(1, fy.Action("multicast", group=7)),
            +to(2, fy.Action("clone_to", port=2)),
        ])
        """
    )
    p4rt_switch.send(1, frame(1))
    assert p4rt_switch.recv(2) is not None
    assert p4rt_switch.recv(3) is not None
    assert p4rt_switch.passed(frame(2), 2) == frame(2)
    assert p4rt_switch.recv(4) is not None
    groups = "return [each.multicast_group_id async for each in sw.read(fy.P4MulticastGroupEntry())]"
    assert finsy.run(groups) == [7]
