# SPDX-License-Identifier: MIT
"""p4runtime-shell drives both switches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.switch.harness.api import SwitchUnderTest
from tests.switch.harness.frames import ether_type_of, frame
from tests.switch.harness.p4shell import P4Shell

pytestmark = pytest.mark.shell

ENTRY = 'entry = TableEntry("IngressImpl.exact_table")(action="IngressImpl.{}")'
READ = '[e.action["ether_type"].value.hex() for e in TableEntry("IngressImpl.exact_table").read()]'


@pytest.fixture
def shell(p4rt_switch: SwitchUnderTest) -> Iterator[P4Shell]:
    """The shell, connected and with the program pushed."""
    with closing(P4Shell(p4rt_switch.grpc_address)) as made:
        made.run("")  # until it is connected
        yield made


def test_table_entries(shell: P4Shell, p4rt_switch: SwitchUnderTest) -> None:
    shell.run(ENTRY.format("rewrite"))
    shell.run('entry.match["hdr.ethernet.dst"] = "00:00:00:00:00:07"')
    for name, value in {"port": "3", "src": "02:00:00:00:00:01", "ether_type": "0x1234"}.items():
        shell.run(f'entry.action["{name}"] = "{value}"')
    assert shell.run("entry.insert()", READ) == ["1234"]
    assert p4rt_switch.passed(frame(7), 3) == frame(7, ether_type=0x1234, src=0x020000000001)
    assert shell.run('entry.action["ether_type"] = "0x4321"; entry.modify()') is None
    assert ether_type_of(p4rt_switch.passed(frame(7), 3)) == 0x4321
    assert shell.run("entry.delete()", READ) == []


def test_errors_are_told(shell: P4Shell) -> None:
    shell.run(ENTRY.format("drop"))
    assert shell.run('entry.match["hdr.ethernet.dst"] = "1"; entry.insert()') is None
    assert "ALREADY_EXISTS" in shell.run("entry.insert()")["error"]


def test_groups_and_counters(shell: P4Shell, p4rt_switch: SwitchUnderTest) -> None:
    assert shell.run("group = MulticastGroupEntry(7); group.add(2, 1).add(3, 1); group.insert()") is None
    try:
        shell.run(ENTRY.format("multicast"))
        shell.run('entry.match["hdr.ethernet.dst"] = "1"; entry.action["group"] = "7"; entry.insert()')
        p4rt_switch.send(4, frame(1))
        assert p4rt_switch.recv(2) is not None
        assert p4rt_switch.recv(3) is not None
        counts = "[each.packet_count for each in counter.read()]"
        assert shell.run('counter = CounterEntry("IngressImpl.seen"); counter.index = 4', counts) == [1]
    finally:
        shell.run("group.delete()")


def test_packet_io(shell: P4Shell, p4rt_switch: SwitchUnderTest) -> None:
    sent = f'PacketOut(payload=bytes.fromhex("{frame(1).hex()}"), egress_port="2", padding="0", tag="0x9999").send()'
    assert shell.run(sent) is None
    assert p4rt_switch.recv(2) == frame(1, ether_type=0x9999)
