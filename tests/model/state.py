# SPDX-License-Identifier: MIT
"""State of the model's switch: packets in and out, jobs, block records and the progress of a job whose blocks age out.

Fields are those of ``netsum.wire.schema``; there is no clock: what is old enough is for the caller to say.
"""

from __future__ import annotations

from typing import NamedTuple

from netsum.wire.codec import Header
from netsum.wire.schema import EVERYONE, SWITCH_SOURCE, BlockState

Payload = tuple[int, ...]
"""The chunks of a payload, each a 2048-bit int; () of a header-only packet. An empty contribution (lane_cnt 0) may be
padded with chunks that mean nothing, to make room for the result."""

ID_MASK = 0xFFFFFFFF


class Packet(NamedTuple):
    """A contribution as it comes in. ``port`` is the switch port, ``udp_port`` the sender's UDP port, which stands for its whole
    address; ``congested``: a link has marked it."""

    port: int
    udp_port: int
    header: Header
    payload: Payload = ()
    congested: int = 0


class Reply(NamedTuple):
    """A packet that leaves. ``replica`` is the receiver's source id; None: unicast back to the sender. ``congested``: it is
    marked."""

    port: int
    replica: int | None
    udp_port: int
    header: Header
    payload: Payload = ()
    congested: int = 0


class Member(NamedTuple):
    """One source of a job, a host or a child switch: where it is, its bit, the workers behind it and its UDP port in this
    epoch. With a ``key`` it is known by that, and its results go to the latest address from which the key came. One that has
    ``joined`` the job's IP multicast group gets those that say the same to all from there."""

    src_id: int
    port: int
    udp_port: int
    rank: int  # of a switch: nothing
    workers: int = 1
    switch: bool = False
    key: int = 0
    joined: bool = False

    @property
    def source(self) -> int:
        return 1 << self.src_id

    def is_dest(self, dest: int) -> bool:
        """True if a block's payload is for a rank of this host."""
        return dest == EVERYONE or 0 <= dest - self.rank < self.workers


class Uplink(NamedTuple):
    """Destination of a leaf's partials of one stripe: the port, the UDP port of that edge in this epoch, and what the leaf's
    source id is at the parent."""

    port: int
    udp_port: int
    src_id: int


class Group(NamedTuple):
    """A job's IP multicast group: the UDP port that stands for its address, and its key in this epoch."""

    udp_port: int
    key: int


class Job(NamedTuple):
    """Items that the controller installs for a job: entries of ``job``, ``member`` and ``rewrite`` and a multicast group."""

    epoch: int
    first_block_id: int
    slots: int
    slot_base: int
    members: tuple[Member, ...]
    block_exp: int = 0  # microseconds; 0: blocks wait for ever
    quorum: int = 0
    window: int = 0
    uplinks: tuple[Uplink, ...] = ()  # by stripe, a power of two; () at a root
    group: Group | None = None

    @property
    def all_sources(self) -> int:
        return sum(member.source for member in self.members)

    def uplink_of(self, block_id: int) -> Uplink:
        return self.uplinks[block_id & (len(self.uplinks) - 1)]

    def parent_at(self, src_id: int, port: int) -> Uplink | None:
        found = (uplink for uplink in self.uplinks if (SWITCH_SOURCE, uplink.port) == (src_id, port))
        return next(found, None)

    def slot_of(self, block_id: int) -> int:
        return self.slot_base + (block_id & (self.slots - 1))

    def member_at(self, src_id: int, port: int) -> Member | None:
        found = (member for member in self.members if (member.src_id, member.port) == (src_id, port))
        return next(found, None)


class Record(NamedTuple):
    """A block record, fields as in ``wire.schema.RECORD_FIELDS``, and ``buffer``: the payload in the registers."""

    epoch: int = 0
    block_id: int = 0
    state: BlockState = BlockState.EMPTY
    seen: int = 0
    worker_cnt: int = 0
    data_cnt: int = 0
    status: int = 0
    fingerprinted: int = 0
    call_fingerprint: int = 0
    gen_id: int = 0
    dest: int = 0
    op: int = 0
    lane: int = 0
    lane_cnt: int = 0
    degraded: int = 0
    no_aging: int = 0
    congested: int = 0
    buffer: Payload = ()

    @property
    def chunks(self) -> int:
        return len(self.buffer) if self.lane_cnt else 0

    @property
    def fingerprint(self) -> tuple[int, int, int, int, int]:
        return self.call_fingerprint, self.gen_id, self.dest, self.op, self.lane

    def fingerprinted_by(self, h: Header, *, fingerprinted: int = 1) -> Record:
        """The record with the fingerprint of a packet."""
        return self._replace(
            call_fingerprint=h.call_fingerprint,
            gen_id=h.gen_id,
            dest=h.dest,
            op=h.op,
            lane=h.lane,
            fingerprinted=fingerprinted,
        )


class Progress(NamedTuple):
    """Progress of a job that the switch keeps while its blocks age out, as ``wire.schema.PROGRESS_FIELDS``."""

    stragglers: int = 0
    epoch: int = 0
    newest_block: int = 0
