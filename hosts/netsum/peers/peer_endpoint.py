# SPDX-License-Identifier: MIT
"""The endpoint of a job without a switch, whose members combine each other's contributions.

Blocks that were submitted together (:attr:`netsum.core.blocks.Block.more`) form a *batch* of at most half a window. Batches are
the same on every rank, and so must the algorithm be. Each batch executes the algorithm's plan, several of them at a time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from netsum.core.blocks import ID_MASK, Block, BlockRejected, CallMismatch, id_distance, is_plausible, is_same_call
from netsum.core.endpoint import GOODBYE_REPEATS, GROUP, WAIT_SLICE, CallMemory
from netsum.descriptor import AUTO, PLAN, Descriptor, is_chain
from netsum.errors import MismatchError
from netsum.peers.batch import BatchMessage, RankBatch, unpack
from netsum.peers.chains import Chains, Part
from netsum.peers.messenger import Frame, Messenger
from netsum.peers.schedule_execution import ScheduleExecution, ScheduleMismatch
from netsum.peers.schedule_files import read_plan
from netsum.peers.schedules import make_plan
from netsum.peers.selection import choose
from netsum.peers.wire import DATAGRAM_HEAD, LONGEST, Flag, algorithm_name, algorithm_number, is_datagram
from netsum.settings import Settings, Table
from netsum.stats import Stats
from netsum.transports.base import Transport
from netsum.wire.codec import Header
from netsum.wire.schema import EVERYONE, Outcome, Status

LINGER: Final = 2.0
"""Seconds that a leaving member waits for the others to acknowledge what it has sent."""
UNANSWERED_QUERIES: Final = 3
"""A rank counts as missing when it has left this many queries in a row unanswered ..."""
SILENT: Final = 1.0
"""... and, if something was received from it before, has been silent for this many seconds."""

_plan = lru_cache(maxsize=256)(make_plan)


def _chunk(descriptor: Descriptor) -> int:
    """Most blocks of a batch that a file's plan asks for."""
    name = descriptor.algorithm
    planned = read_plan(name.removeprefix(PLAN)).chunk_bytes if name.startswith(PLAN) else None
    return LONGEST if planned is None else max(1, planned // descriptor.block_bytes)


class PeerEndpoint:
    """One member's endpoint in one epoch of a job without a switch (an :class:`netsum.core.endpoint.Endpoint`)."""

    combiner = "others"
    group = GROUP
    needs_background_progress = True

    def __init__(self, descriptor: Descriptor, stats: Stats | None = None) -> None:
        """``stats`` to continue with, if any."""
        self.stats = Stats() if stats is None else stats
        self.base = self.next_serial = self.submitted = self.received_end = 0
        self._descriptor = descriptor
        self._rank = descriptor.rank
        self._ranks = [rank for rank in range(descriptor.workers) if rank not in descriptor.evicted]
        self._number = {rank: number for number, rank in enumerate(self._ranks)} | {EVERYONE: EVERYONE}
        self.active_size = len(self._ranks)
        self._algorithm = algorithm_number(descriptor.algorithm)
        self._table: Table | None = None
        self._longest = max(1, min(descriptor.window // 2, LONGEST, _chunk(descriptor)))
        others = [rank for rank in self._ranks if rank != self._rank]
        self.messenger = Messenger(others, self._algorithm, descriptor.first_block_id, self.stats)
        self.chains = Chains(descriptor, self._ranks, self.stats) if is_chain(descriptor.algorithm) else None
        self._listened = False  # whether everything that has come was taken
        self._parts: dict[int, Part] = {}  # of batches that go by chain, by the serial of the first block
        self._open: list[Block] = []  # a batch of which more is to come
        self._batches: deque[list[Block]] = deque()
        self._blocks: dict[int, Block] = {}  # of the batches that have begun, as long as they may be needed
        self._kept_from = 0
        self._executions: dict[int, ScheduleExecution] = {}  # by the serial of the batch's first block
        self._finished: dict[int, int] = {}  # batches beyond `base`: first serial -> the one after the last
        self._early: dict[int, list[tuple[int, BatchMessage]]] = {}  # messages of batches that have not begun
        self._trouble: BlockRejected | None = None
        self._since: float | None = None  # since when the oldest block has been waited for
        self._oldest = -1

    def attach(self, link: Transport) -> Transport:
        return link

    @property
    def by_chain(self) -> bool:
        return self.chains is not None

    @property
    def call_memory(self) -> CallMemory | None:
        """None: the members send what they combine."""
        return None

    @property
    def polls_controller(self) -> bool:
        return self._rank == self._ranks[0]

    @property
    def prefix(self) -> int:
        return self.base

    @property
    def idle(self) -> bool:
        """Nothing is queued and every result is held."""
        return not self.queued and self.base == self.next_serial

    @property
    def queued(self) -> int:
        return self.submitted - self.next_serial

    def block_id(self, serial: int) -> int:
        return (self._descriptor.first_block_id + serial) & ID_MASK

    def _serial(self, block_id: int) -> int:
        return self.base + id_distance(block_id, self.block_id(self.base))

    def submit(self, block: Block) -> int:
        self._open.append(block)
        if not block.more or len(self._open) == self._longest:
            self._batches.append(self._open)
            self._open = []
        self.submitted += 1
        return self.submitted - 1

    def submit_all(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            self.submit(block)

    def blocks_from(self, block_id: int) -> list[Block] | None:
        first = self._serial(block_id)
        if not self._kept_from <= first <= self.next_serial:
            return None
        begun = [self._blocks[serial] for serial in range(first, self.next_serial)]
        return begun + [block for batch in self._batches for block in batch] + self._open

    def resume(
        self,
        first_block_id: int,  # noqa: ARG002
        roots: Sequence[int] = (),  # noqa: ARG002
        job_id: int | None = None,  # noqa: ARG002
        key: str = "",  # noqa: ARG002
        src_id: int | None = None,  # noqa: ARG002
    ) -> bool:
        """Always False: an algorithm cannot be resumed half-way."""
        return False

    def poll(self, now: float) -> list[Frame]:
        self._begin()
        self._raise_trouble()
        return self.outgoing(now)

    def outgoing(self, now: float) -> list[Frame]:
        if not self._waiting:
            self._since = None
        elif self._since is None or self.base != self._oldest:
            self._since, self._oldest = now, self.base
        frames = self.messenger.poll(now, waiting=self._waiting)
        if self.chains is not None:
            waiting = any(part.left for part in self._parts.values())
            frames += self.chains.poll(now, waiting=waiting, listened=self._listened)
        return frames

    @property
    def _waiting(self) -> bool:
        return self.base < self.next_serial

    def _raise_trouble(self) -> None:
        if self._trouble is not None:
            raise self._trouble
        for rank, algorithm in self.messenger.algorithms.items():
            if algorithm != self._algorithm:
                raise MismatchError(
                    f"rank {rank} runs the algorithm {algorithm_name(algorithm)}, rank {self._rank} "
                    f"{self._descriptor.algorithm}: give all ranks the same NETSUM_ALGORITHM, or none"
                )
        for at in self.messenger.differing.values():
            if self._waiting and self._serial(at) <= self.base:
                raise CallMismatch(self.base)

    def next_deadline(self) -> float | None:
        # Other queries can wait for the next poll.
        return None if self.chains is None else self.chains.next_deadline()

    def _begin(self) -> None:
        limit = self.base + max(self._descriptor.window, 1)
        while self._batches and self.next_serial + len(self._batches[0]) <= limit:
            blocks = self._batches.popleft()
            first, self.next_serial = self.next_serial, self.next_serial + len(blocks)
            self._blocks.update(enumerate(blocks, first))
            self.stats.blocks += len(blocks)
            self.messenger.at = self.block_id(self.next_serial)
            self._executions[first] = self._execution(first, blocks)
            for rank, message in self._early.pop(first, []):
                self._take(first, rank, message)
            self._advance(first)
            if any(first < serial < self.next_serial for serial in self._early):
                self._differ(first)

    def _execution(self, first: int, blocks: list[Block]) -> ScheduleExecution:
        size = self._descriptor.block_bytes
        dests = tuple(self._number.get(block.dest, EVERYONE) for block in blocks)
        sources = tuple(self._number.get(block.source, EVERYONE) for block in blocks)
        algorithm, number = self._descriptor.algorithm, self._number[self._rank]
        chains = self.chains
        apart = () if chains is None else tuple(row for row, block in enumerate(blocks) if chains.takes(block))
        chosen = choose(len(self._ranks), (len(blocks) - len(apart)) * size, self._table)
        plan = _plan(algorithm if chains is None else AUTO, number, len(self._ranks), dests, sources, chosen)
        batch = RankBatch(blocks, size, apart)
        if chains is not None and apart:
            self._parts[first] = chains.begin(self.block_id(first), blocks, apart, batch)
        return ScheduleExecution(self.block_id(first), batch, plan, self._ranks, self.messenger.post)

    def receive(self, packets: Sequence[memoryview], now: float) -> None:
        """Take frames from other members. Trouble is left to :meth:`poll`, for the caller that waits there."""
        self._listened = not packets
        for packet in packets:
            self._take_frame(packet, now)

    def _take_frame(self, packet: memoryview, now: float) -> None:
        if is_datagram(packet):
            self._receive_datagram(packet[DATAGRAM_HEAD:], now)
            return
        rank, messages = self.messenger.receive(packet, now)
        for data in messages:
            try:
                message = unpack(data, self._descriptor.block_bytes)
            except ValueError:
                self.stats.malformed += 1
                continue
            first = self._serial(message.first_id)
            if first in self._executions:
                self._take(first, rank, message)
                self._advance(first)
            elif self.next_serial <= first <= self.base + 2 * self._descriptor.window:
                self._early.setdefault(first, []).append((rank, message))
            else:
                self._differ(self.base)

    def _receive_datagram(self, packet: memoryview, now: float) -> None:
        if self.chains is None:
            self.stats.packets_received += 1
            self.stats.malformed += 1
            return
        self.chains.receive(packet, now, self.block_id(self.next_serial), 2 * self._descriptor.window)
        for first in [first for first, part in self._parts.items() if not part.left or part.batch.given_up]:
            if first in self._executions:
                self._advance(first)

    def _take(self, first: int, rank: int, message: BatchMessage) -> None:
        try:
            self._executions[first].take(rank, message)
        except ScheduleMismatch:
            self._differ(first)

    def _differ(self, serial: int) -> None:
        self._trouble = self._trouble or BlockRejected(serial, Outcome.FINGERPRINT_MISMATCH)

    def _advance(self, first: int) -> None:
        """Let a batch go on; when it is done, deliver its results."""
        execution = self._executions[first]
        batch = execution.batch
        try:
            execution.advance()
        except ScheduleMismatch:
            self._differ(first)
        part = self._parts.get(first)
        if not execution.done:
            return
        if part is not None and part.left and not (batch.given_up and not batch.lacks_payload(self._rank)):
            return
        del self._executions[first]
        self._parts.pop(first, None)
        self.stats.stored += batch.stored
        for row in range(len(batch)):
            block = self._blocks[first + row]
            header, payload = batch.result(row, self._descriptor.job_id, self.block_id(first + row), self._rank)
            if header.status == Status.MISMATCH or not self._fits(block, header, len(payload)):
                self._differ(first + row)
            elif not block.delivered:
                block.delivered = True
                self.stats.degraded += header.degraded
                if block.on_result is not None:
                    block.on_result(header, payload)
        self._finished[first] = first + len(batch)
        while self.base in self._finished:
            self.base = self._finished.pop(self.base)
        while self._kept_from < self.base - self._descriptor.window:
            del self._blocks[self._kept_from]
            if self.chains is not None:
                self.chains.forget(self.block_id(self._kept_from))
            self._kept_from += 1

    def _fits(self, block: Block, header: Header, size: int) -> bool:
        """True if a finished row can be the result of this block."""
        if header.status != Status.OK:
            return True
        brings = header.data_cnt > 0 and header.dest in (EVERYONE, self._rank)
        ours = is_same_call(block, header) and is_plausible(block, header, size, len(self._ranks), degrade=True)
        return ours and (size > 0) == brings

    def abort_outstanding(self, status: Status) -> list[Frame]:  # noqa: ARG002 - there is only one reason
        return self.messenger.say(Flag.DIFFER, self.block_id(self.base))

    def progress(self, transport: Transport, timeout: float = 0.0) -> None:
        packets = transport.recv(timeout)
        now = time.monotonic()
        self.receive(packets, now)
        transport.send(self.outgoing(now))

    @property
    def _settled(self) -> bool:
        """True if the others have what they need from this member."""
        return self.messenger.settled and (self.chains is None or not self.chains.unsettled(self.messenger.gone))

    def leave(self, transport: Transport) -> None:
        until = time.monotonic() + LINGER
        self.progress(transport)
        transport.send(self.messenger.say(Flag.ANSWER, self.messenger.at))
        while not self._settled and time.monotonic() < until:
            if self.chains is not None:
                self.chains.announce_sent(self.messenger.gone)
            self.progress(transport, WAIT_SLICE)
        for _ in range(GOODBYE_REPEATS):
            transport.send(self.messenger.say(Flag.BYE, self.messenger.at))

    def apply(self, settings: Settings) -> None:
        self._table = settings.table

    def limit_to_buffer(self, holds: Callable[[int], int]) -> None:
        """Nothing to do: TCP sends no more than there is room for."""

    def waits(self) -> None:
        """Nothing: the members tell each other."""

    def left_behind(self) -> tuple[int, ...]:
        if not self.messenger.gone or self.base == self.next_serial:
            return ()
        return tuple(rank for rank in self._ranks if rank in self.messenger.gone and self._is_behind(rank))

    def _is_behind(self, rank: int) -> bool:
        """True if a rank has not begun the oldest block, as far as it has told."""
        at = self.messenger.others_at.get(rank)
        return at is None or self._serial(at) <= self.base

    def explain(self, now: float) -> tuple[str, tuple[int, ...]]:
        """Names only ranks that have said they have not reached the oldest block, that leave queries unanswered, or that have
        left."""
        others = [rank for rank in self._ranks if rank != self._rank]
        causes = {rank: cause for rank in others if (cause := self._cause(rank, now))}
        if not causes:  # a rank that left had reached the block, but need not have finished it
            causes = {rank: "which has left" for rank in others if rank in self.messenger.gone}
        if causes:
            words = [f"rank {rank}, {cause}" for rank, cause in causes.items()]
            return "waiting for " + "; ".join(words), tuple(causes)
        silent = () if self.chains is None else self.chains.silent(UNANSWERED_QUERIES)  # those that answer by TCP
        if silent:
            who = ", ".join(map(str, silent))
            return f"waiting for rank {who}, whose packets of chains (UDP) do not come here", silent
        unknown = [str(rank) for rank in others if not self._has_reported(rank)]
        if unknown:
            return f"whom it waits for is not known: rank {', '.join(unknown)} cannot have answered yet", ()
        return "every rank has begun the block, and answers", ()

    def _has_reported(self, rank: int) -> bool:
        """True if something was received from it since the oldest block is waited for."""
        received = self.messenger.last_received(rank)
        return received is not None and self._since is not None and received >= self._since

    def _cause(self, rank: int, now: float) -> str:
        """The reason why a rank is known to hold up the oldest block; "" if it is not."""
        messenger = self.messenger
        received, behind = messenger.last_received(rank), self._is_behind(rank)
        if rank in messenger.gone:
            return "which has left" if behind else ""
        if messenger.unanswered[rank] >= UNANSWERED_QUERIES:
            if received is None:
                return "from which nothing has come"
            if now - received > SILENT:
                return f"from which nothing has come for {now - received:.1f} s"
        return "which has not come to it" if behind and self._has_reported(rank) else ""
