# SPDX-License-Identifier: MIT
"""The endpoint of the rank that contributes for all ranks of its host.

It has two windows. Its own is that of every rank (:class:`~netsum.intranode.member_endpoint.LocalEndpoint`). When all ranks have
contributed to a block, it combines what they have contributed, and submits that to the second, which is between the host and the
switch; so there the host is a source like any other. What that window receives goes into shared memory, from where every rank
takes it, this one too. If there is no other host, none of this goes to the switch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from netsum.core.blocks import Block, BlockBatch, BlockRejected, CallMismatch
from netsum.core.endpoint import BlockedOn, CallMemory, Waits
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.descriptor import Descriptor
from netsum.intranode.combination import combine_headers, combine_payloads
from netsum.intranode.group import LeaderGroup
from netsum.intranode.host_only import HostOnly
from netsum.intranode.member_endpoint import LocalEndpoint
from netsum.intranode.segment import DIFFER, UNKNOWN, Ring
from netsum.intranode.transport import LeaderTransport
from netsum.packet_batch import Packet, Rows
from netsum.settings import Settings
from netsum.stats import Stats
from netsum.transports.base import Transport
from netsum.wire.codec import Header, parse_header
from netsum.wire.schema import EVERYONE, HEADER_BYTES, Op, Status


class _Results:
    """Takes the results of blocks that were submitted together, and gives them to all ranks of the host."""

    def __init__(self, like: Block, rows: Rows, lost: Header, receivers: frozenset[int], ring: Ring) -> None:
        """``rows`` are the packets of the blocks, which are like this one; ``lost`` is what the ranks get if there is no result
        of the first block. Results for one of the ``receivers`` have a payload."""
        self._like = like
        self._rows = rows
        self._lost = lost
        self._receivers = receivers
        self._ring = ring

    def record_result(self, row: int, header: Header, payload: memoryview) -> None:
        self.record_results(row, header, np.frombuffer(payload or b"", np.uint8, len(payload)).reshape(1, -1))

    def record_results(self, row: int, header: Header, payloads: Rows) -> None:
        ours = self._like.op == Op.COPY and self._like.payload and header.status == Status.OK and header.data_cnt
        if ours and header.dest in self._receivers and not payloads.shape[1]:
            payloads = self._rows[row : row + len(payloads), HEADER_BYTES:]  # the source is on this host
        self._ring.add_results(header, payloads)

    def record_loss(self, row: int) -> None:
        self._ring.add_results(self._lost._replace(block_id=self._lost.block_id + row), np.empty((1, 0), np.uint8))


class LeaderEndpoint:
    """The endpoint of the lowest of a host's ranks (an :class:`netsum.core.endpoint.Endpoint`)."""

    combiner = "switch"
    by_chain = False
    needs_background_progress = False
    polls_controller = False

    def __init__(self, descriptor: Descriptor, join_deadline: float = 0.0) -> None:
        """``join_deadline``: see :class:`SwitchEndpoint`. Raises JoinError."""
        self._group = LeaderGroup(descriptor)
        self._own = LocalEndpoint(descriptor)
        self._switch: SwitchEndpoint | HostOnly
        if descriptor.on_one_host:
            self._switch = HostOnly(descriptor, self._own)
        else:
            self._switch = SwitchEndpoint(descriptor, join_deadline)
        self._job_id = descriptor.job_id
        self._receivers = frozenset({EVERYONE, *descriptor.local_ranks})
        self.group = self._own.group

    @property
    def stats(self) -> Stats:
        """Those of the window between the host and the switch."""
        return self._switch.stats

    @stats.setter
    def stats(self, stats: Stats) -> None:
        self._switch.stats = stats

    @property
    def base(self) -> int:
        return self._own.base

    @property
    def prefix(self) -> int:
        return self._own.prefix

    @property
    def next_serial(self) -> int:
        return self._own.next_serial

    @property
    def submitted(self) -> int:
        return self._own.submitted

    @property
    def queued(self) -> int:
        return self._own.queued

    @property
    def idle(self) -> bool:
        """Nothing is queued and every result is held."""
        return self._own.idle

    @property
    def received_end(self) -> int:
        return self._switch.received_end

    @property
    def active_size(self) -> int:
        return self._own.active_size

    @property
    def call_memory(self) -> CallMemory | None:
        return self._group.call_memory

    def attach(self, link: Transport) -> Transport:
        return LeaderTransport(link, self._group)

    def block_id(self, serial: int) -> int:
        return self._own.block_id(serial)

    def submit(self, block: Block) -> int:
        return self._own.submit(block)

    def submit_all(self, blocks: Sequence[Block]) -> None:
        self._own.submit_all(blocks)

    def blocks_from(self, block_id: int) -> list[Block] | None:
        return self._own.blocks_from(block_id)

    def resume(
        self,
        first_block_id: int,
        roots: Sequence[int] = (),
        job_id: int | None = None,
        key: str = "",
        src_id: int | None = None,
    ) -> bool:
        """Always False, as on the other ranks of the host."""
        return self._own.resume(first_block_id, roots, job_id, key, src_id)

    def poll(self, now: float) -> Sequence[Packet]:
        self._group.contribute(self._own.poll(now))
        self._combine()
        self._group.notify(self._switch.received_end)
        return self._switch.poll(now)

    def _combine(self) -> None:
        """Submit the blocks to which every rank has contributed."""
        rings = self._group.rings
        while (ready := min(ring.written for ring in rings) - rings[0].taken) > 0:
            serial = rings[0].taken
            number = min(ring.alike(ready) for ring in rings)
            packets = [ring.next(number) for ring in rings]
            combined = combine_headers([parse_header(rows[0].data) for rows, _ in packets], [size for _, size in packets])
            for index in combined.refused:
                self._group.refuse(index, serial)
            self._submit(serial, combined.block, [packets[index] for index in combined.payloads], number)

    def _submit(self, serial: int, like: Block, parts: Sequence[tuple[Rows, int]], number: int) -> None:
        """Submit ``number`` blocks from ``serial`` on that are like this one. ``parts`` are the packets whose payloads go in."""
        size = parts[0][1] if parts else HEADER_BYTES + like.room
        rows = np.empty((number, size), np.uint8) if parts else np.zeros((number, size), np.uint8)
        if parts:
            combine_payloads(like.op, like.lane, [part[:, HEADER_BYTES:size] for part, _ in parts], rows[:, HEADER_BYTES:])
            like.payload = rows[0, HEADER_BYTES:].data
        stale = Header(self._job_id, self.block_id(serial), gen_id=like.gen, status=Status.STALE, worker_cnt=0)
        lost = stale._replace(op=like.op, lane=like.lane, dest=like.dest, call_fingerprint=like.call_fingerprint)
        self._switch.submit_all(BlockBatch(like, rows, _Results(like, rows, lost, self._receivers, self._group.results)))

    def receive(self, packets: Sequence[memoryview], now: float) -> None:
        try:
            self._switch.receive(packets, now)
        except BlockRejected as rejection:
            self._fail(rejection.serial, UNKNOWN if rejection.reason is None else rejection.reason, now)
            raise
        except CallMismatch as mismatch:
            self._fail(mismatch.serial, DIFFER, now)
            raise
        else:
            self._deliver(now)

    def _deliver(self, now: float) -> None:
        """Report the results that have come to the other ranks, and take them here."""
        results = self._group.results
        self._group.notify(self._switch.received_end)
        while results.taken < results.written:
            self._own.receive(results.take(), now)

    def _fail(self, serial: int, reason: int, now: float) -> None:
        """Report to the other ranks why this block gets no result."""
        self._deliver(now)
        self._group.fail(serial, reason)

    def outgoing(self, now: float) -> Sequence[Packet]:
        return self._switch.outgoing(now)

    def next_deadline(self) -> float | None:
        results = self._group.results
        return self._switch.next_deadline() if results.taken == results.written else 0.0  # :meth:`receive` takes them

    def abort_outstanding(self, status: Status) -> Sequence[Packet]:
        """Also reports it to the other ranks of the host, which get no further results."""
        self._group.fail(self._switch.base, DIFFER)
        return self._switch.abort_outstanding(status)

    def progress(self, transport: Transport) -> None:
        self._switch.progress(transport)

    def leave(self, transport: Transport) -> None:
        self._group.leave()
        self._switch.leave(transport)

    def apply(self, settings: Settings) -> None:
        self._own.apply(settings)
        self._switch.apply(settings)

    def limit_to_buffer(self, holds: Callable[[int], int]) -> None:
        self._switch.limit_to_buffer(holds)

    def waits(self) -> Waits | None:
        return self._switch.waits()

    def left_behind(self) -> tuple[int, ...]:
        return self._group.left_behind(self.base) if self.base < self.next_serial else ()

    def explain(self, now: float) -> BlockedOn | None:  # noqa: ARG002
        return self._group.explain(self.base)
