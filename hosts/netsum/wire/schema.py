# SPDX-License-Identifier: MIT
"""The wire format, defined once, as data.

Everything that reads or writes a netsum packet is made from this file: the numpy codec (:mod:`netsum.wire.codec`),
the scapy layer (:mod:`netsum.packets`), the P4 header file (``p4src/types.p4``, by :mod:`netsum.wire.to_p4`)
and the Wireshark dissector (:mod:`netsum.wire.to_lua`).

Ethernet / IPv4 / UDP / Trio-ML header (12 bytes) / netsum extension (28 bytes) / gradients; all fields big-endian.
The Trio-ML header has the names, widths and meanings of "Using Trio" (SIGCOMM 2022, figure 8); the extension is ours, and has
what those fields are too narrow for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

VERSION: Final = 2
"""Version of the extension; a packet of another version is malformed."""

UDP_PORT: Final = 12000
"""UDP destination port of a contribution, source port of a result."""

CHUNK_BYTES: Final = 256
"""A payload is a whole number of chunks: one chunk is one 2048-bit field in the P4 program."""

MAX_CHUNKS: Final = 16
"""Largest payload, in chunks: 4096 bytes."""

EVERYONE: Final = 0xFFFF
"""``dest`` of a block whose result every member gets."""

SWITCH_SOURCE: Final = 255
"""``src_id`` of a result or an answer, which a switch sends; source ids are 0..254."""

CALL_BITS: Final = 56
"""Bits of the fingerprint of a call."""

MAX_WORKERS: Final = 0xFFFF
"""Members a job can have: ranks are 0..65534."""


@dataclass(frozen=True)
class Field:
    """One field of a header, in wire order. ``bits`` is its width, ``doc`` its meaning in one line."""

    name: str
    bits: int
    doc: str


def positions(fields: Sequence[Field]) -> Iterator[tuple[Field, int]]:
    """Each field and its lowest bit, the fields together being one big-endian number."""
    low = sum(field.bits for field in fields)
    for field in fields:
        low -= field.bits
        yield field, low


def byte_groups(fields: Sequence[Field]) -> Iterator[tuple[int, int, list[tuple[Field, int]]]]:
    """Fields grouped into whole bytes: (offset, bytes, [(field, its lowest bit in the group)])."""
    offset, group = 0, []
    for field in fields:
        group.append(field)
        width = sum(member.bits for member in group)
        if width % 8 == 0:
            yield offset, width // 8, list(positions(group))
            offset, group = offset + width // 8, []
    if group:
        raise ValueError(f"fields do not end on a byte: {[field.name for field in group]}")


TRIO_FIELDS: Final = (
    Field("job_id", 8, "the aggregation job"),
    Field("block_id", 32, "serial number of the block within the job; wraps"),
    Field("age_op", 4, "of a result: whether the block aged out, see AgeOp"),
    Field("final", 1, "last block of the generation (informative)"),
    Field("degraded", 1, "partial: fewer workers than the job has; on a contribution: than the source has"),
    Field("reserved_flags", 2, "zero"),
    Field("src_id", 8, "the sender's source id at this switch; 255: a switch, of a result or an answer"),
    Field("src_cnt", 8, "worker_cnt, as far as it goes; not read"),
    Field("gen_id", 16, "generation: the collective call that the block belongs to"),
    Field("reserved_cnt", 4, "zero"),
    Field("grad_cnt", 12, "lane_cnt, as far as it goes; not read"),
)

EXTENSION_FIELDS: Final = (
    Field("version", 4, "version of this extension"),
    Field("op", 4, "how contributions combine"),
    Field("lane", 4, "log2 of the bytes in a lane"),
    Field("status", 4, "outcome, see Status"),
    Field("no_aging", 1, "the block waits for every source: it never ages out"),
    Field("backoff", 1, "on a result: a job of a higher priority is busy at the switch; else zero"),
    Field("query", 1, "of a child switch's contribution: it adds nothing, it asks whether the parent has a result"),
    Field("early", 1, "from a switch: a COPY's payload, ahead of the result"),
    Field("hop", 2, "between whom the packet travels, see Hop"),
    Field("reserved", 2, "zero"),
    Field("reason", 8, "of a REFUSED answer, see Outcome; else zero"),
    Field("dest", 16, "rank that gets the result; 65535: every member"),
    Field("worker_cnt", 16, "workers that have contributed, with or without payload"),
    Field("data_cnt", 16, "how many of the worker_cnt contributions carried a payload"),
    Field("lane_cnt", 16, "number of gradients (lanes) in the payload"),
    Field("call_fingerprint", CALL_BITS, "of what the call is; 0: its first block says that"),
    Field("receiver_id", 8, "from a switch: the receiver's source id there"),
    Field("key", 64, "by which a member proves itself; zero: not used"),
)

SATURATED: Final = {"src_cnt": "worker_cnt", "grad_cnt": "lane_cnt"}
"""Fields of the Trio-ML header, and those of the extension that they repeat: a larger number becomes their largest."""

HEADER_FIELDS: Final = TRIO_FIELDS + EXTENSION_FIELDS
HEADER_BYTES: Final = sum(field.bits for field in HEADER_FIELDS) // 8


class Op(IntEnum):
    """The operations that combine the payloads of a block: one row an operation, from which the P4 macros, the options
    of the host library, the algorithms without a switch, the dissector and the table in PROTOCOL.md are made.

    Contributions combine in any order and in any grouping, so an operation must be commutative and associative, and a lane
    must be all that it remembers. An empty contribution is not combined: it stands for the identity.
    """

    p4: str
    """The new value of the slot's chunk, of ``ours`` (the packet's) and ``held`` (the slot's); ``wins`` is all ones in the lanes
    where ours >= held. Both are 2048 bits wide: what carries from lane to lane is up to the expression."""
    ufuncs: str
    """The same in numpy, on arrays of unsigned lanes: a function of two arrays, then functions of its result."""
    identity: int
    """The identity's lanes: 0, or -1 for all ones."""
    values: str
    """The representation of values in lanes: ``biased`` (fixed point), in their ``order``, or as their own ``bits``."""
    types: str
    """Types of values, as words for people and for netsum.collectives.options."""

    # fmt: off
    #      no.  P4                                      numpy          id.  values    types
    SUM  = (0, "ours + held",                           "add",          0, "biased", "floats integers")
    MIN  = (1, "(held & wins) | (ours & ~wins)",        "minimum",     -1, "order",  "floats integers bool")
    MAX  = (2, "(ours & wins) | (held & ~wins)",        "maximum",      0, "order",  "floats integers bool")
    AND  = (3, "ours & held",                           "bitwise_and", -1, "bits",   "integers bool")
    OR   = (4, "ours | held",                           "bitwise_or",   0, "bits",   "integers bool")
    XOR  = (5, "ours ^ held",                           "bitwise_xor",  0, "bits",   "integers bool")
    COPY = 6  # nothing combines: a block has one payload
    # fmt: on

    def __new__(cls, number: int, p4: str = "", ufuncs: str = "", identity: int = 0, values: str = "", types: str = "") -> Self:
        op = int.__new__(cls, number)
        op._value_ = number
        op.p4, op.ufuncs, op.identity, op.values, op.types = p4, ufuncs, identity, values, types
        return op


COMBINING: Final = tuple(op for op in Op if op.p4)
"""The operations; COPY brings a payload from one member to the others."""
COMPARING: Final = frozenset(op for op in COMBINING if "wins" in op.p4)


class Lane(IntEnum):
    """Width of a lane; the value is log2 of its bytes."""

    L8 = 0
    L16 = 1
    L32 = 2
    L64 = 3

    @property
    def bytes(self) -> int:
        return 1 << int(self)

    @property
    def bits(self) -> int:
        return 8 << int(self)


class Status(IntEnum):
    """OK, RANGE, ABORT and MISMATCH may be set by a member in an empty contribution; they stick to the block, and the
    highest number wins. STALE, REFUSED and AGAIN are answers of the switch to one packet."""

    OK = 0
    RANGE = 1  # the member's values do not fit the agreed scale: the block is done again
    ABORT = 2  # the member's caller failed (NaN, exception): every rank raises
    MISMATCH = 3  # the member's call differs from the others' (shape, op, dest): ends the epoch for the communicator
    STALE = 8  # the block has been recycled
    REFUSED = 9  # `reason` says why
    AGAIN = 10  # send that block again, with room for the payload of `lane_cnt` lanes


MEMBER_STATUSES: Final = frozenset({Status.OK, Status.RANGE, Status.ABORT, Status.MISMATCH})
"""The statuses of a contribution, and so the result of a block."""
GIVING_UP: Final = frozenset({Status.ABORT, Status.MISMATCH})
"""The statuses of a member that cannot take part: its contribution need not have the block's fingerprint."""


class Hop(IntEnum):
    """Between whom a packet travels."""

    HOST = 0  # a host and its switch
    UP = 1  # a switch's partial, on its way to the switch's parent
    DOWN = 2  # a result or an answer, from a parent to a child switch


class AgeOp(IntEnum):
    """The ways in which a result's block ended."""

    NORMAL = 0  # every source contributed
    AGED = 1  # partial: a source was late
    LATE = 2  # the same, told to one whose contribution is not in it


class Outcome(IntEnum):
    """The outcome of a packet at the switch: exactly one of these, counted per job at index ``job_id * 32 + outcome``."""

    ACCEPTED = 0  # combined into an open block
    COMPLETED = 1  # combined, and it was the last one missing
    DUPLICATE = 2  # already seen in an unfinished block: not added, not answered
    REPLAYED = 3  # of a finished block: answered with its result
    STALE = 4  # of a recycled block: told so
    AGED = 5  # closed a block that some source was late for
    SCANNED = 6  # a pass of a scan that closed nothing
    UNKNOWN_JOB = 8  # no job of that id on this switch
    NOT_MEMBER = 9  # no such (job, source) on that port
    WRONG_PORT = 10  # UDP source port is not the one of this epoch
    FINGERPRINT_MISMATCH = 11  # op, lane, dest, gen_id, call_fingerprint or lane_cnt disagree with the block
    OUT_OF_WINDOW = 12  # block_id is not one lap ahead of the slot's record
    UNSUPPORTED = 13  # the switch does not run this op
    BAD_KEY = 14  # the key is not the one of the member in this epoch
    MALFORMED = 16  # lengths, version, counts or status make no sense: dropped
    CHECKSUM = 17  # IPv4 or UDP checksum wrong: dropped
    # Only on a switch that has a parent:
    RESENT = 18  # of a block whose partial is on its way: sent up again
    PARENT_RESULT = 19  # the parent's result: stored, and sent to the children
    PARENT_STATUS = 20  # an answer or a notice from the parent: passed on to the children
    IGNORED = 21  # a packet from the parent that no block waits for
    QUERIED_PARENT = 22  # a block that a switch may not close by itself: its parent was asked for the result, or has none yet
    # Only where switches have children or a parent:
    EARLY_PAYLOAD = 23  # a COPY's payload, ahead of its contribution or of its result: stored, and carried on
    PAYLOAD_MISSING = 24  # a child switch's contribution whose payload went ahead and was lost: asked for again


REFUSALS: Final = frozenset(
    {
        Outcome.UNKNOWN_JOB,
        Outcome.NOT_MEMBER,
        Outcome.WRONG_PORT,
        Outcome.FINGERPRINT_MISMATCH,
        Outcome.OUT_OF_WINDOW,
        Outcome.UNSUPPORTED,
        Outcome.BAD_KEY,
    }
)
"""Outcomes that the sender is told, as the reason of a REFUSED answer."""
REJECTIONS: Final = frozenset({*REFUSALS, Outcome.MALFORMED, Outcome.CHECKSUM})
"""Outcomes of packets that count for nothing: those refused, and those dropped without an answer."""
CLOSINGS: Final = frozenset({Outcome.COMPLETED, Outcome.AGED})
"""Outcomes of a packet that closed its block."""
GOING_UP: Final = frozenset({*CLOSINGS, Outcome.RESENT, Outcome.QUERIED_PARENT})
"""Outcomes of a packet that a switch below the root has something to tell its parent about."""

OUTCOMES_PER_JOB: Final = 32
"""Width of one job's row in the outcome counter (a power of two, room for more outcomes)."""


RECORD_FIELDS: Final = (
    Field("start", 48, "ingress timestamp of the block's first packet, microseconds"),
    Field("seen", 256, "sources seen, one bit each"),
    Field("epoch", 32, "epoch of the job that wrote the record"),
    Field("block_id", 32, "the block that the slot holds"),
    Field("call_fingerprint", CALL_BITS, "fingerprint: of what the block's call is"),
    Field("gen_id", 16, "fingerprint: generation of the block"),
    Field("dest", 16, "fingerprint: rank that gets the result"),
    Field("op", 4, "fingerprint: operation"),
    Field("lane", 4, "fingerprint: lane width"),
    Field("lane_cnt", 16, "lanes in the payload; 0: no payload yet"),
    Field("worker_cnt", 16, "workers that have contributed"),
    Field("data_cnt", 16, "contributions with payload"),
    Field("status", 4, "highest status contributed"),
    Field("state", 3, "see BlockState"),
    Field("fingerprinted", 1, "the fingerprint is set (a contribution that was not ABORT has come)"),
    Field("degraded", 1, "the sum is partial"),
    Field("chunks", 5, "payload size in chunks"),
    Field("no_aging", 1, "never ages out"),
    Field("congested", 1, "a contribution came with the mark CE of a congested link (RFC 3168)"),
)
"""The block record, one per slot: what the switch writes into its ``record`` register and what a query brings back."""
FINGERPRINT_FIELDS: Final = ("call_fingerprint", "gen_id", "dest", "op", "lane")
"""Fields of the record that a block's first packet fixes; they stand next to each other."""
RECORD_BITS: Final = sum(field.bits for field in RECORD_FIELDS)


PROGRESS_FIELDS: Final = (
    Field("stragglers", 256, "sources that a block was closed without, and that have not been heard of since"),
    Field("epoch", 32, "epoch of the job that this is about"),
    Field("newest_block", 32, "the newest block that a source has come to"),
)
"""One per job, kept by the switch while the job's blocks age out."""
PROGRESS_BITS: Final = sum(field.bits for field in PROGRESS_FIELDS)


class BlockState(IntEnum):
    """State of a slot. Only leaves of a tree have the last two."""

    EMPTY = 0
    OPEN = 1
    DONE = 2
    SENT = 3  # the partial is on its way to the parent
    DEAD = 4  # the parent has recycled the block


IN_PROGRESS: Final = frozenset({BlockState.OPEN, BlockState.SENT})
"""States in which no other block may have the slot."""


class Role(IntEnum):
    """The next hop of a complete block: a root makes the result, a leaf sends a partial to its parent.

    The switch adds the role to the state of a block that it closes: one addition, and no decision.
    """

    ROOT = BlockState.DONE - BlockState.OPEN
    LEAF = BlockState.SENT - BlockState.OPEN


CPU_PORT: Final = 510
"""The switch port of PacketIn/PacketOut; give it to the switch with ``--cpu-port``."""


class PacketOutKind(IntEnum):
    """The kinds of PacketOut."""

    QUERY = 0  # the record of one slot; the PacketIn brings it as payload
    SCAN = 1  # close what has waited long enough; the PacketIn says how many blocks
    CLAIM = 2  # take all epoch numbers up to one; the PacketIn says up to which they were taken before


QUERY_FIELDS: Final = (
    Field("kind", 8, "see PacketOutKind"),
    Field("slot", 16, "query: index into the record register; scan: the job's slot to begin with; claim: high half"),
    Field("cookie", 16, "returned as it came"),
    Field(
        "closed",
        16,
        "packet_in of a scan: blocks that it closed; of a query: the block's age, 1024 us (65535: or more); claim: low half",
    ),
)
"""Metadata of packet_out and of the packet_in that answers it. A scan's payload is a frame: a header-only
contribution of the job to the switch's address, which says what job and from where results come."""

SCAN_SLOTS: Final = 8
"""Slots that one pass of a scan looks at."""

SCAN_GROUPS: Final = 256
"""Multicast group SCAN_GROUPS + job_id: the job's members and, as replica SCAN_REPLICA, the scan itself."""

SCAN_REPLICA: Final = 1000

IP_MULTICAST_GROUPS: Final = 512
"""Multicast group IP_MULTICAST_GROUPS + job_id: the job's members, but those that joined its IP multicast group are one replica,
SWITCH_SOURCE, at each port."""

BACKOFF_US: Final = 20_000
"""The time after its last contribution for which a job of a higher priority counts as busy, in microseconds."""

SLOTS: Final = 8192
"""Slots of a switch, shared by its jobs."""

FLOOD_GROUP: Final = 4000
"""Multicast group of all ports, for frames to all or to an unknown address. Groups 1..255 are the jobs'; BMv2 has
group ids up to 4095."""
