# SPDX-License-Identifier: MIT
"""A client's half of the protocol: which instruction may be sent, which is repeated, what a reply means. Pure: it has no socket,
and the clock is passed in.

* An instruction has a serial number, from 1 on. Number s is sent only when all up to s - 256 are complete, so a device that keeps
  the last 256 replies of a client can answer whatever is repeated, and does everything once.
* It is complete when its reply is there, when it was refused for good, or when its caller has given it up (then it is not known
  whether it was done).
* What is lost is sent again (:mod:`netsum.core.retransmit`); replies of the same shard should come in the order in which the
  instructions were sent. :mod:`netsum.core.congestion` holds instructions back while links are congested.

Packets stand in a ring, one place for each instruction in flight. Most replies are ordinary: OK, whole, with nothing left out.
They are taken many at a time, and that changes nothing else.
"""

from __future__ import annotations

import itertools
import secrets
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from netsum.core.congestion import CongestionWindow
from netsum.core.retransmit import Retransmitter
from netsum.errors import (
    ForbiddenError,
    InstructionRejectedError,
    LaneTypeError,
    MemoryLostError,
    OutOfBoundsError,
    UnknownRegionError,
)
from netsum.memory.run import Flight, InstructionRun, Task
from netsum.packet_batch import ReceiveBatch, SendBatch, congested
from netsum.transports.base import Packet
from netsum.wire.codec import with_zeros
from netsum.wire.memory import (
    AGAIN,
    CLIENT_WINDOW,
    LAST_SEQUENCE,
    MAX_MESSAGE,
    MEMORY_DTYPE,
    MEMORY_HEADER_BYTES,
    MEMORY_NAMES,
    MEMORY_VERSION,
    OFFSETS,
    VERSION_BYTE,
    Flag,
    Instruction,
    MemoryHeader,
    MemoryStatus,
    Tags,
    parse_memory,
    split_memory,
)

_ERRORS: Final[dict[int, type[InstructionRejectedError]]] = {
    MemoryStatus.NO_REGION: UnknownRegionError,
    MemoryStatus.FORBIDDEN: ForbiddenError,
    MemoryStatus.BOUNDS: OutOfBoundsError,
    MemoryStatus.LOST: MemoryLostError,
    MemoryStatus.TYPE: LaneTypeError,
    MemoryStatus.UNSUPPORTED: LaneTypeError,
}


def status_name(status: int) -> str:
    return MEMORY_NAMES["status"].get(status, f"status {status}")


def refusal(region: str, address: int, status: int, what: str) -> InstructionRejectedError:
    """The error for an instruction that was refused."""
    return _ERRORS.get(status, InstructionRejectedError)(region, address, status_name(status), what)


@dataclass
class MemoryStats:
    """Statistics of a client. ``refused`` counts replies by status; ``shared`` those that came by multicast, of
    ``shared_bytes``; ``unasked`` such as were not for this client, or whose sender lacks the region's key."""

    instructions: int = 0
    packets_sent: int = 0
    bytes_sent: int = 0
    packets_received: int = 0
    bytes_received: int = 0
    retransmissions: int = 0
    fast_retransmissions: int = 0
    compressed: int = 0
    duplicates: int = 0
    malformed: int = 0
    shared: int = 0
    shared_bytes: int = 0
    unasked: int = 0
    congested: int = 0
    rtt: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)


class Shared:
    """One window's instructions with the flag SHARED, of which an address has one at a time."""

    def __init__(self) -> None:
        self._in_flight: dict[int, tuple[int, InstructionRun]] = {}

    def sent(self, run: InstructionRun, number: int, first: int) -> None:
        """The next rows of a run, and the serial number of the first."""
        if run.header.flags & Flag.SHARED:
            for place, address in enumerate(run.addresses[run.begun : run.begun + number].tolist()):
                self._in_flight[address] = first + place, run

    def settled(self, run: InstructionRun, row: int, sequence: int) -> None:
        """It is over."""
        if self._in_flight:
            address = int(run.addresses[row])
            if self._in_flight.get(address, (0, run))[0] == sequence:
                del self._in_flight[address]

    def own(self, client: int, header: MemoryHeader, packet: memoryview) -> MemoryHeader | None:
        """A packet's header as if it answered this client's instruction alone; None if it answers none. Any host can send such
        packets."""
        sequence, run = self._in_flight.get(header.address, (0, None))
        if run is None or (header.version, header.status) != (MEMORY_VERSION, MemoryStatus.OK):
            return None
        try:
            tags, payload = split_memory(header, packet)
        except ValueError:
            return None
        note_positions = Tags(run.header.key, header, payload).of(client, sequence) in tags
        return header._replace(client=client, sequence=sequence) if note_positions else None


PATHS: Final = 16
"""Shards are told apart modulo this number, to find out which packet has overtaken which."""
COME_AGAIN: Final = 0.002
"""Seconds before an instruction is sent again that was told to come again; doubled up to SLOWEST."""
SLOWEST: Final = 0.1
# Plain numbers: operations on enums take longer than all the rest.
_REPLY, _REPEAT, _COMPRESSED, _SHARED = (int(each) for each in (Flag.REPLY, Flag.REPEAT, Flag.COMPRESSED, Flag.SHARED))
_ORDINARY: Final = ~int(Flag.REPLICATED | Flag.REPEAT) & 0xFF
_HEAD: Final = MEMORY_HEADER_BYTES
_FLAGS: Final = OFFSETS["flags"]


class MemoryEndpoint:
    """One client's instructions."""

    def __init__(self, shards: int = 1, new_client: Callable[[], int] = lambda: secrets.randbits(63) + 1) -> None:
        """``shards`` is how many parts the memory is in; ``new_client`` gives the client a number that no other client has."""
        self._paths = min(shards, PATHS)
        self._new_client = new_client
        self._queue: deque[InstructionRun] = deque()
        self._sent: dict[int, Flight] = {}  # in the order of transmission
        self._ring = np.zeros((CLIENT_WINDOW, MAX_MESSAGE), np.uint8)
        self._sizes = np.zeros(CLIENT_WINDOW, np.int64)
        self._path = np.zeros(CLIENT_WINDOW, np.int64)
        self._flight = np.zeros(CLIENT_WINDOW, np.int64)  # the flight's number; 0: not in progress
        self._flights = 0
        self._later: dict[int, tuple[float, float]] = {}  # sent again at this time; the pause
        self._shared = Shared()
        self._positions: dict[int, NDArray[np.uint64]] = {}
        self._congestion = CongestionWindow(CLIENT_WINDOW)
        self._retransmitter = Retransmitter(self._path_of, range(self._paths))
        self.client = new_client()
        self.base = self.next = 1  # all below `base` are complete; the next one to be sent
        self.stats = MemoryStats()

    def _path_of(self, sequence: int) -> int:
        return int(self._path[sequence % CLIENT_WINDOW])

    @property
    def idle(self) -> bool:
        return not self._queue and not self._sent

    @property
    def in_flight(self) -> int:
        """The number of instructions that have been sent and are not complete."""
        return len(self._sent)

    def positions(self, region: int, shards: int) -> NDArray[np.uint64]:
        """By shard of a region, what the last reply said of its position."""
        return self._positions.setdefault(region, np.zeros(shards, np.uint64))

    def submit(self, run: InstructionRun) -> None:
        """Queue instructions. Their data must not change until the task is done."""
        run.task.left += run.number
        if run.number:
            self._queue.append(run)

    def poll(self, now: float) -> Sequence[Packet]:
        """The packets to send now."""
        packets, repeating = SendBatch(), self._retransmitter
        self.stats.fast_retransmissions += repeating.on_timer(self._sent, now)
        if repeating.stalled:
            self._congestion.stalled()
        elif repeating.due and self._sent:
            self._look_behind()
        self._come_again(now)
        room = self._congestion.room(now, len(self._sent) - len(repeating.queue), repeating.rtt.shortest)
        if repeating.queue:
            room -= self._repeat_all(max(room, repeating.due), packets)
        room = min(room, self._free())
        while room > 0 and self._queue:
            room -= self._begin(room, now, packets)
        if not (number := len(packets)):
            return []
        self._congestion.sent(number)
        self.stats.packets_sent += number
        self.stats.bytes_sent += packets.nbytes
        if repeating.deadline is None:
            repeating.start(now)
        return packets

    def _free(self) -> int:
        """The number of instructions that may begin. When the numbers are used up, none may until all are complete; then the
        client starts again under another number."""
        if self.next > LAST_SEQUENCE - CLIENT_WINDOW:
            if self._sent:
                return 0
            self.client, self.base, self.next = self._new_client(), 1, 1
            rtt = self._retransmitter.rtt
            self._retransmitter = Retransmitter(self._path_of, range(self._paths))
            self._retransmitter.rtt = rtt
        return self.base + CLIENT_WINDOW - self.next

    def _look_behind(self) -> None:
        """The timer repeats the oldest alone. If that is a push that waits for other workers', nothing tells whether what came
        after it was lost, and others may wait for that: repeat the oldest of the others, too, and the push sent longest ago."""
        oldest = min(self._sent)
        pushes = [sequence for sequence, flight in self._sent.items() if flight.run.may_wait]
        if oldest in pushes:
            other = min(self._sent.keys() - set(pushes), default=oldest)
            behind = sorted({oldest, pushes[0], other})
            self._retransmitter.queue = {**dict.fromkeys(behind), **self._retransmitter.queue}
            self._retransmitter.due = len(behind)

    def _come_again(self, now: float) -> None:
        for sequence in [sequence for sequence, (due, _) in self._later.items() if now >= due]:
            self._later[sequence] = (float("inf"), self._later[sequence][1])
            self._retransmitter.queue[sequence] = None

    def _repeat_all(self, most: int, packets: SendBatch) -> int:
        number, again = 0, self._retransmitter.queue
        for sequence in list(again):
            if sequence in self._sent:
                if number >= most:
                    break
                self._repeat(sequence, packets)
                number += 1
            del again[sequence]
        return number

    def _repeat(self, sequence: int, packets: SendBatch) -> None:
        was, slot = self._sent.pop(sequence), sequence % CLIENT_WINDOW
        order = self._retransmitter.next_order() - sequence
        flight = Flight(was.run, was.row_of(sequence), sequence, was.time, order, self._number(), was.tries + 1)
        self._sent[sequence] = flight  # last: `_sent` is in the order of transmission
        self._flight[slot] = flight.number
        row = self._ring[slot, : self._sizes[slot]]
        row[_FLAGS] |= _REPEAT
        self.stats.retransmissions += 1
        packets.add((row.data,))

    def _number(self) -> int:
        self._flights += 1
        return self._flights

    def _begin(self, most: int, now: float, packets: SendBatch) -> int:
        """Send the next instruction, or up to ``most`` that are alike; returns how many."""
        run, sequence = self._queue[0], self.next
        if run.task.error is not None:
            self._queue.popleft()
            return 0
        slot = sequence % CLIENT_WINDOW
        alike = run.alike(min(most, CLIENT_WINDOW - slot))
        number = alike or 1
        ring = self._ring[slot : slot + number]
        if alike:
            size = run.write(ring, self.client, sequence)
        else:
            size = run.write_sparse(ring[0], self.client, sequence)
            self.stats.compressed += 1
        if number > 1:
            packets.add_rows(ring[:, :size])
        else:
            packets.add((ring[0, :size].data,))
        flight = Flight(run, run.begun, sequence, now, self._retransmitter.next_order(number) - sequence, self._number())
        slots = slice(slot, slot + number)
        self._sizes[slots], self._flight[slots] = size, flight.number
        if self._paths > 1:
            self._path[slots] = run.shards(number) % np.uint64(self._paths)
        self._sent.update(dict.fromkeys(range(sequence, sequence + number), flight))
        self._shared.sent(run, number, sequence)
        self.next += number
        self.stats.instructions += number
        run.begun += number
        if run.begun == run.number:
            self._queue.popleft()
        return number

    def next_deadline(self) -> float | None:
        """The time when :meth:`poll` may have something to send although nothing has arrived. None: only when something does."""
        moments = [due for due, _ in self._later.values()]
        if self._retransmitter.deadline is not None:
            moments.append(self._retransmitter.deadline)
        if self._congestion.paced_until and (self._queue or self._retransmitter.queue):
            moments.append(self._congestion.paced_until)
        return min(moments, default=None)

    def receive(self, packets: Sequence[memoryview], now: float) -> None:
        """Take packets in this order; one that makes no sense is counted and ignored."""
        if marked := congested(packets):
            self.stats.congested += marked
            self._congestion.marked(marked, len(self._sent))
        if isinstance(packets, ReceiveBatch) and len(packets) > 1:
            for at in self._take_ordinary(packets, now):
                self._take_one(packets[at], now)
        else:
            for packet in packets:
                self._take_one(packet, now)
        if found := self._retransmitter.find_overtaken(self._sent):
            self.stats.fast_retransmissions += found
            self._congestion.lost(len(self._sent))

    def _take_ordinary(self, packets: ReceiveBatch, now: float) -> Sequence[int]:
        """Take the ordinary replies among these packets; returns which others there are."""
        rows, sizes = packets.rows, packets.sizes
        if rows.shape[1] < _HEAD:
            return range(len(packets))
        heads = rows[:, :_HEAD].view(MEMORY_DTYPE)[:, 0]
        sequences = heads["sequence"].astype(np.int64)
        flights = self._flight[sequences % CLIENT_WINDOW]
        plain = (heads["flags"] & _ORDINARY == _REPLY) & (heads["status"] == 0) & (heads["segments"] == 0)
        plain &= (heads["client"] == self.client) & (heads["version"] == VERSION_BYTE) & (flights != 0)
        plain &= (sizes >= _HEAD) & (sequences >= self.base) & (sequences < self.next)
        at = np.flatnonzero(plain)
        at = at[np.unique(sequences[at], return_index=True)[1]]  # in order of their numbers, and each once
        left = np.ones(len(packets), bool)
        found, numbers = flights[at], sequences[at]
        starts = np.flatnonzero(np.diff(found, prepend=0) | (np.diff(numbers, prepend=0) != 1)).tolist()
        for begin, end in itertools.pairwise([*starts, len(at)]):
            which = at[begin:end]
            if self._take_flight(rows, heads, which, sizes[which], int(numbers[begin]), now):
                left[which] = False
        return np.flatnonzero(left).tolist()

    def _take_flight(
        self,
        rows: NDArray[np.uint8],
        heads: NDArray[np.void],
        which: NDArray[np.int64],
        sizes: NDArray[np.int64],
        first: int,
        now: float,
    ) -> bool:
        """Take replies to instructions of one flight that follow each other, if they are what is expected."""
        flight = self._sent[first]
        run, number = flight.run, len(which)
        expected = run.reply_bytes
        right = (sizes == _HEAD + expected) & (heads["length"][which] == expected)
        if run.on_reply is not None or not (right & (heads["instruction"][which] == run.instruction)).all():
            return False
        self.stats.packets_received += number
        self.stats.bytes_received += int(sizes.sum())
        if expected:
            start = flight.row_of(first)
            straight = int(which[-1]) - int(which[0]) == number - 1 and bool((np.diff(which) == 1).all())
            taken = rows[which[0] : which[0] + number] if straight else rows[which]
            run.put(np.arange(start, start + number), taken[:, _HEAD : _HEAD + expected])
        run.note_positions(heads["shard"][which], heads["key"][which])
        self._complete(first, number, flight, now)
        return True

    def _take_one(self, packet: memoryview, now: float) -> None:
        stats = self.stats
        stats.packets_received += 1
        stats.bytes_received += len(packet)
        header = parse_memory(packet) if len(packet) >= _HEAD else None
        if header is not None and header.flags & _SHARED:
            header = self._shared.own(self.client, header, packet)
            if header is None:
                stats.unasked += 1
                return
            stats.shared += 1
            stats.shared_bytes += len(packet)
        if header is None or (header.version, header.client) != (MEMORY_VERSION, self.client) or not header.flags & _REPLY:
            stats.malformed += 1
            return
        flight = self._sent.get(header.sequence)
        if flight is None:
            known = header.sequence < self.next
            stats.duplicates += known
            stats.malformed += not known
            self._retransmitter.duplicate(header.sequence)
        elif header.instruction != flight.run.instruction:
            stats.malformed += 1
        else:
            self._reply(flight, header, packet, now)

    def _reply(self, flight: Flight, header: MemoryHeader, packet: memoryview, now: float) -> None:
        run, sequence, status = flight.run, header.sequence, header.status
        row = flight.row_of(sequence)
        swapped = run.instruction == Instruction.COMPARE_SWAP
        if status == MemoryStatus.OK or (status == MemoryStatus.MISMATCH and swapped):
            payload = self._payload(run, header, packet)
            if payload is None:
                self.stats.malformed += 1
                return
            if run.on_reply is not None:
                run.on_reply(row, header, payload.data)
            elif run.reply_bytes:
                run.put(np.array([row]), payload[None])
            run.note_positions(np.array([header.shard]), np.array([header.key], np.uint64))
        else:
            self.stats.refused[status_name(status)] += 1
            if status in AGAIN:
                run.task.answer = status_name(status)
                pause = min(2 * self._later[sequence][1], SLOWEST) if sequence in self._later else COME_AGAIN
                self._later[sequence] = (now + pause, pause)
                return
            address = int(run.addresses[row])
            run.task.error = run.task.error or refusal(run.region, address, status, run.instruction.name)
        self._complete(sequence, 1, flight, now)

    def _payload(self, run: InstructionRun, header: MemoryHeader, packet: memoryview) -> NDArray[np.uint8] | None:
        """The reply's payload, with all zeros; None if it is not what it should be."""
        try:
            _, payload = split_memory(header, packet)
            short = header.flags & _COMPRESSED
            whole = with_zeros(payload, header.length) if short else np.frombuffer(payload, np.uint8)
        except ValueError:
            return None
        fits = len(whole) == header.length and (run.on_reply is not None or len(whole) == run.reply_bytes)
        return whole if fits else None

    def _complete(self, first: int, number: int, flight: Flight, now: float) -> None:
        """Replies to ``number`` instructions have arrived, from ``first`` on."""
        self._retransmitter.arrived(first, number, flight, now, others=len(self._sent) > number)
        self.stats.rtt = self._retransmitter.rtt.srtt or 0.0
        self._congestion.arrived(number)
        flight.run.task.left -= number
        self._settle(range(first, first + number))

    def _settle(self, sequences: range) -> None:
        for sequence in sequences:
            flight = self._sent.pop(sequence)
            self._shared.settled(flight.run, flight.row_of(sequence), sequence)
            self._flight[sequence % CLIENT_WINDOW] = 0
            if self._later:
                self._later.pop(sequence, None)
        while self.base < self.next and self.base not in self._sent:
            self.base += 1
        if len(self._retransmitter.queue):
            for sequence in sequences:
                self._retransmitter.queue.pop(sequence, None)

    def give_up(self, task: Task) -> tuple[str, int, str, int] | None:
        """No caller waits for this task any more. Returns of its first instruction that had no reply: region, address,
        instruction, and how often it was sent; None if there is none."""
        mine = [sequence for sequence, flight in self._sent.items() if flight.run.task is task]
        begun = min(mine, default=None)
        oldest = None
        if begun is not None:
            flight = self._sent[begun]
            address = int(flight.run.addresses[flight.row_of(begun)])
            oldest = flight.run.region, address, flight.run.instruction.name, flight.tries
        for sequence in mine:
            self._settle(range(sequence, sequence + 1))
        queued = [run for run in self._queue if run.task is task]
        self._queue = deque(run for run in self._queue if run.task is not task)
        if oldest is None and queued:
            run = queued[0]
            oldest = run.region, int(run.addresses[run.begun]), run.instruction.name, 0
        if not self._sent:
            self._retransmitter.deadline = None
        return oldest
