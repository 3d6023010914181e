# SPDX-License-Identifier: MIT
"""PTF's tests of a typical session, which `ptf` runs (tests/switch/server/test_ptf.py): P4Runtime by p4runtime-shell's modules,
frames by PTF's data plane. The program is that of the contract tests."""

from __future__ import annotations

from typing import Any

import p4runtime_sh.shell as sh
import ptf
import pytest
from p4runtime_sh.p4runtime import P4RuntimeWriteException
from ptf import testutils
from ptf.base_tests import BaseTest

PATIENCE = 600  # seconds


def frame(number: int, ether_type: int = 0x9000, source: str = "02:00:00:00:aa:00") -> bytes:
    """An Ethernet frame to an address with this last byte."""
    return bytes(testutils.simple_eth_packet(eth_dst=f"00:00:00:00:00:{number:02x}", eth_src=source, eth_type=ether_type))


def entry(number: int, action: str, **parameters: int) -> Any:
    made = sh.TableEntry("IngressImpl.exact_table")(action=f"IngressImpl.{action}")
    made.match["hdr.ethernet.dst"] = str(number)
    for name, value in parameters.items():
        made.action[name] = str(value)
    return made


class Session(BaseTest):  # type: ignore[misc]
    """Connected as primary, with the program pushed; ends with neither entries nor groups."""

    def setUp(self) -> None:
        self.dataplane = ptf.dataplane_instance
        self.dataplane.flush()
        address, device, p4info, config = (testutils.test_param_get(name) for name in ("address", "device", "p4info", "config"))
        sh.setup(device_id=device, grpc_addr=address, election_id=(0, 1), config=sh.FwdPipeConfig(p4info, config))

    def tearDown(self) -> None:
        for kind in (sh.TableEntry("IngressImpl.exact_table"), sh.MulticastGroupEntry()):
            for each in kind.read():
                each.delete()
        sh.teardown()


class TableEntries(Session):
    def runTest(self) -> None:  # noqa: N802
        testutils.send_packet(self, 1, frame(1))
        testutils.verify_no_other_packets(self)
        made = entry(1, "forward", port=2)
        made.insert()
        testutils.send_packet(self, 1, frame(1))
        testutils.verify_packets(self, frame(1), [2])
        with pytest.raises(P4RuntimeWriteException, match="ALREADY_EXISTS"):
            made.insert()
        made.action["port"] = "3"
        made.modify()
        testutils.send_packet(self, 1, frame(1))
        testutils.verify_packets(self, frame(1), [3])
        assert [int.from_bytes(each.action["port"].value, "big") for each in made.read()] == [3]
        made.delete()
        assert list(made.read()) == []
        testutils.send_packet(self, 1, frame(1))
        testutils.verify_no_other_packets(self)


class Counters(Session):
    def runTest(self) -> None:  # noqa: N802
        entry(1, "forward", port=2).insert()
        for _ in range(3):
            testutils.send_packet(self, 1, frame(1))
            testutils.verify_packets(self, frame(1), [2])
        counter = sh.CounterEntry("IngressImpl.seen")
        counter.index = 1
        size = len(frame(1))
        assert [(each.packet_count, each.byte_count) for each in counter.read()] == [(3, 3 * size)]
        direct = sh.DirectCounterEntry("IngressImpl.forwarded")
        assert [each.packet_count for each in direct.read()] == [3]


class PacketIo(Session):
    def runTest(self) -> None:  # noqa: N802
        entry(3, "to_controller", reason=0xBEEF).insert()
        testutils.send_packet(self, 4, frame(3))
        packet = sh.client.get_stream_packet("packet", timeout=PATIENCE).packet
        assert packet.payload == frame(3)
        assert [each.value for each in packet.metadata] == [b"\x04", b"\x00", b"\xbe\xef"]
        sh.PacketOut(payload=frame(7), egress_port="2", padding="0", tag="0x1234").send()
        testutils.verify_packets(self, frame(7, ether_type=0x1234), [2])


class Digests(Session):
    def runTest(self) -> None:  # noqa: N802
        digest = sh.DigestEntry("learn_t")
        digest.max_list_size = 1
        digest.insert()
        try:
            entry(5, "learn_and_forward", port=2).insert()
            sent = frame(5, source="00:00:00:00:00:77")
            testutils.send_packet(self, 1, sent)
            testutils.verify_packets(self, sent, [2])
            found = sh.client.get_stream_packet("digest", timeout=PATIENCE).digest
            assert [[member.bitstring for member in each.struct.members] for each in found.data] == [[b"\x77", b"\x01"]]
        finally:
            digest.delete()


class Multicast(Session):
    def runTest(self) -> None:  # noqa: N802
        sh.MulticastGroupEntry(7).add(2, 1).add(3, 1).insert()
        entry(1, "multicast", group=7).insert()
        testutils.send_packet(self, 4, frame(1))
        for port in (2, 3):
            assert testutils.dp_poll(self, port_number=port, timeout=PATIENCE).port == port
