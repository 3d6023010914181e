# SPDX-License-Identifier: MIT
"""Watches what a host sends and gets, and notes which rules of PROTOCOL.md it keeps and which it breaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from netsum.core.blocks import id_distance
from netsum.descriptor import Descriptor
from netsum.wire.codec import Header, parse_header
from netsum.wire.schema import HEADER_BYTES, MEMBER_STATUSES, Lane, Op, Outcome, Status

from tests.hosts.network import chunks
from tests.model.admission import malformed
from tests.model.rules import Packet, Reply


class Contribution(NamedTuple):
    """A packet of the host."""

    header: Header
    body: bytes

    @classmethod
    def parse(cls, data: bytes) -> Contribution:
        """Raises ValueError if it is too short."""
        return cls(parse_header(data), data[HEADER_BYTES:])

    @property
    def payload(self) -> bytes:
        """What counts of the body."""
        return self.body[: self.header.payload_bytes]


def is_opening(header: Header) -> bool:
    """True if a block opens its call: it says what the call is, and its header does not."""
    return header.op == Op.MAX and header.lane == Lane.L16 and header.call_fingerprint == 0


@dataclass
class HostChecks:
    """Rules that the host has kept (``kept``) and broken (``broken``, with a sentence each) in one job. ``right`` has the
    contributions that the host's values make, by serial number, as far as they are known."""

    descriptor: Descriptor
    right: Mapping[int, Contribution]
    kept: set[str] = field(default_factory=set)
    broken: dict[str, str] = field(default_factory=dict)
    sent: dict[int, Contribution] = field(default_factory=dict)
    """The first contribution to each block."""
    held: set[int] = field(default_factory=set)
    """Blocks whose results have gone to the host."""
    requested: set[int] = field(default_factory=set)
    """Blocks that the host was told to send again."""
    refused: bool = False

    def serial(self, header: Header) -> int:
        """The number of the packet's block in this epoch."""
        return id_distance(header.block_id, self.descriptor.first_block_id)

    def fail(self, rule: str, words: str) -> None:
        """Note that the host breaks a rule; the first time counts."""
        self.broken.setdefault(rule, words)

    def note_contribution(self, data: bytes, udp_port: int) -> Contribution | None:
        """Check a packet of the host; None if it cannot be one."""
        own = self.descriptor
        try:
            packet = Contribution.parse(data)
        except ValueError as error:
            self.fail("H2", str(error))
            return None
        header, body = packet
        whole = Packet(1, udp_port, header, chunks(body))
        if len(body) % 256 or malformed(whole) or (header.worker_cnt == 0) != header.degraded or header.worker_cnt > 1:
            self.fail("H2", f"a malformed contribution (S2, S3, S7): {header}, {len(body)} bytes behind it")
            return None
        right = (own.job_id, own.src_id, int(own.key or "0", 16), own.host.udp_port)
        if (header.job_id, header.src_id, header.key, udp_port) != right:
            self.fail(
                "H2", f"job {header.job_id}, source {header.src_id}, key {header.key:x}, UDP port {udp_port}; right is {right}"
            )
        serial = self.serial(header)
        if serial in self.sent:
            self._again(serial, packet)
        else:
            self._first(serial, packet)
        if header.status == Status.ABORT:
            self.kept.add("H18")
            if header.call_fingerprint:
                self.fail("H18", f"ABORT for block {serial} names a call")
        if header.status == Status.MISMATCH:
            self.kept.add("H17")
        return packet

    def _first(self, serial: int, packet: Contribution) -> None:
        own, header = self.descriptor, packet.header
        if serial != len(self.sent):
            self.fail("H2", f"block {serial} is sent before block {len(self.sent)}")
        if self.refused and header.status != Status.MISMATCH:
            self.fail("H17", f"block {serial} is begun after FINGERPRINT_MISMATCH")
        missing = [each for each in range(serial - own.window + 1) if each not in self.held]
        if missing:
            self.fail("H1", f"block {serial} is sent without the result of block {missing[0]}, with a window of {own.window}")
        elif serial >= own.window:
            self.kept.add("H1")
        opened = [each for each, other in self.sent.items() if is_opening(other.header) and self._opens(each)]
        if opened and opened[-1] not in self.held:
            self.fail("H15", f"block {serial} is sent before the result of the opening, block {opened[-1]}")
        self.sent[serial] = packet
        self._compare(serial, packet)

    def _opens(self, serial: int) -> bool:
        before = self.sent.get(serial - 1)
        return before is None or before.header.gen_id != self.sent[serial].header.gen_id

    def _compare(self, serial: int, packet: Contribution) -> None:
        """Check a contribution against the one that the host's values make."""
        right = self.right.get(serial)
        if right is None or Status.OK not in (packet.header.status, right.header.status):
            return
        ours, theirs = (each.header._replace(final=0) for each in (packet, right))
        rule = "H15" if is_opening(theirs) else "H25"
        if ours != theirs:
            names = [name for name in Header._fields if getattr(ours, name) != getattr(theirs, name)]
            shown = ", ".join(f"{name} {getattr(ours, name)} instead of {getattr(theirs, name)}" for name in names)
            self.fail("H2" if ours.status == theirs.status else "H18", f"block {serial} has {shown}")
        elif packet.payload != right.payload:
            size = max(1 << theirs.lane, 1)
            at = next(
                i for i in range(0, len(right.payload), size) if packet.payload[i : i + size] != right.payload[i : i + size]
            )
            lanes = packet.payload[at : at + size].hex(), right.payload[at : at + size].hex()
            self.fail(rule, f"lane {at // size} of block {serial} is {lanes[0]}, and {lanes[1]} is right")
        else:
            self.kept.add(rule)

    def _again(self, serial: int, packet: Contribution) -> None:
        first = self.sent[serial]
        gives_up = packet.header.status == Status.MISMATCH and self.refused and not packet.payload
        if not gives_up:
            if packet.header != first.header or packet.payload != first.payload:
                self.fail("H4", f"block {serial} is sent again with another header or payload")
            self.kept.add("H4")
        if serial in self.requested:
            self.requested.discard(serial)
            if packet.body:
                self.kept.add("H5")
            else:
                self.fail("H5", f"block {serial} is sent again without room")

    def note_reply(self, reply: Reply) -> None:
        """Note what goes to the host."""
        header = reply.header
        serial = self.serial(header)
        if header.job_id != self.descriptor.job_id or serial not in self.sent:
            return
        if header.status == Status.REFUSED and header.reason == Outcome.FINGERPRINT_MISMATCH and serial not in self.held:
            self.refused = True
        notice = header.status == Status.OK and header.data_cnt > 0 and not header.lane_cnt
        if header.status == Status.AGAIN or notice:
            self.requested.add(serial)
        elif header.status in MEMBER_STATUSES:
            self.held.add(serial)
