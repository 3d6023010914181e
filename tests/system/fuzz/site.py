# SPDX-License-Identifier: MIT
"""The site of the fuzzer: five ports, four live jobs and every entry that a controller would install.

Port 0 is an ordinary port here: recirculated packets come in through it, and an untrusted sender's packets there must not pass
for them. Numbers that could be confused differ: ranks are not source ids, a slot range ends at the last slot, ids wrap, and in
one job the switch is a leaf, whose parent is where another job has a member. Members that share a port have keys."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final

from netsum.wire.codec import Header, pack_header
from netsum.wire.schema import CHUNK_BYTES, EVERYONE, SWITCH_SOURCE, UDP_PORT, BlockState, Hop, Lane, Op, Status
from netsum_controller.entries import Item

from tests.model.lanes import combine_chunks
from tests.model.state import ID_MASK, Job, Member, Uplink
from tests.protocol.frames import Datagram, chunk_bytes, chunks_of
from tests.protocol.star import SWITCH_IP, SWITCH_MAC, Station, job_items, port_items

PORTS: Final = (0, 1, 2, 3, 4)
PARENT: Final = Station(0x026E730000FD, 0x0A0000FD)
TRIO, PAIR, LATE, LEAF = 3, 200, 77, 90
JOBS: Final = {
    TRIO: Job(7, 0xFFFFFFFC, 8, 0, (Member(0, 1, 20001, 2), Member(5, 2, 20002, 0), Member(254, 3, 20003, 1)), window=4),
    PAIR: Job(
        8, 64, 8, 8184, (Member(1, 4, 20011, 0, key=0xC0FFEE), Member(2, 4, 20012, 1, key=(1 << 64) - 1)), window=4
    ),
    LATE: Job(
        9, 1 << 20, 8, 64, (Member(0, 1, 20021, 0), Member(1, 2, 20022, 1), Member(2, 0, 20023, 2)), 2000, 2, window=4
    ),
    LEAF: Job(
        10, 1 << 24, 8, 128, (Member(0, 1, 20031, 0), Member(1, 2, 20032, 1)), window=4, uplinks=(Uplink(3, 20033, 0),)
    ),
}  # fmt: skip
PARENTS: Final = {(job_id, SWITCH_SOURCE, up.port) for job_id, job in JOBS.items() for up in job.uplinks}
"""Keys of the entries that let a parent in."""
SLOTS: Final = tuple(job.slot_base + offset for job in JOBS.values() for offset in range(job.slots))
"""Every slot of every job."""


def station(port: int) -> Station:
    """The host on a port."""
    return Station(0x026E73000010 + port, 0x0A000010 + port)


def senders() -> dict[int, tuple[int, ...]]:
    """The ports through which traffic from each address comes in; other addresses may come from anywhere."""
    parents = tuple(port for _, _, port in PARENTS)
    return {**{station(port).ip: (port,) for port in PORTS}, PARENT.ip: parents, SWITCH_IP: ()}


def items() -> list[Item]:
    """Everything to install."""
    result = port_items(PORTS, station, [PARENT.ip], senders())
    for job_id, job in JOBS.items():
        result += job_items(job_id, job, station, lambda _: PARENT)
    return result


def frame(member: Member, header: Header, payload: bytes = b"") -> bytes:
    """A contribution as its member sends it: a whole, correct frame."""
    at, body = station(member.port), pack_header(header._replace(src_id=member.src_id, key=member.key)) + payload
    return Datagram(SWITCH_MAC, at.mac, at.ip, SWITCH_IP, member.udp_port, body=body).to_bytes()


def parent_frame(up: Uplink, header: Header, payload: bytes = b"") -> bytes:
    """Make a frame that a parent sends down."""
    body = pack_header(header._replace(src_id=SWITCH_SOURCE, receiver_id=up.src_id, hop=Hop.DOWN)) + payload
    return Datagram(SWITCH_MAC, PARENT.mac, PARENT.ip, SWITCH_IP, up.udp_port, body=body).to_bytes()


def result_frame(member: Member, header: Header, payload: bytes = b"") -> bytes:
    """Make a frame that the switch sends to a member."""
    at, body = station(member.port), pack_header(header) + payload
    return Datagram(at.mac, SWITCH_MAC, SWITCH_IP, at.ip, UDP_PORT, member.udp_port, body).to_bytes()


# The jobs' blocks in progress, which the fuzzer must not change: open, done, partial, of every operation.


@dataclass(frozen=True)
class FuzzBlock:
    """One block: ``chunks[i]`` is the size of member i's payload (0: an empty contribution), ``statuses[i]`` its status;
    ``sent`` are the members whose contribution has come, ``aged`` whether it was closed without the others; members that
    ``passed`` have added nothing."""

    job_id: int
    offset: int
    op: Op = Op.SUM
    lane: Lane = Lane.L32
    chunks: tuple[int, ...] = ()
    statuses: tuple[Status, ...] = ()
    sent: tuple[int, ...] = ()
    dest: int = EVERYONE
    no_aging: int = 0
    aged: bool = False
    passed: tuple[int, ...] = ()

    @property
    def job(self) -> Job:
        """The job that it belongs to."""
        return JOBS[self.job_id]

    @property
    def block_id(self) -> int:
        """Its id in the job's epoch."""
        return (self.job.first_block_id + self.offset) & ID_MASK

    @property
    def state(self) -> BlockState:
        """The record's state after the contributions of ``sent``."""
        whole = len(self.sent) == len(self.job.members)
        return BlockState.DONE if whole or self.aged else BlockState.OPEN

    @property
    def slot(self) -> int:
        """Index of its slot."""
        return self.job.slot_of(self.block_id)

    def payload(self, member: int) -> bytes:
        """Payload of a member: random bytes that are always the same."""
        rng = random.Random(f"{self.job_id} {self.offset} {member}")
        return rng.randbytes(self.chunks[member] * CHUNK_BYTES)

    def contribution(self, member: int) -> bytes:
        """A member's frame. An empty contribution has room for the result."""
        payload, passes = self.payload(member), member in self.passed
        header = self._header(payload)._replace(
            degraded=int(passes), worker_cnt=1 - passes, data_cnt=int(payload != b""),
            status=self.statuses[member] if self.statuses else Status.OK,
        )  # fmt: skip
        return frame(self.job.members[member], header, payload or bytes(max(self.chunks) * CHUNK_BYTES))

    def from_parent(self) -> bytes:
        """The frame in which the parent returns the sum, for a job in which the switch is a leaf."""
        payload, data_cnt = self.result(), sum(chunks > 0 for chunks in self.chunks)
        header = self._header(payload)._replace(worker_cnt=len(self.job.members), data_cnt=data_cnt)
        return parent_frame(self.job.uplinks[0], header, payload)

    def _header(self, payload: bytes) -> Header:
        return Header(
            self.job_id, self.block_id, no_aging=self.no_aging, gen_id=1000 + self.offset, lane_cnt=len(payload) >> self.lane,
            op=self.op, lane=self.lane, dest=self.dest,
        )  # fmt: skip

    def result(self) -> bytes:
        """The payload of the result with all members' contributions; of a closed block, with those that had come."""
        members = self.sent if self.aged else range(len(self.job.members))
        if any(self.statuses[member] for member in members if self.statuses):
            return b""
        payloads = [chunks_of(self.payload(member)) for member in members if self.chunks[member]]
        return chunk_bytes(reduce(partial(combine_chunks, self.op, self.lane), payloads))


_OK, _RANGE, _ABORT = Status.OK, Status.RANGE, Status.ABORT

BLOCKS: Final = (
    FuzzBlock(TRIO, 0, chunks=(1, 1, 1), sent=(0, 1, 2)),  # recycled by block 8
    FuzzBlock(TRIO, 8, chunks=(7, 7, 7), sent=(0, 1, 2)),
    FuzzBlock(TRIO, 1, Op.MAX, Lane.L8, (16, 16, 16), sent=(2, 1, 0), dest=2),
    FuzzBlock(TRIO, 2, chunks=(2, 0, 2), statuses=(_OK, _RANGE, _OK), sent=(0, 1, 2)),
    FuzzBlock(TRIO, 3, Op.SUM, Lane.L64, (3, 3, 3), sent=(0, 1)),
    FuzzBlock(TRIO, 4, Op.COPY, Lane.L8, (4, 0, 0), sent=(0,)),
    FuzzBlock(TRIO, 5, chunks=(0, 1, 1), statuses=(_ABORT, _OK, _OK), sent=(0,)),
    FuzzBlock(TRIO, 6, Op.MAX, Lane.L16, (2, 0, 2), sent=(1,)),
    FuzzBlock(PAIR, 0, Op.COPY, Lane.L8, (0, 1), sent=(0, 1)),
    FuzzBlock(PAIR, 1, chunks=(16, 16), sent=(1,)),
    FuzzBlock(PAIR, 2, Op.XOR, Lane.L8, (2, 2), sent=(1, 0)),
    FuzzBlock(PAIR, 3, Op.AND, Lane.L64, (5, 5), sent=(0,)),
    FuzzBlock(PAIR, 4, Op.OR, Lane.L16, (1, 1), sent=(1, 0)),
    FuzzBlock(LEAF, 0, chunks=(2, 2), sent=(0,)),
    FuzzBlock(LEAF, 2, Op.COPY, Lane.L8, (0, 1), sent=(1,), dest=0),
    FuzzBlock(LEAF, 3, Op.MAX, Lane.L16, (1, 0), sent=(1,)),
    FuzzBlock(LATE, 1, chunks=(1, 1, 1), sent=(0, 1), no_aging=1),  # older than block 0, but firm
    FuzzBlock(LATE, 2, chunks=(2, 2, 2), sent=(2,)),  # below the quorum
    FuzzBlock(LATE, 3, Op.MIN, Lane.L64, (1, 1, 1), sent=(0, 1, 2)),
    FuzzBlock(LATE, 4, chunks=(2, 2, 0), sent=(1, 2), passed=(2,)),  # one pass does not count
    FuzzBlock(LATE, 0, chunks=(2, 2, 2), sent=(0, 1), aged=True),  # from here on member 2 is a straggler
)  # fmt: skip
"""In the order in which they are made; all other slots of the jobs are empty."""

LIVE: Final = BLOCKS[1:]
"""Blocks that hold their slot."""

STRAGGLERS: Final = {LATE: (JOBS[LATE].members[2],)}
"""By job, the members without which a block was closed: the job no longer waits for them until it hears from them."""
