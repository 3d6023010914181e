# SPDX-License-Identifier: MIT
"""Untrusted senders, each kind by name: a packet that lacks something changes no state, is counted once under the right reason,
and is answered with no more bytes than it had.

Every packet here starts from the one contribution that would finish an open block: had any of them passed, the block
would be done. (What the lengths and fields of a packet may be is in ``tests/protocol/test_malformed.py``.)
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import pytest
from netsum import Communicator, Descriptor
from netsum.frames import PREFIX_BYTES, FrameFormat
from netsum.wire.codec import Header, pack_header
from netsum.wire.schema import HEADER_BYTES, VERSION, BlockState, Outcome
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topology import Host
from netsum_controller.p4runtime.client import SwitchClient
from netsum_controller.p4runtime.p4info import netsum_program
from netsum_switch.ports import Port
from netsum_testbed.fabric import Fabric

from tests.full.calls import on_all, results
from tests.full.conftest import Members
from tests.full.wires import open_wire
from tests.system.fuzz.expect import checksum_of, udp_checksum_of
from tests.threads import PATIENCE

MARKER_TYPE = b"\x88\xb5"
GRADIENTS = (np.arange(64) * 1001).astype(">u4")
MEMBERS, OUTSIDER = (0, 1, 2), 3
"""Places among the fabric's hosts."""

_names = count(1)


@dataclass
class Aim:
    """A job of three members, as untrusted senders know it who have heard everything."""

    fabric: Fabric
    name: str
    old: Sequence[Descriptor]  # of an earlier epoch
    now: Sequence[Descriptor]

    def contribution(self, rank: int, offset: int, **changes: int) -> bytes:
        """A member's contribution of one chunk to the epoch's block number ``offset``."""
        at = self.now[rank]
        header = Header(at.job_id, (at.first_block_id + offset) & 0xFFFFFFFF, src_id=at.src_id, gen_id=7, lane_cnt=64, data_cnt=1)
        body = pack_header(header._replace(**changes)) + GRADIENTS.tobytes()
        return FrameFormat.of(at).prefix(len(body)) + body


def received(wire: Port, last: bytes) -> list[bytes]:
    """The frames that arrive on a wire before this one."""
    came: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    while last not in came:
        select.select([wire.fileno()], [], [], 0.1)
        came += wire.receive()
        assert time.monotonic() < deadline, "the switch is silent"
    return came


@dataclass
class Site(Aim):
    """The same, with the wires of its members, for whom the test speaks by hand, and of a fourth host."""

    wires: Sequence[Port]
    client: SwitchClient
    markers: Iterator[int] = field(default_factory=lambda: count(1))

    def exchange(self, place: int, *frames: bytes) -> list[bytes]:
        """Send frames on a host's wire; what comes back on it. A marker to the host itself, sent behind them, tells when the
        switch has processed them."""
        wire, mac = self.wires[place], bytes.fromhex(self.host(place).mac.replace(":", ""))
        marker = mac + mac + MARKER_TYPE + next(self.markers).to_bytes(46, "big")
        for each in (*frames, marker):
            wire.send(each)
        return [each for each in received(wire, marker) if each[12:14] != MARKER_TYPE]

    def host(self, place: int) -> Host:
        """The address of a place's host."""
        return list(self.fabric.topology.hosts.values())[place]

    def outcomes(self, job_id: int) -> dict[Outcome, int]:
        """The job's counters that are not 0."""
        counts = self.client.read_outcomes(job_id)
        return {Outcome[name.upper()]: packets for name, packets in counts.items() if packets}

    def records(self) -> dict[int, bytes]:
        """Every slot's record of the job."""
        job = self.fabric.controller.job(self.name)
        slots = range(job.slot_base, job.slot_base + job.slots)
        return {slot: record.raw for slot, record in self.client.query_records(slots).items()}

    def state(self, offset: int) -> BlockState:
        """A block's state; EMPTY also if its slot holds a record of another epoch, of this job or an earlier one."""
        job = self.fabric.controller.job(self.name)
        slot = job.slot_base + ((self.now[0].first_block_id + offset) & (job.slots - 1))
        record = self.client.query_records([slot])[slot]
        return record.state if record.epoch == self.now[0].epoch else BlockState.EMPTY


@contextmanager
def made_site(fabric: Fabric) -> Iterator[Site]:
    """Block 0 is done, block 1 waits for member 2 alone, block 2 is not begun."""
    hosts = list(fabric.topology.hosts)
    name = f"untrusted-{next(_names)}"
    fabric.create_job(JobSpec(name=name, members=tuple(hosts[place] for place in MEMBERS), window=4, chunks=1))
    join_all = fabric.controller.membership.join_all
    old, now = join_all(name), join_all(name)
    switch_name, switch = next(iter(fabric.topology.switches.items()))
    wires = [open_wire(fabric, hosts[place]) for place in (*MEMBERS, OUTSIDER)]
    try:
        with SwitchClient(switch_name, switch, netsum_program()) as client:
            site = Site(fabric, name, old, now, wires, client)
            for rank in MEMBERS:
                site.exchange(rank, site.contribution(rank, 0))
            for rank in (0, 1):
                site.exchange(rank, site.contribution(rank, 1))
            assert [site.state(offset) for offset in range(3)] == [
                BlockState.DONE, BlockState.OPEN, BlockState.EMPTY,
            ]  # fmt: skip
            yield site
    finally:
        for wire in wires:
            wire.close()
        fabric.controller.delete_job(name)


@pytest.fixture
def site(fabric: Fabric) -> Iterator[Site]:
    with made_site(fabric) as site:
        yield site


class BadPacket(NamedTuple):
    """``make`` gives the frame; ``outcome`` is what it must be counted as, None: not at all."""

    name: str
    outcome: Outcome | None
    make: Callable[[Aim], bytes]
    place: int = 2
    of_job: Callable[[Aim], int] = lambda aim: aim.now[0].job_id


def changed(frame: bytes, at: int, value: int, size: int = 1) -> bytes:
    """The frame with another number somewhere, and a correct IPv4 checksum."""
    frame = frame[:at] + value.to_bytes(size, "big") + frame[at + size :]
    checksum = checksum_of(frame[14:24] + frame[26:34])
    return frame[:24] + checksum.to_bytes(2, "big") + frame[26:]


def good(aim: Aim, **changes: int) -> bytes:
    """The contribution that block 1 waits for, with changes."""
    return aim.contribution(2, 1, **changes)


def no_job(aim: Aim) -> int:
    """An id that no job has."""
    return max(set(range(1, 256)) - {job.job_id for job in aim.fabric.controller.jobs()})


def wrong_sum(aim: Aim) -> bytes:
    """A UDP checksum that is off by one bit."""
    frame = good(aim)
    return changed(frame, 40, udp_checksum_of(frame) ^ 1, 2)


def changed_under_sum(aim: Aim) -> bytes:
    """A right UDP checksum, and afterwards another gradient."""
    frame = good(aim)
    return changed(frame, 40, udp_checksum_of(frame), 2)[:-1] + b"\0"


def packet_out(aim: Aim, kind: int) -> bytes:
    """A PacketOut of the controller's, sent by a host."""
    return bytes((kind,)) + bytes(6) + good(aim, worker_cnt=1, data_cnt=0, lane_cnt=0)[: PREFIX_BYTES + HEADER_BYTES]


BAD_PACKETS = [
    BadPacket("a member's packet on an untrusted sender's port", Outcome.NOT_MEMBER, good, OUTSIDER),
    BadPacket("a member's packet on another member's port", Outcome.NOT_MEMBER, good, 0),
    BadPacket("unknown source", Outcome.NOT_MEMBER, lambda s: good(s, src_id=200)),
    BadPacket("source of another member", Outcome.NOT_MEMBER, lambda s: good(s, src_id=s.now[0].src_id)),
    BadPacket("unknown job", Outcome.UNKNOWN_JOB, lambda s: good(s, job_id=no_job(s)), of_job=no_job),
    BadPacket("UDP port of an earlier epoch", Outcome.WRONG_PORT, lambda s: changed(good(s), 34, s.old[2].host.udp_port, 2)),
    BadPacket("UDP port of another member", Outcome.WRONG_PORT, lambda s: changed(good(s), 34, s.now[0].host.udp_port, 2)),
    BadPacket("UDP port 12000", Outcome.WRONG_PORT, lambda s: changed(good(s), 34, 12000, 2)),
    BadPacket("UDP length beyond the packet", Outcome.MALFORMED, lambda s: changed(good(s), 38, 24 + 512, 2)),
    BadPacket("IPv4 length beyond the packet", Outcome.MALFORMED, lambda s: changed(good(s), 16, 1500, 2)),
    BadPacket("cut short", Outcome.MALFORMED, lambda s: good(s)[:-1]),
    BadPacket("more lanes than bytes", Outcome.MALFORMED, lambda s: good(s, lane_cnt=128)),
    BadPacket("version of tomorrow", Outcome.MALFORMED, lambda s: good(s, version=VERSION + 1)),
    BadPacket("workers of others", Outcome.MALFORMED, lambda s: good(s, worker_cnt=3)),
    BadPacket("fewer workers than it stands for", Outcome.MALFORMED, lambda s: good(s, worker_cnt=0, data_cnt=0, lane_cnt=0)),
    BadPacket("a result, sent to the switch", Outcome.MALFORMED, lambda s: good(s, age_op=1, worker_cnt=3, data_cnt=3)),
    BadPacket("IPv4 checksum", Outcome.CHECKSUM, lambda s: good(s)[:24] + b"\x12\x34" + good(s)[26:]),
    BadPacket("UDP checksum", Outcome.CHECKSUM, wrong_sum),
    BadPacket("payload changed under its UDP checksum", Outcome.CHECKSUM, changed_under_sum),
    BadPacket("another call", Outcome.FINGERPRINT_MISMATCH, lambda s: good(s, gen_id=8)),
    BadPacket("another operation", Outcome.FINGERPRINT_MISMATCH, lambda s: good(s, op=2)),
    BadPacket("an operation that the switch has not", Outcome.UNSUPPORTED, lambda s: good(s, op=9)),
    BadPacket("a block far ahead", Outcome.OUT_OF_WINDOW, lambda s: s.contribution(2, 1 + 8 * 100)),
    BadPacket("a block long gone", Outcome.STALE, lambda s: s.contribution(2, -8 * 100)),
    BadPacket("repeated, and the block is open", Outcome.DUPLICATE, lambda s: s.contribution(1, 1), 1),
    BadPacket("repeated, and the block is done", Outcome.REPLAYED, lambda s: s.contribution(2, 0)),
    BadPacket("with IPv4 options", None, lambda s: changed(good(s)[:34] + b"\1\1\1\0" + good(s)[34:], 14, 0x46)),
    BadPacket("a fragment", None, lambda s: changed(good(s), 20, 0x2000, 2)),
    BadPacket("another UDP port of the switch", None, lambda s: changed(good(s), 36, 12001, 2)),
    BadPacket("behind a VLAN tag", None, lambda s: good(s)[:12] + b"\x81\0\0\7" + good(s)[12:]),
    BadPacket("a query from a host", None, lambda s: packet_out(s, 0), OUTSIDER),
    BadPacket("a scan from a host", None, lambda s: packet_out(s, 1), OUTSIDER),
]


TOLD = {Outcome.REPLAYED, Outcome.STALE, *(each for each in Outcome if 8 <= each < 16)}
"""Outcomes that the sender hears of."""


def let_in(site: Site, packet: BadPacket) -> list[bytes]:
    """Send it and return what came back; fail if it had any effect but to be counted."""
    job_id = packet.of_job(site)
    before, records = site.outcomes(job_id), site.records()
    frame = packet.make(site)
    site.exchange(packet.place)  # what others' packets left on the wire
    came = site.exchange(packet.place, frame)
    after = site.outcomes(job_id)
    counted = {outcome: after[outcome] - before.get(outcome, 0) for outcome in after}
    wanted = {} if packet.outcome is None else {packet.outcome: 1}
    assert {outcome: packets for outcome, packets in counted.items() if packets} == wanted
    assert site.records() == records
    answers = [each for each in came if each != frame]
    assert sum(len(each) for each in answers) <= len(frame)
    return answers


@pytest.mark.parametrize("packet", BAD_PACKETS, ids=[packet.name for packet in BAD_PACKETS])
def test_a_bad_packet_is_counted_and_nothing_else(site: Site, packet: BadPacket) -> None:
    answers = let_in(site, packet)
    assert len(answers) == (packet.outcome in TOLD)


def test_the_block_that_all_of_them_wanted_is_finished_by_its_member(fabric: Fabric) -> None:
    with made_site(fabric) as site:
        for packet in BAD_PACKETS:
            let_in(site, packet)
        site.exchange(2)  # what was flooded meanwhile
        [result] = site.exchange(2, good(site))
        assert site.state(1) == BlockState.DONE
        assert np.frombuffer(result[PREFIX_BYTES + HEADER_BYTES :], ">u4").tolist() == (3 * GRADIENTS).tolist()


def arp(frame: bytes, operation: int) -> bytes:
    """To the receiver of a frame: that its sender's address is at another MAC."""
    other = b"\x02\0\0\0\0\x99"
    head = b"\x08\x06\0\1\x08\0\6\4" + operation.to_bytes(2, "big")
    return frame[:6] + other + head + other + frame[26:30] + frame[:6] + frame[30:34]


FORGERIES = {
    "whole": lambda frame: frame,
    "first fragment": lambda frame: changed(frame, 20, 0x2000, 2),
    "last fragment": lambda frame: changed(frame, 20, 0x0003, 2),
    "with options": lambda frame: changed(frame[:34] + b"\1\1\1\0" + frame[34:], 14, 0x46),
    "cut short": lambda frame: frame[:34],
    "behind a VLAN tag": lambda frame: frame[:12] + b"\x81\0\0\0" + frame[12:],
    "behind two VLAN tags": lambda frame: frame[:12] + b"\x88\xa8\0\0\x81\0\0\0" + frame[12:],
    "ARP request": lambda frame: arp(frame, 1),
    "ARP reply": lambda frame: arp(frame, 2),
}


@pytest.mark.parametrize("sender", ["switch", "member"])
@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_altered_bytes_reach_no_rank(site: Site, forge: Callable[[bytes], bytes], sender: str) -> None:
    """A frame from the switch's or another member's address to the member that waits for block 1; behind it one from the
    sender's own."""
    at, other = site.now[0], site.now[1].host
    ours = (at.host.mac, at.host.ip, at.host.udp_port)
    header = Header(at.job_id, at.first_block_id + 1 & 0xFFFFFFFF, worker_cnt=3, gen_id=7, lane_cnt=64, data_cnt=3)
    body = pack_header(header) + GRADIENTS.tobytes()
    claims = {"switch": (at.switch.mac, at.switch.ip, at.switch.port), "member": (other.mac, other.ip, other.udp_port)}
    forged = FrameFormat(claims[sender], ours).prefix(len(body)) + body
    honest = FrameFormat((at.switch.mac, site.host(OUTSIDER).ip, at.switch.port), ours).prefix(len(body)) + body
    port, wire = site.host(OUTSIDER).port, site.wires[OUTSIDER]
    before = site.client.read_ports([port])[port].dropped
    site.exchange(0)
    for frame in (forge(forged), honest):
        wire.send(frame)
    assert received(site.wires[0], honest) == [honest]
    assert site.state(1) == BlockState.OPEN
    assert site.client.read_ports([port])[port].dropped == before + 1


def test_training_goes_on_under_a_flood_of_bad_packets(fabric: Fabric, members: Members) -> None:
    """Every kind, again and again, aimed at a live job by a host that is not one of its members'."""
    wire = open_wire(fabric, list(fabric.topology.hosts)[OUTSIDER])
    calls = 30

    def make(comm: Communicator) -> list[Any]:
        sums = []
        for call in range(calls):
            if comm.rank == 0:
                for frame in frames:
                    wire.send(frame)
            sums.append(comm.allreduce(np.full(3000, call * 10 + comm.rank, np.int32), timeout=PATIENCE))
        return sums

    try:
        with members(3) as communicators:
            job = max(fabric.controller.jobs(), key=lambda job: job.epoch.number)
            now = [fabric.controller.descriptor(job.name, rank) for rank in MEMBERS]
            frames = [packet.make(Aim(fabric, job.name, now, now)) for packet in BAD_PACKETS]
            for sums in results(on_all(communicators, make)):
                assert [set(each.tolist()) for each in sums] == [{30 * call + 3} for call in range(calls)]
            counts = fabric.controller.stats(job.name).outcomes
            assert counts["not_member"] >= calls
    finally:
        wire.close()
