# SPDX-License-Identifier: MIT
"""The program on a switch: in this process without gRPC, or on either switch over its wires and P4Runtime."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Protocol

import netsum_p4
from netsum.wire.codec import parse_record
from netsum.wire.schema import CPU_PORT, OUTCOMES_PER_JOB, Outcome, PacketOutKind
from netsum_controller.config.topology import Switch
from netsum_controller.entries import Item, MulticastGroup, TableEntry
from netsum_controller.p4runtime.client import SwitchClient, Update, UpdateKind
from netsum_controller.p4runtime.p4info import CompiledProgram, netsum_program
from netsum_switch.pipeline import load_pipeline
from netsum_switch.table import Exact, Lpm, Match

from tests import threads
from tests.protocol import star
from tests.protocol.frame_model import Sent
from tests.protocol.frames import mac
from tests.switch.harness.api import SwitchUnderTest

OUTCOMES, DROPPED = "NetsumIngress.deliver.outcomes", "NetsumIngress.forward.dropped"
METADATA = struct.Struct(">BHHH")
"""kind, slot, cookie, closed: before a PacketOut's and a PacketIn's payload."""

MARKER_TYPE = b"\x88\xb5"  # "local experimental" (IEEE 802)
IPV6_TYPE = b"\x86\xdd"  # what a kernel sends by itself on a new interface

PATIENCE = threads.PATIENCE
"""Seconds to wait for a frame; the conformance of other switches sets it."""


class Target(Protocol):
    """The compiled program with the star's entries."""

    kind: str

    def exchange(self, port: int, frame: bytes) -> Sent:
        """Put a frame on a port; everything that leaves because of it, in no order."""

    def scan(self, frame: bytes) -> tuple[int, Sent]:
        """Send a scan with this frame: how many blocks it closed, by its PacketIn, and everything that leaves."""

    def records(self, slots: Iterable[int]) -> dict[int, Mapping[str, int]]:
        """Block records by slot, read by PacketOut."""

    def outcomes(self, job_id: int) -> dict[Outcome, int]:
        """The job's outcome counters, those that are not 0."""

    def dropped(self) -> dict[int, int]:
        """Packets by port that were not forwarded, where there are any."""

    def member_packets(self) -> dict[tuple[int, int, int], int]:
        """The member table's direct counters, those that are not 0, by (job, source id, port)."""

    def replace(self, old: Iterable[Item], new: Iterable[Item]) -> None:
        """Take entries away and install others."""

    def reset(self, items: Iterable[Item]) -> None:
        """Load the program again, with other entries: a switch that has restarted."""


class InProcess:
    """The embedded switch's pipeline alone."""

    kind = "pipeline"

    def __init__(self, items: Iterable[Item]) -> None:
        self.reset(items)

    def reset(self, items: Iterable[Item]) -> None:
        self.pipeline = load_pipeline(netsum_p4.json_text())
        self._tables = {name.rsplit(".", 1)[-1]: table for name, table in self.pipeline.tables.items() if "." in name}
        self.replace((), items)

    def replace(self, old: Iterable[Item], new: Iterable[Item]) -> None:
        for item in old:
            if isinstance(item, MulticastGroup):
                self.pipeline.pre.delete_group(item.group_id)
            elif isinstance(item, TableEntry):
                self._tables[item.TABLE].delete(self._match(item))
        for item in new:
            if isinstance(item, MulticastGroup):
                self.pipeline.pre.set_group(item.group_id, sorted(item.replicas))
            elif isinstance(item, TableEntry):
                action = next(name for name in self.pipeline.actions if name.endswith(f".{item.ACTION}"))
                self._tables[item.TABLE].insert(self._match(item), action, tuple(item.params.values()))

    def _match(self, item: TableEntry) -> tuple[Match, ...]:
        return tuple(
            Lpm(item.match[key.name], item.match[item.PREFIX[key.name]])
            if key.name in item.PREFIX
            else Exact(item.match[key.name])
            for key in self._tables[item.TABLE].keys
        )

    def exchange(self, port: int, frame: bytes) -> Sent:
        return self.pipeline.process(port, frame)

    def scan(self, frame: bytes) -> tuple[int, Sent]:
        sent = self.pipeline.process(CPU_PORT, METADATA.pack(PacketOutKind.SCAN, 0, 0x1234, 0) + frame)
        [answer] = [data for port, data in sent if port == CPU_PORT]
        kind, _, cookie, closed = METADATA.unpack(answer)
        assert (kind, cookie) == (PacketOutKind.SCAN, 0x1234)
        return closed, [(port, data) for port, data in sent if port != CPU_PORT]

    def records(self, slots: Iterable[int]) -> dict[int, Mapping[str, int]]:
        found: dict[int, Mapping[str, int]] = {}
        for slot in slots:
            asked = METADATA.pack(PacketOutKind.QUERY, slot, 0x1234, 0)
            [(port, answer)] = self.pipeline.process(CPU_PORT, asked)
            assert port == CPU_PORT
            assert METADATA.unpack_from(answer)[:3] == METADATA.unpack(asked)[:3]
            found[slot] = parse_record(answer[METADATA.size :])
        return found

    def outcomes(self, job_id: int) -> dict[Outcome, int]:
        counter = self.pipeline.counters[OUTCOMES]
        counts = {each: counter.read(job_id * OUTCOMES_PER_JOB + each)[0] for each in Outcome}
        return {each: count for each, count in counts.items() if count}

    def dropped(self) -> dict[int, int]:
        counter = self.pipeline.counters[DROPPED]
        return {port: count for port in star.PORTS if (count := counter.read(port)[0])}

    def member_packets(self) -> dict[tuple[int, int, int], int]:
        counts = {}
        for entry in self._tables["member"].entries():
            job_id, src_id, port = (match.value for match in entry.match if isinstance(match, Exact))
            counts[job_id, src_id, port] = entry.packets
        return {key: count for key, count in counts.items() if count}


def switch_entry(switch: SwitchUnderTest) -> Switch:
    """The switch as a topology has it."""
    return Switch(
        device_id=switch.device_id,
        p4runtime=switch.grpc_address,
        cpu_port=CPU_PORT,
        ip="10.0.0.254",
        mac="02:6e:73:00:00:fe",
    )


class OnSwitch:
    """A running switch. Ports are read until a marker, sent behind the frame, has come out of every one of them:
    a switch keeps the order of frames from one port to another."""

    def __init__(self, switch: SwitchUnderTest, items: Iterable[Item], program: CompiledProgram | None = None) -> None:
        """Load the program, by default this repository's."""
        self.kind = switch.kind
        self._switch = switch
        self._client = SwitchClient("s1", switch_entry(switch), program or netsum_program()).connect()
        self._marker = 0
        try:
            self.reset(items)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the switch for the next test."""
        self._client.close()

    def reset(self, items: Iterable[Item]) -> None:
        self._client.push_pipeline()
        self.replace((), items)
        self._switch.drain()

    def replace(self, old: Iterable[Item], new: Iterable[Item]) -> None:
        updates = [Update(UpdateKind.DELETE, item) for item in old]
        self._client.write([*updates, *(Update(UpdateKind.INSERT, item) for item in new)])

    def exchange(self, port: int, frame: bytes) -> Sent:
        self._switch.send(port, frame)
        return self._until_marked(port)

    def scan(self, frame: bytes) -> tuple[int, Sent]:
        return self._client.scan(frame), self._until_marked(1)

    def _until_marked(self, port: int) -> Sent:
        """Frames that come out of the ports before a marker that goes in at this port."""
        self._marker += 1
        body = mac(star.station(port).mac) + MARKER_TYPE + self._marker.to_bytes(46, "big")
        for to in (0xFFFFFFFFFFFF, star.station(port).mac):
            self._switch.send(port, mac(to) + body)
        sent: Sent = []
        for each in star.PORTS:
            while (came := self._receive(each))[6:] != body:
                if came[12:14] != MARKER_TYPE and not self._is_the_kernels(came):
                    sent.append((each, came))
        return sent

    @staticmethod
    def _is_the_kernels(frame: bytes) -> bool:
        stations = [mac(star.station(port).mac) for port in star.PORTS]
        return frame[12:14] == IPV6_TYPE and frame[6:12] not in stations

    def _receive(self, port: int) -> bytes:
        frame = self._switch.recv(port, PATIENCE)
        assert frame is not None, f"port {port} is silent for {PATIENCE} s: the switch has lost a frame"
        return frame

    def records(self, slots: Iterable[int]) -> dict[int, Mapping[str, int]]:
        return {slot: vars(record) for slot, record in self._client.query_records(slots).items()}

    def outcomes(self, job_id: int) -> dict[Outcome, int]:
        counts = self._client.read_outcomes(job_id)
        return {Outcome[name.upper()]: count for name, count in counts.items() if count}

    def dropped(self) -> dict[int, int]:
        counts = self._client.read_ports(star.PORTS)
        return {port: each.dropped for port, each in counts.items() if each.dropped}

    def member_packets(self) -> dict[tuple[int, int, int], int]:
        counts = self._client.read_member_packets().items()
        return {(entry.job_id, entry.src_id, entry.ingress_port): count for entry, count in counts if count}
