# SPDX-License-Identifier: MIT
"""The blocks of an endpoint: one, a batch of blocks that are alike, those in flight, and the payloads that arrive early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, overload

import numpy as np

from netsum.descriptor import Descriptor
from netsum.packet_batch import Packet, Rows
from netsum.stats import Stats
from netsum.wire.codec import Header, pack_header, pack_headers
from netsum.wire.schema import EVERYONE, HEADER_BYTES, MEMBER_STATUSES, SWITCH_SOURCE, AgeOp, Lane, Op, Outcome, Status

# One rank's contribution to one block.


ID_MASK: Final = 0xFFFFFFFF
"""Block ids count modulo 2^32."""
Payload = bytes | bytearray | memoryview


def id_distance(block_id: int, origin: int) -> int:
    """The number of blocks from ``origin`` to ``block_id``, negative if before (serial number arithmetic, RFC 1982)."""
    ahead = (block_id - origin) & ID_MASK
    return ahead if ahead < 1 << 31 else ahead - (1 << 32)


@dataclass(slots=True)
class Block:
    """One contribution. An empty one carries ``room`` bytes of zeros if its result will have a payload (a result can leave the
    switch only in a packet that came with room for it; a COPY's payload comes by itself). A ``no_aging`` block waits for every
    rank even in a job that degrades. With ``passing``, this rank answers but adds nothing and is not counted. ``on_result``
    gets the result's header and payload, which is valid only during that call; ``on_lost`` is called if there will be no result.
    ``call_fingerprint`` is that of its call, if no opening block says what that is. ``counts``: of a contribution for several
    ranks, how many of them it stands for, and how many had a payload; then ``passing`` says that some add nothing.

    In a job without a switch, ``more`` says that every rank submits the next block together with this one, and ``source`` is the
    only rank with a payload (EVERYONE: any rank may have one). ``floats``: the lanes are floats, which only chains add, in an
    order that follows from the ``number`` of the block in its call."""

    gen: int
    op: Op
    lane: Lane
    payload: Payload = b""
    status: Status = Status.OK
    dest: int = EVERYONE
    room: int = 0
    final: bool = False
    no_aging: bool = False
    passing: bool = False
    on_result: Callable[[Header, memoryview], None] | None = None
    on_lost: Callable[[], None] | None = None
    delivered: bool = False
    more: bool = False
    source: int = EVERYONE
    floats: bool = False
    number: int = 0
    call_fingerprint: int = 0
    counts: tuple[int, int] | None = None

    @property
    def worker_cnt(self) -> int:
        return self.counts[0] if self.counts is not None else int(not self.passing)

    @property
    def data_cnt(self) -> int:
        return self.counts[1] if self.counts is not None else int(len(self.payload) > 0)


# Blocks that differ only in their payloads, as rows of an array.


class ResultRecorder(Protocol):
    """Takes the results of a batch's blocks, by row."""

    def record_result(self, row: int, header: Header, payload: memoryview) -> None:
        """The result of one block."""

    def record_results(self, row: int, header: Header, payloads: Rows) -> None:
        """The results of ``len(payloads)`` blocks from ``row`` on, whose headers differ only in their block ids."""

    def record_loss(self, row: int) -> None:
        """There will be no result."""


class BlockBatch(Sequence[Block]):
    """A row is room for a header, and a payload, or in a batch of empty contributions the room for their results. The blocks are
    *alike*, but those that were changed before the batch was submitted: they can be sent and received many at a time."""

    def __init__(self, like: Block, rows: Rows, recorder: ResultRecorder) -> None:
        """``like`` is what the blocks have in common; its payload is as long as theirs."""
        self.like = like
        self.rows = rows
        self._recorder = recorder
        self._changed: dict[int, dict[str, Any]] = {}
        self._differs = bytearray(len(rows))
        self._delivered = bytearray(len(rows))

    def __len__(self) -> int:
        return len(self.rows)

    def change(self, row: int, **fields: Any) -> None:
        """Make a block differ from the others in these fields of :class:`Block`."""
        self._differs[row] = True
        self._changed.setdefault(row, {}).update(fields)

    @overload
    def __getitem__(self, at: int) -> Block: ...
    @overload
    def __getitem__(self, at: slice) -> list[Block]: ...
    def __getitem__(self, at: int | slice) -> Block | list[Block]:
        if isinstance(at, slice):
            return [self[row] for row in range(len(self))[at]]
        row, like = range(len(self))[at], self.like
        payload = self.rows[row, HEADER_BYTES:].data if like.payload else b""
        block = Block(like.gen, like.op, like.lane, payload, like.status, like.dest, like.room, like.final, like.no_aging)
        block.on_result, block.on_lost = partial(self._record_result, row), partial(self._record_loss, row)
        block.delivered, block.more = bool(self._delivered[row]), like.more or row < len(self) - 1
        block.source, block.floats, block.number = like.source, like.floats, like.number + row
        block.passing, block.call_fingerprint, block.counts = like.passing, like.call_fingerprint, like.counts
        for name, value in self._changed.get(row, {}).items():
            setattr(block, name, value)
        return block

    def alike(self, row: int) -> int:
        """The number of blocks from this one on that do not differ."""
        differs = self._differs.find(True, row)
        return (len(self) if differs < 0 else differs) - row

    def deliver(self, row: int, header: Header, payloads: Rows) -> None:
        """Hand over the results of blocks that are alike."""
        self._delivered[row : row + len(payloads)] = b"\1" * len(payloads)
        self._recorder.record_results(row, header, payloads)

    def _record_result(self, row: int, header: Header, payload: memoryview) -> None:
        self._delivered[row] = True
        self._recorder.record_result(row, header, payload)

    def _record_loss(self, row: int) -> None:
        self._delivered[row] = True
        self._recorder.record_loss(row)


# Blocks on their way to the switch, and the packets that carry them.


@dataclass(slots=True)
class InFlight:
    """Blocks that were sent together: of ``blocks``, whose first has the serial ``origin``, those from the serial ``start`` up to
    ``end``.

    Attributes:
        time: of the first transmission.
        order: a block's last transmission has this order among all, plus the block's serial.
        packet: of a single block. None: the blocks are alike (:class:`BlockBatch`), and none of them has a story of
            its own.
        tries: how often they were sent.
        whole: none of them has been sent again, or lost, by itself.
    """

    blocks: Sequence[Block]
    origin: int
    start: int
    end: int
    time: float
    order: int
    packet: Packet | None = None
    tries: int = 1
    whole: bool = True

    def block(self, serial: int) -> Block:
        return self.blocks[serial - self.origin]

    def like(self, serial: int) -> Block:
        """The block, or one that differs from it only in its payload."""
        return self.block(serial) if (batch := self.batch) is None else batch.like

    @property
    def batch(self) -> BlockBatch | None:
        """The blocks, if they are alike."""
        return self.blocks if self.packet is None and isinstance(self.blocks, BlockBatch) else None

    def split_off(self, serial: int) -> InFlight:
        """One of the blocks, which from now on is no longer like the others."""
        if (batch := self.batch) is None:
            return self
        self.whole = False
        packet = (batch.rows[serial - self.origin].data,)
        return InFlight(self.blocks, self.origin, serial, serial + 1, self.time, self.order, packet, self.tries)


class Contributions:
    """Makes a member's packets."""

    def __init__(self, descriptor: Descriptor) -> None:
        self._descriptor = descriptor
        self._degrade = descriptor.block_exp_ms > 0
        self.src_id = descriptor.src_id
        self.key = int(descriptor.key or "0", 16)

    def header(self, block_id: int, block: Block) -> Header:
        return Header(
            job_id=self._descriptor.job_id,
            block_id=block_id,
            final=int(block.final),
            degraded=int(block.passing),
            no_aging=int(block.no_aging and self._degrade),
            src_id=self._descriptor.src_id,
            worker_cnt=block.worker_cnt,
            gen_id=block.gen,
            lane_cnt=len(block.payload) >> block.lane,
            op=block.op,
            lane=block.lane,
            status=block.status,
            dest=block.dest,
            data_cnt=block.data_cnt,
            call_fingerprint=block.call_fingerprint,
            key=self.key,
        )

    def packet(self, block_id: int, block: Block, room: int) -> Packet:
        header = pack_header(self.header(block_id, block))
        if block.payload:
            return header, block.payload
        return (header, bytes(room)) if room else (header,)

    def rows(self, block_id: int, batch: BlockBatch, row: int, number: int) -> Rows:
        """The packets of ``number`` blocks that are alike, the first of which has this id."""
        rows = batch.rows[row : row + number]
        pack_headers(self.header(block_id, batch.like), rows)
        return rows


# Checks whether a result can belong to a block.


def is_same_call(block: Block, header: Header) -> bool:
    """True if a packet is about this block's call, not one that another rank has made in its place."""
    return header.gen_id == block.gen and header.call_fingerprint == block.call_fingerprint


def is_for_all(header: Header) -> bool:
    """True if a packet says what a switch says to all members at once: a result, or a COPY's payload, that is whole, for every
    member, and addressed to none."""
    whole = not header.degraded and header.age_op == AgeOp.NORMAL and header.dest == EVERYONE
    return whole and header.receiver_id == SWITCH_SOURCE and header.status in MEMBER_STATUSES


def is_whole(header: Header) -> bool:
    """True if a result is OK, and has the contributions of all members."""
    return not header.degraded and header.status == Status.OK


def is_plausible(block: Block, header: Header, room: int, workers: int, degrade: bool) -> bool:
    """True if a result with status OK and ``room`` bytes after its header can be this block's: the same operation, a plausible
    number of workers (fewer in a job that ``degrade``s), and not cut off."""
    size = header.payload_bytes
    return (
        header.op == block.op
        and header.lane == block.lane
        and header.dest == block.dest
        and header.worker_cnt <= workers
        and (degrade or not header.degraded)
        and (size in (0, len(block.payload)) or not block.payload)
        and size <= room
        and (header.age_op == AgeOp.LATE or header.data_cnt >= block.data_cnt)
        and (header.data_cnt > 0 or size == 0)
    )


def is_ordinary(header: Header, size: int) -> bool:
    """True if a result with ``size`` bytes after its header is OK and whole, and every rank is in it."""
    return header.status == Status.OK and not header.degraded and header.age_op == AgeOp.NORMAL and size == header.payload_bytes


# Payloads of COPY blocks, which come ahead of the results that complete the blocks.


_Fingerprint = tuple[int, ...]


def is_early(header: Header) -> bool:
    """True if a packet brings a payload ahead of its block's result."""
    return bool(header.early) and header.status == Status.OK


class EarlyPayloads:
    """A payload for each block, kept until a result says that every rank has answered, and that it has this payload.

    A rank gets payloads of blocks that it has not come to yet. They are less than two windows ahead of its oldest: a rank that
    sends block b holds the result of b - W, so every rank has sent that block, and holds b - 2W."""

    def __init__(self, window: int) -> None:
        self._reach = 2 * window
        self._held: dict[int, tuple[_Fingerprint, Rows]] = {}

    def put(self, first: int, header: Header, packets: Rows, base: int, stats: Stats) -> None:
        """Copy the payloads from packets, one a row, of blocks from the serial ``first`` on, whose headers differ only in their
        block ids. ``base`` is the oldest block that still needs one."""
        size, kind = header.payload_bytes, header.fingerprint
        if header.op != Op.COPY or not 0 < size <= packets.shape[1] - HEADER_BYTES:
            stats.malformed += len(packets)
            return
        for serial, payload in enumerate(packets[:, HEADER_BYTES : HEADER_BYTES + size].copy(), first):
            if base <= serial < base + self._reach and serial not in self._held:
                self._held[serial] = kind, payload
            else:
                stats.duplicates += 1

    def of(self, first: int, header: Header, most: int) -> Rows:
        """The payloads, one a row, for results with this header: of at most ``most`` blocks from the serial ``first`` on, as far
        as they are here and of one size."""
        kind = header.fingerprint
        found: list[Rows] = []
        for serial in range(first, first + most):
            held = self._held.get(serial)
            if held is None or held[0] != kind or (found and len(held[1]) != len(found[0])):
                break
            found.append(held[1])
        return np.stack(found) if found else np.empty((0, 0), np.uint8)

    def forget(self, serials: range) -> None:
        """These blocks are over."""
        if self._held:
            for serial in serials:
                self._held.pop(serial, None)

    def clear(self) -> None:
        self._held.clear()


class BlockRejected(Exception):
    """The switch refused a block for good; ``reason`` is the Outcome."""

    def __init__(self, serial: int, reason: int) -> None:
        self.serial = serial
        self.reason = Outcome(reason) if reason in Outcome._value2member_map_ else None
        super().__init__(f"block {serial} refused: {self.reason.name if self.reason else reason}")


class CallMismatch(Exception):
    """A result says MISMATCH: a member made a different call. It sends nothing more, so no rank can continue."""

    def __init__(self, serial: int) -> None:
        self.serial = serial
        super().__init__(f"block {serial}: the ranks' calls differ")
