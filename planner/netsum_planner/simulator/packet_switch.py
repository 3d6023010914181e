"""A switch that sums, packet by packet: what the P4 program does with an ordinary job's blocks (docs/protocol.md).

A block's slot opens with the contribution that is exactly one lap ahead, takes each source once, and is closed when all are in. A
contribution to a closed block is answered with its result; one to a block whose sum is on its way to the parent sends that again.
Values are not computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from netsum.window.block import id_distance
from netsum.wire.codec import Header, pack_header

from netsum_planner.simulator.packet_wire import Clock, Frame


class State(Enum):
    """Of a block in its slot."""

    OPEN = 1
    SENT = 2
    DONE = 3


@dataclass(slots=True)
class Record:
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
Send = Callable[[str, str, Part, int, bool], None]
"""``send(switch, to, part, bytes, marked)``: to a neighbour."""


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

    def __init__(self, name: str, clock: Clock, service: float, room: int, send: Send) -> None:
        self.name = name
        self.jobs: dict[int, JobOnSwitch] = {}
        self.dropped = 0
        self.longest = 0.0
        self._clock = clock
        self._service = service
        self._room = room
        self._send = send
        self._free = 0.0
        self._slots: dict[tuple[int, int], Record] = {}

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
            record = self._slots[slot] = Record(block_id, State.OPEN, set())
        if record.block_id != block_id:
            return  # of a past lap: nobody needs it
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

    def _complete(self, job: JobOnSwitch, record: Record, parent: str | None, part: Contribution) -> None:
        if parent is not None:
            record.state = State.SENT
            self._raise(job, parent, part, record)
            return
        everyone = part.header._replace(src_cnt=job.workers, data_cnt=job.workers if part.room else 0)
        self._close(job, record, Result(part.job, everyone, pack_header(everyone) + bytes(part.room)), record.marked)

    def _raise(self, job: JobOnSwitch, parent: str, part: Contribution, record: Record) -> None:
        up = Contribution(part.job, self.name, part.header, part.room)
        self._send(self.name, parent, up, part.room + job.overhead, record.marked)

    def _down(self, job: JobOnSwitch, slot: tuple[int, int], part: Result, marked: bool) -> None:
        record = self._slots.get(slot)
        if record is not None and record.block_id == part.header.block_id and record.state is State.SENT:
            self._close(job, record, part, marked)

    def _close(self, job: JobOnSwitch, record: Record, part: Result, marked: bool) -> None:
        record.state, record.result, record.marked = State.DONE, part.data, marked
        for source in job.sources:
            self._give(job, source, part, marked)

    def _give(self, job: JobOnSwitch, to: str, part: Result, marked: bool) -> None:
        self._send(self.name, to, part, job.overhead + part.header.payload_bytes, marked)
