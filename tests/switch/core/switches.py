# SPDX-License-Identifier: MIT
"""The two switches behind one neutral API: the core in this process, and simple_switch_grpc, the reference.

A test writes entries and groups by name and says which frames come out when one goes in; it passes on both.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from netsum_p4runtime import p4runtime_pb2 as p4rt
from netsum_switch.pipeline import Pipeline, load_pipeline
from netsum_switch.table import Exact, Lpm, Match, Range, Ternary

from tests.switch.harness.api import PORTS, SILENCE, SwitchUnderTest
from tests.switch.harness.controller import DELETE, INSERT, PROGRAMS, Controller, Program

Frames = list[tuple[int, bytes]]
Form = Callable[[bytes], bytes]
"""Makes other JSON of a program's."""
Replicas = Sequence[tuple[int, int]]


def load(name: str) -> Pipeline:
    """The core with a program of `PROGRAMS`."""
    return load_pipeline((PROGRAMS / f"{name}.json").read_bytes())


def ethernet(ether_type: int = 0x0800, dst: int = 0x0202, src: int = 0x0303) -> bytes:
    return dst.to_bytes(6, "big") + src.to_bytes(6, "big") + struct.pack(">H", ether_type)


def call(operation: int, index: int = 0, a: int = 0, b: int = 0, units: str = "") -> bytes:
    """A frame that asks `constructs` for an operation. Units are of two bytes, the first 1, or of three, the first 2."""
    return ethernet() + bytes([operation, index]) + a.to_bytes(4, "big") + b.to_bytes(4, "big") + bytes.fromhex(units)


# Hashes, the slow way.


def ones_complement_sum(data: bytes) -> int:
    """The checksum of RFC 1071, the slow way."""
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data[: len(data) & ~1]))
    total += (data[-1] << 8) if len(data) & 1 else 0
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def crc16(data: bytes) -> int:
    """CRC-16/ARC, bit by bit."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0xA001 if crc & 1 else crc >> 1
    return crc


class Switch(Protocol):
    """A switch that runs the test's program."""

    def insert(self, table: str, match: Sequence[Match], action: str, *params: int, priority: int = 0) -> None:
        """Add an entry; names without the control's."""

    def group(self, number: int, replicas: Replicas) -> None:
        """Define a multicast group: (port, replica id)."""

    def session(self, number: int, replicas: Replicas) -> None:
        """Define a clone session."""

    def run(self, port: int, frame: bytes, ports: Sequence[int] = (1,)) -> Frames:
        """Send a frame in; what comes out, sorted: what is due on `ports` is waited for, more is seen too."""


class Core:
    """The core in this process."""

    def __init__(self, name: str, form: Form = bytes) -> None:
        self.pipeline = load_pipeline(form((PROGRAMS / f"{name}.json").read_bytes()))

    def insert(self, table: str, match: Sequence[Match], action: str, *params: int, priority: int = 0) -> None:
        found = self.pipeline.tables[full_name(self.pipeline.tables, table)]
        found.insert(tuple(match), full_name(found.actions, action), params, priority)

    def group(self, number: int, replicas: Replicas) -> None:
        self.pipeline.pre.set_group(number, replicas)

    def session(self, number: int, replicas: Replicas) -> None:
        self.pipeline.pre.set_clone_session(number, replicas)

    def run(self, port: int, frame: bytes, ports: Sequence[int] = (1,)) -> Frames:  # noqa: ARG002 - all is there
        return sorted(self.pipeline.process(port, frame))


class Reference:
    """simple_switch_grpc, through P4Runtime."""

    def __init__(self, switch: SwitchUnderTest, controller: Controller, name: str, form: Form = bytes) -> None:
        self._switch = switch
        self._controller = controller
        self._program = Program(name)
        self._program.json = form(self._program.json)
        self._made: list[Any] = []
        controller.push(self._program)

    def insert(self, table: str, match: Sequence[Match], action: str, *params: int, priority: int = 0) -> None:
        fields = {number: _message(each) for number, each in enumerate(match, 1) if not _anything(each)}
        data = [_bytes(each) for each in params]
        entry = self._program.entry(table, fields, self._program.action(action, *data), priority=priority)
        self._controller.write(INSERT, entry)

    def group(self, number: int, replicas: Replicas) -> None:
        entity = p4rt.Entity()
        group = entity.packet_replication_engine_entry.multicast_group_entry
        group.multicast_group_id = number
        self._replicate(entity, group, replicas)

    def session(self, number: int, replicas: Replicas) -> None:
        entity = p4rt.Entity()
        session = entity.packet_replication_engine_entry.clone_session_entry
        session.session_id = number
        self._replicate(entity, session, replicas)

    def _replicate(self, entity: Any, entry: Any, replicas: Replicas) -> None:
        for port, rid in replicas:
            entry.replicas.add(egress_port=port, instance=rid)
        self._controller.write(INSERT, entity)
        self._made.append(entity)

    def run(self, port: int, frame: bytes, ports: Sequence[int] = (1,)) -> Frames:
        self._switch.send(port, frame)
        frames: Frames = []
        for each in ports:
            out = self._switch.recv(each)
            assert out is not None, f"no frame came out of port {each}"
            frames.append((each, out))
        for each in PORTS:
            while (more := self._switch.recv(each, 0.02 if ports else SILENCE / len(PORTS))) is not None:
                frames.append((each, more))
        return sorted(frames)

    def clear(self) -> None:
        """Take the groups and sessions away: they outlive the program."""
        if self._made:
            self._controller.write(DELETE, *self._made)


def full_name(names: Any, name: str) -> str:
    """The name that ends in `name`."""
    found: str = next(each for each in names if each == name or each.endswith(f".{name}"))
    return found


def _bytes(value: int) -> bytes:
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def _anything(match: Match) -> bool:
    return isinstance(match, Ternary) and match.mask == 0


def _message(match: Match) -> Any:
    if isinstance(match, Exact):
        return _bytes(match.value)
    if isinstance(match, Lpm):
        return p4rt.FieldMatch.LPM(value=_bytes(match.value), prefix_len=match.prefix_len)
    if isinstance(match, Range):
        return p4rt.FieldMatch.Range(low=_bytes(match.low), high=_bytes(match.high))
    return p4rt.FieldMatch.Ternary(value=_bytes(match.value), mask=_bytes(match.mask))
