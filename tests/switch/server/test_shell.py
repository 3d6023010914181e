"""p4runtime-shell drives both switches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.switch.harness.api import DEVICE_ID, SwitchUnderTest
from tests.switch.harness.controller import PROGRAMS
from tests.switch.harness.frames import ether_type_of, frame


@pytest.fixture
def shell(p4rt_switch: SwitchUnderTest) -> Iterator[Any]:
    """The shell's module, connected and with the program pushed; it keeps its connection in globals."""
    from p4runtime_sh import shell as module

    config = module.FwdPipeConfig(str(PROGRAMS / "contract.p4info.txtpb"), str(PROGRAMS / "contract.json"))
    module.setup(device_id=DEVICE_ID, grpc_addr=p4rt_switch.grpc_address, election_id=(0, 1), config=config)
    yield module
    module.teardown()


def test_table_entries(shell: Any, p4rt_switch: SwitchUnderTest) -> None:
    entry = shell.TableEntry("IngressImpl.exact_table")(action="IngressImpl.rewrite")
    entry.match["hdr.ethernet.dst"] = "00:00:00:00:00:07"
    entry.action["port"] = "3"
    entry.action["src"] = "02:00:00:00:00:01"
    entry.action["ether_type"] = "0x1234"
    entry.insert()
    found = list(shell.TableEntry("IngressImpl.exact_table").read())
    assert len(found) == 1
    assert found[0].action["ether_type"].value == b"\x12\x34"
    assert p4rt_switch.passed(frame(7), 3) == frame(7, ether_type=0x1234, src=0x020000000001)
    entry.action["ether_type"] = "0x4321"
    entry.modify()
    assert ether_type_of(p4rt_switch.passed(frame(7), 3)) == 0x4321
    entry.delete()
    assert list(shell.TableEntry("IngressImpl.exact_table").read()) == []


def test_errors_are_told(shell: Any) -> None:
    entry = shell.TableEntry("IngressImpl.exact_table")(action="IngressImpl.drop")
    entry.match["hdr.ethernet.dst"] = "1"
    entry.insert()
    from p4runtime_sh.p4runtime import P4RuntimeWriteException

    with pytest.raises(P4RuntimeWriteException, match="ALREADY_EXISTS"):
        entry.insert()


def test_groups_and_counters(shell: Any, p4rt_switch: SwitchUnderTest) -> None:
    group = shell.MulticastGroupEntry(7)
    group.add(2, 1).add(3, 1)
    group.insert()
    try:
        entry = shell.TableEntry("IngressImpl.exact_table")(action="IngressImpl.multicast")
        entry.match["hdr.ethernet.dst"] = "1"
        entry.action["group"] = "7"
        entry.insert()
        p4rt_switch.send(4, frame(1))
        assert p4rt_switch.recv(2) is not None
        assert p4rt_switch.recv(3) is not None
        counter = shell.CounterEntry("IngressImpl.seen")
        counter.index = 4
        assert [each.packet_count for each in counter.read()] == [1]
    finally:
        group.delete()


def test_packet_io(shell: Any, p4rt_switch: SwitchUnderTest) -> None:
    packet = shell.PacketOut(payload=frame(1), egress_port="2", padding="0", tag="0x9999")
    packet.send()
    assert p4rt_switch.recv(2) == frame(1, ether_type=0x9999)
