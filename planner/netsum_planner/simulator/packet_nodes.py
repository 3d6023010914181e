# SPDX-License-Identifier: MIT
"""The nodes of the simulation by packets: ranks and switches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from netsum.core.blocks import Block, id_distance
from netsum.core.switch_endpoint import SwitchEndpoint
from netsum.descriptor import Descriptor
from netsum.packet_batch import ReceiveBatch
from netsum.wire.codec import Header, pack_header, parse_header
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, Lane, Op

from netsum_planner.simulator.packet_wire import Clock, Frame

# A switch that sums, packet by packet: what the P4 program does with an ordinary job's blocks (PROTOCOL.md).
#
# A block's slot opens with the contribution that is exactly one lap ahead, takes each source once, and is closed when
# all are in. A contribution to a closed block is answered with its result; one to a block whose sum is on its way to
# the parent sends that again. Values are not computed.


class State(Enum):
    """Of a block in its slot."""

    OPEN = 1
    SENT = 2
    DONE = 3


@dataclass(slots=True)
class SlotRecord:
    """A slot: which block is in it, and whose contributions it has."""

    block_id: int
    state: State
    seen: set[str]
    result: bytes = b""
    marked: bool = False


@dataclass(frozen=True)
class Contribution:
    """``data`` is the packet as the host's window made it, its payload left out; ``room`` are that payload's bytes."""

    job: int
    source: str
    header: Header
    room: int


@dataclass(frozen=True)
class Result:
    """A result on its way down; ``data`` is what the host's window gets."""

    job: int
    header: Header
    data: bytes


Part = Contribution | Result
SendPart = Callable[[str, str, Part, int, bool], None]
"""``send(switch, to, part, bytes, marked)``: to a neighbor."""


@dataclass(frozen=True)
class JobOnSwitch:
    """A job's part on a switch. ``sources`` are its children; ``parents`` has the parent of each stripe, None if this switch is
    the root; a block's stripe is its id modulo their number."""

    sources: tuple[str, ...]
    parents: tuple[str | None, ...]
    slots: int
    workers: int
    overhead: int


class SumSwitch:
    """One switch. It takes ``service`` seconds for each packet, one after the other, and drops what finds more than ``room``
    packets waiting."""

    def __init__(self, name: str, clock: Clock, service: float, room: int, send: SendPart) -> None:
        self.name = name
        self.jobs: dict[int, JobOnSwitch] = {}
        self.dropped = 0
        self.longest = 0.0
        self._clock = clock
        self._service = service
        self._room = room
        self._send = send
        self._free = 0.0
        self._slots: dict[tuple[int, int], SlotRecord] = {}

    def forget(self, job: int, part: JobOnSwitch | None) -> None:
        """The job begins a new epoch here, with other trees and nothing in its slots; None: it has left the switch."""
        self._slots = {key: record for key, record in self._slots.items() if key[0] != job}
        self.jobs.pop(job, None)
        if part is not None:
            self.jobs[job] = part

    def take(self, frame: Frame) -> None:
        if not self._service:
            self._handle(frame)
            return
        now = self._clock.now
        waiting = max(0.0, self._free - now) / self._service
        self.longest = max(self.longest, waiting)
        if waiting > self._room:
            self.dropped += 1
            return
        self._free = max(now, self._free) + self._service
        self._clock.at(self._free, self._handle, frame)

    def _handle(self, frame: Frame) -> None:
        part: Any = frame.data
        job = self.jobs.get(part.job)
        if job is None:
            return
        slot = self._slot(part.job, job, part.header.block_id)
        if isinstance(part, Result):
            self._down(job, slot, part, frame.marked)
        else:
            self._up(job, slot, part, frame.marked)

    def _slot(self, number: int, job: JobOnSwitch, block_id: int) -> tuple[int, int]:
        return number, block_id % job.slots

    def _up(self, job: JobOnSwitch, slot: tuple[int, int], part: Contribution, marked: bool) -> None:
        block_id = part.header.block_id
        record = self._slots.get(slot)
        if record is None or (record.state is State.DONE and id_distance(block_id, record.block_id) == job.slots):
            record = self._slots[slot] = SlotRecord(block_id, State.OPEN, set())
        if record.block_id != block_id:
            return  # of a past lap: not needed
        parent = job.parents[block_id % len(job.parents)]
        if record.state is State.DONE:
            self._give(job, part.source, Result(part.job, part.header, record.result), record.marked)
        elif record.state is State.SENT and parent is not None:
            if part.source in record.seen:
                self._raise(job, parent, part, record)
        elif part.source not in record.seen:
            record.seen.add(part.source)
            record.marked |= marked
            if len(record.seen) == len(job.sources):
                self._complete(job, record, parent, part)

    def _complete(self, job: JobOnSwitch, record: SlotRecord, parent: str | None, part: Contribution) -> None:
        if parent is not None:
            record.state = State.SENT
            self._raise(job, parent, part, record)
            return
        everyone = part.header._replace(worker_cnt=job.workers, data_cnt=job.workers if part.room else 0)
        self._close(job, record, Result(part.job, everyone, pack_header(everyone) + bytes(part.room)), record.marked)

    def _raise(self, job: JobOnSwitch, parent: str, part: Contribution, record: SlotRecord) -> None:
        up = Contribution(part.job, self.name, part.header, part.room)
        self._send(self.name, parent, up, part.room + job.overhead, record.marked)

    def _down(self, job: JobOnSwitch, slot: tuple[int, int], part: Result, marked: bool) -> None:
        record = self._slots.get(slot)
        if record is not None and record.block_id == part.header.block_id and record.state is State.SENT:
            self._close(job, record, part, marked)

    def _close(self, job: JobOnSwitch, record: SlotRecord, part: Result, marked: bool) -> None:
        record.state, record.result, record.marked = State.DONE, part.data, marked
        for source in job.sources:
            self._give(job, source, part, marked)

    def _give(self, job: JobOnSwitch, to: str, part: Result, marked: bool) -> None:
        self._send(self.name, to, part, job.overhead + part.header.payload_bytes, marked)


# A rank of a job, packet by packet: netsum's own window (:mod:`netsum.core.endpoint`), which is told the simulated time.


SendContribution = Callable[[Contribution, bool], None]
Over = Callable[["PacketHost"], None]

_OPENING: Final = memoryview(bytes(CHUNK_BYTES))


class PacketHost:
    """Makes one allreduce of ``blocks`` blocks after the other: it agrees on the call with one small block, and then sends the
    others as fast as the window takes them. ``pause`` seconds pass before it sends a packet, and before it takes one.

    Attributes:
        window: its window.
        marked: results that bore a mark (ECN).
    """

    def __init__(
        self,
        name: str,
        descriptor: Descriptor,
        job: int,
        clock: Clock,
        pause: float,
        send: SendContribution,
        over: Over,
    ) -> None:
        self.name = name
        self.rank = descriptor.rank
        self.window = SwitchEndpoint(descriptor)
        self.marked = 0
        self.calls = 0
        self._payload = memoryview(bytes(descriptor.block_bytes))
        self._job = job
        self._clock = clock
        self._pause = pause
        self._send = send
        self._over = over
        self._left = self._waiting = 0
        self._alarm: float | None = None

    def call(self, blocks: int) -> None:
        """Begin a call now."""
        self.calls += 1
        self._left, self._waiting = blocks, 1
        self._submit(Block(self._gen, Op.MAX, Lane.L16, _OPENING, on_result=self._opened))
        self._pump()

    @property
    def _gen(self) -> int:
        return self.calls & 0xFFFF

    def _submit(self, block: Block) -> None:
        self.window.submit_all([block])

    def _opened(self, _header: Header, _payload: memoryview) -> None:
        self._waiting = self._left
        self._refill()
        if not self._waiting:
            self._over(self)

    def _refill(self) -> None:
        while self._left and self.window.queued < self.window.group:
            group = min(self._left, self.window.group)
            self._left -= group
            self.window.submit_all(list(self._blocks(group)))

    def _blocks(self, number: int) -> Iterator[Block]:
        for _ in range(number):
            yield Block(self._gen, Op.SUM, Lane.L32, self._payload, on_result=self._result)

    def _result(self, _header: Header, _payload: memoryview) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._over(self)

    def resume(self, first_block_id: int) -> None:
        """Begin a new epoch of the job: everything from this block on is sent again."""
        if not self.window.resume(first_block_id):
            raise AssertionError("a window keeps what others may still need")
        self._pump()

    def receive(self, data: bytes, marked: bool) -> None:
        self.marked += marked
        if self._pause:
            self._clock.at(self._clock.now + self._pause, self._take, data, marked)
        else:
            self._take(data, marked)

    def _take(self, data: bytes, marked: bool) -> None:
        if marked:
            self.window.receive(ReceiveBatch.of([data], 1), self._clock.now)
        else:
            self.window.receive([memoryview(data)], self._clock.now)
        self._refill()
        self._pump()

    def _pump(self) -> None:
        """SendContribution what the window has to send, and set the alarm for its next time."""
        now = self._clock.now
        for packet in self.window.poll(now):
            whole = memoryview(packet[0])
            room = sum(map(len, packet)) - HEADER_BYTES
            part = Contribution(self._job, self.name, parse_header(whole[:HEADER_BYTES]), room)
            if self._pause:
                self._clock.at(now + self._pause, self._send, part, False)
            else:
                self._send(part, False)
        alarm = self.window.next_deadline()
        if alarm is not None and (self._alarm is None or alarm < self._alarm):
            self._alarm = alarm
            self._clock.at(max(alarm, now), self._ring)

    def _ring(self) -> None:
        """Handle the alarm, or set it again if it was put off since."""
        if self._alarm is not None and self._clock.now >= self._alarm:
            self._alarm = None
            self._pump()
