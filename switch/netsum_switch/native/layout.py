# SPDX-License-Identifier: MIT
"""The layout of memory: a packet's state, and the context that all packets share.

Integers are little-endian in 8, 16, 32 or 64 bits, or in as many 64-bit limbs as they need; bits above an integer's width are 0.

A state begins with numbers of the packet (`Head`), then come the variables that egress sets, which are put back before every
copy, then the others, the wide ones last. Those are many bytes and seldom used: they are cleared at the start of a packet only
when a packet before it has touched them.
"""

from __future__ import annotations

from enum import IntEnum

from netsum_switch.lowering.program import Lowered
from netsum_switch.lowering.statements import (
    Apply,
    Checksum,
    Condition,
    Control,
    Direct,
    Statements,
    written,
)
from netsum_switch.lowering.values import EGRESS_FIELDS, Variable

WIDE = 512  # bits; wider integers are computed in loops over their limbs
WIDEST = 8192  # bits of what LLVM computes in one piece; more is computed by `big_integers`
WIDEST_PRODUCT = 2048
WIDEST_DIVISION = 64  # LLVM makes a call of a longer one, to a function that need not be there


# A packet that starts over more often is dropped, since one thread runs the data plane. Programs walk through registers this
# way, in up to a thousand passes.
MAX_PASSES = 1 << 16

# A packet that starts over more often than this has the rest of its passes after the other packets' turns.
PASSES_IN_TURN = 256

# An action that loops more often is given up, and its packet with it: BMv2 would loop for ever.
MAX_TURNS = 1 << 20


def storage(bits: int) -> int:
    """The bits that an integer has in memory."""
    return next((each for each in (8, 16, 32, 64) if bits <= each), 64 * limb_count(bits))


def limb_count(bits: int) -> int:
    """The number of 64-bit limbs of an integer."""
    return (bits + 63) // 64


class Head(IntEnum):
    """Byte offsets in a state: the frame and its length, how far it is parsed, and what the controls know of it."""

    FRAME = 0
    RECEIVED = 8
    AT = 16
    DEPTH = 24
    END = 32


class Context(IntEnum):
    """Numbers of the 64-bit words of the context. Then come pointers to registers and counters, and tables (`TableWord`)."""

    OUT = 0  # where the next record goes
    OUT_END = 1
    CLOCK = 2  # a function: microseconds
    CLOCK_START = 3  # nanoseconds
    RANDOM = 4
    GROUPS = 5  # {u32 first replica, u32 count} by group id
    GROUP_REPLICAS = 6  # {u64 port, u64 replica id}
    SESSIONS = 7
    SESSION_REPLICAS = 8
    SCRATCH = 9  # the bytes that a checksum is taken of
    STATES = 10
    PENDING = 11  # frames that start over: where the next is written
    PENDING_END = 12
    PENDING_SPACE = 13  # two spaces of PENDING_SIZE bytes, which take turns
    PENDING_SIZE = 14
    QUEUES = 15  # `QUEUES_BYTES`
    ARRAYS = 16


class TableWord(IntEnum):
    """Words of a table in the context."""

    INDEX = 0  # hash slots or rules
    LIMIT = 1  # hash slots less one, or rules
    ROWS = 2  # {u64 action, parameters...}: the default's, then one for each entry
    COUNTS = 3  # {u64 packets, u64 bytes} for each row
    HITS = 4  # u64 microseconds of the last hit, for each row of a table with support_timeout
    END = 5


class ProfileWord(IntEnum):
    """Words of an action profile in the context."""

    MEMBERS = 0  # {u64 action, parameters...}: nothing, then one for each handle
    GROUPS = 1  # {pointer to the active members' numbers, u64 count} by handle
    END = 2


class MeterWord(IntEnum):
    """Words of a meter's cell: whether it is configured, then of the peak and the committed rate what `meter.Bucket` says."""

    CONFIGURED = 0
    BUCKETS = 1
    BUCKET_WORDS = 4


METER_BITS = 64 * (MeterWord.BUCKETS + 2 * MeterWord.BUCKET_WORDS)


class OutputKind(IntEnum):
    """The kinds of output, as {u64 kind, u64 argument, u64 bytes that follow}; the next record begins at a multiple of 8."""

    SENT = 1  # argument: port
    DIGEST = 2  # argument: list id; values of 64-bit limbs each
    LOG = 3  # argument: number of the text; values likewise
    PENDING = 4  # in the space of those only; argument: instance type | field list << 8; kept metadata, then the frame
    FAILED = 5  # argument: number of the error; port, length and first bytes of the frame
    QUEUED = 6  # argument: port; `QueuedWord`, the state, then the frame
    DEFERRED = 7  # argument: that of PENDING; the passes so far, then as PENDING


class QueuedWord(IntEnum):
    """Words of a packet that waits in an egress queue."""

    PRIORITY = 0
    REPLICA_ID = 1
    INSTANCE = 2
    ENQUEUED = 3  # microseconds
    DEPTH = 4  # packets in the queue before it
    END = 5


RECORD_BYTES = 24
PORT_NUMBERS = 512
PRIORITIES = 8  # queues of a port
QUEUE_BYTES = 8  # {u32 packets that wait, u32 capacity} by port and priority
WAITING_AT = PORT_NUMBERS * PRIORITIES * QUEUE_BYTES  # then a byte for each port: not 0 if its packets wait
QUEUES_BYTES = WAITING_AT + PORT_NUMBERS
GROUP_IDS = 1 << 16
SESSION_IDS = 1 << 15
LENGTHS_AT = 8 * SESSION_IDS  # behind the sessions' replicas: {u32 bytes that a clone has at most}
PRIORITIES_AT = 12 * SESSION_IDS  # then {u8 a clone's priority}; 0: that of the field list
SESSIONS_BYTES = 13 * SESSION_IDS
WHOLE = 1 << 30  # the length that a packet that is not truncated is cut to
DEEPEST = 64  # clones of clones in egress


class Layout:
    """The layout of one program's state."""

    def __init__(self, lowered: Lowered) -> None:
        self.offsets: dict[Variable, int] = {}
        self.wide: dict[str, tuple[int, int]] = {}  # (offset, size) of wide variables by header
        self._flags: dict[str, int] = {}
        saved = egress_variables(lowered)
        narrow = [each for each in lowered.variables if each.bits <= WIDE]
        at = int(Head.END)
        for group in ([each for each in narrow if each in saved], [each for each in narrow if each not in saved]):
            for variable in sorted(group, key=lambda each: -min(64, storage(each.bits))):
                self.offsets[variable] = at
                at += storage(variable.bits) // 8
            at = (at + 7) // 8 * 8
            if group and group[0] in saved:
                self.saved_end = at
        self.saved_wide = [each for each in lowered.variables if each.bits > WIDE and each in saved]
        self.narrow_end = at
        self._place_wide(lowered, at)

    def _place_wide(self, lowered: Lowered, at: int) -> None:
        groups: dict[str, list[Variable]] = {}
        for variable in lowered.variables:
            if variable.bits > WIDE:
                groups.setdefault(variable.name.rpartition(".")[0], []).append(variable)
        for name, variables in groups.items():
            start = at
            for variable in variables:
                self.offsets[variable] = at
                at += storage(variable.bits) // 8
            self.wide[name] = (start, at - start)
        for name in groups:
            self._flags[name] = at
            at += 1
        self.size = (at + 63) // 64 * 64
        self.stride = self.size + self.saved_end + sum(storage(each.bits) // 8 for each in self.saved_wide) + 64

    def flag(self, group: str) -> int:
        """The offset of the byte that says whether wide variables of a header were touched."""
        return self._flags[group]

    def flag_of(self, variable: Variable) -> int:
        return self._flags[variable.name.rpartition(".")[0]]


def egress_variables(lowered: Lowered) -> set[Variable]:
    """The fields that the egress control and what comes after it can set."""
    found = {lowered.variables.mark(name) for name in ("leaving", "clone", "clone_session", "clone_list", "recirculate")}
    for name in EGRESS_FIELDS:
        if lowered.variables.has("standard_metadata", name):
            found.add(lowered.variables.standard(name))
    for statements in control_statements(lowered.egress):
        found |= written(statements)
    return found | {each.target for each in lowered.updated if isinstance(each, Checksum)}


def control_statements(control: Control) -> list[Statements]:
    """The actions of a control."""
    found: list[Statements] = []
    for node in control.nodes.values():
        if isinstance(node, Direct):
            found.append(node.action.body)
        elif isinstance(node, Apply):
            found += [() if node.meter is None else (node.meter,), *(action.body for action, _ in node.actions)]
        else:
            assert isinstance(node, Condition)
    return found
