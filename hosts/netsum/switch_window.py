"""The window of a job whose blocks a switch combines: the host's half of the protocol (:mod:`netsum.window`).

One window W serves all calls of a job together:

* block b is sent only when every result up to b - W is held (this lets the switch reuse slots, docs/protocol.md);
* a contribution is repeated until the block's result is held, and kept for W more blocks after that;
* a result is matched to its block by job, block id within the live window, and generation;
* results tell when to give way to another job (:mod:`netsum.give_way`);
* in a job that degrades, a result may be partial, and a block whose result the switch has recycled (STALE) counts as settled;
* after a switch restart all ranks send again from the first block that some rank lacks (:meth:`SwitchWindow.resume`).

Retransmission works in two ways, both TCP's. A block is *overtaken* when the result of a later one arrives (RACK, RFC 8985,
with a count of packets as its reordering window): it is repeated at once. When nothing arrives, a timer repeats the oldest
block alone, so that waiting for a straggler causes no storm. Its result shows whether more is missing: as long as the repeats
turn out to have been needed, each expiry repeats twice as many. The timer follows RFC 6298 (Karn's rule, exponential backoff up
to a cap), but learns the lowest of several samples. A repeated block that gets two results was repeated too early: the backoff
then grows until a block gets its result at the first try.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from netsum.block import ID_MASK, Block, Packet, id_distance
from netsum.descriptor import Descriptor
from netsum.fits import fits
from netsum.give_way import GiveWay
from netsum.overtaking import Overtaking
from netsum.refusal import Disagreement, Refusal
from netsum.round_trip import RoundTrip
from netsum.stats import Stats
from netsum.transports.base import Transport
from netsum.wire.codec import Header, pack_header, parse_header
from netsum.wire.schema import (
    EVERYONE,
    GIVING_UP,
    HEADER_BYTES,
    MEMBER_STATUSES,
    VERSION,
    AgeOp,
    Lane,
    Op,
    Outcome,
    Status,
)

MAX_RTO: Final = 2.0
"""Cap of the exponential backoff."""


@dataclass(slots=True)
class _Sent:
    block: Block
    packet: Packet
    time: float  # of the first transmission
    way: int  # over which root
    order: int  # of the last transmission among all
    tries: int = 1


_RETRIED: Final = frozenset({Outcome.UNKNOWN_JOB, Outcome.NOT_MEMBER})


class SwitchWindow:
    """One member's window over one epoch of a job."""

    combiner = "switch"
    needs_tending = False
    speaks = False

    def __init__(self, descriptor: Descriptor, join_deadline: float = 0.0) -> None:
        """Until ``join_deadline``, UNKNOWN_JOB and NOT_MEMBER mean that the controller has not finished yet."""
        self._job_id = descriptor.job_id
        self._src_id = descriptor.src_id
        self._rank = descriptor.rank
        self._workers = descriptor.workers
        self._first_id = descriptor.first_block_id
        self._size = descriptor.window
        self._largest = descriptor.block_bytes
        self._join_deadline = join_deadline
        self._degrade = descriptor.block_exp_ms > 0
        self._queue: deque[Block] = deque()
        self._sent: dict[int, _Sent] = {}
        self._kept: dict[int, Block] = {}
        self._kept_from = 0
        self._held: set[int] = set()  # held beyond `base`
        self._again: dict[int, None] = {}  # serials to be sent again, in this order
        self._overtaking = Overtaking(descriptor.roots)
        self._alarm: float | None = None
        self._backoff = 1
        self._burst = 1
        self._needed = False  # a repeated block got its result since the timer expired
        self._repeated: set[int] = set()  # serials that the timer has repeated
        self._twice = 0  # how many of those got a second result since a block got its own at the first try
        self.base = self.prefix = self.heard = self.next_serial = self.submitted = 0
        self.present = self._workers - len(descriptor.evicted)
        self._trip = RoundTrip()
        self._way = GiveWay(self._size, descriptor.block_exp_ms)
        self.stats = Stats()

    @property
    def idle(self) -> bool:
        """Nothing is queued and every result is held."""
        return not self._queue and not self._sent

    @property
    def queued(self) -> int:
        return len(self._queue)

    def block_id(self, serial: int) -> int:
        return (self._first_id + serial) & ID_MASK

    def submit(self, block: Block) -> int:
        self._queue.append(block)
        self.submitted += 1
        return self.submitted - 1

    def resume(self, first_block_id: int, roots: Sequence[int] = ()) -> bool:
        """Repeat everything from this block on, from the contributions that were kept. Results that this rank already holds
        must arrive again, since the switch's slots are empty. The ``roots`` may have changed. False: a contribution is gone."""
        blocks = self.blocks_from(first_block_id)
        if blocks is None:
            return False
        first = self._serial(first_block_id)
        self._queue = deque(blocks)
        self.base = self.next_serial = first
        for serial in [serial for serial in self._kept if serial >= first]:
            del self._kept[serial]
        self._sent.clear()
        self._held.clear()
        self._again.clear()
        self._overtaking = Overtaking(roots)
        self._alarm, self._backoff, self._burst, self._needed = None, 1, 1, False
        self.stats.resumes += 1
        return True

    def blocks_from(self, block_id: int) -> list[Block] | None:
        first = self._serial(block_id)
        sent = [
            self._sent[at].block if at in self._sent else self._kept.get(at) for at in range(first, self.next_serial)
        ]
        if first > self.next_serial or None in sent:
            return None
        return [block for block in sent if block is not None] + list(self._queue)

    def _serial(self, block_id: int) -> int:
        return self.base + id_distance(block_id, self.block_id(self.base))

    def poll(self, now: float) -> list[Packet]:
        """First repeat blocks that have timed out, then send new ones as far as the window allows."""
        packets: list[Packet] = []
        if self._alarm is not None and now >= self._alarm:
            self._expire()
        for serial in self._again:
            sent = self._sent.pop(serial, None)
            if sent is not None:
                self.stats.retransmissions += 1
                sent.tries += 1
                sent.order = self._overtaking.next_order()
                self._sent[serial] = sent  # last: `_sent` is in the order of transmission
                packets.append(sent.packet)
        self._again.clear()
        room = self._way.room(now) - len(self._sent)
        while self._queue and room > 0 and self.next_serial < self.base + self._size:
            block = self._queue.popleft()
            packet = self._pack(self.next_serial, block, block.room)
            way = self._overtaking.way(self.block_id(self.next_serial))
            self._sent[self.next_serial] = _Sent(block, packet, now, way, self._overtaking.next_order())
            self.next_serial += 1
            room -= 1
            self.stats.blocks += 1
            packets.append(packet)
        if packets:
            self.stats.packets_sent += len(packets)
            self.stats.bytes_sent += sum(len(part) for packet in packets for part in packet)
            if self._alarm is None:
                self._alarm = now + min(self._trip.rto * self._backoff, MAX_RTO)
        return packets

    def outgoing(self, now: float) -> list[Packet]:  # noqa: ARG002
        return []  # nobody but the switch waits for this member's packets

    def tend(self, transport: Transport) -> None:
        """Nothing to do: the switch's slots hold what others may still need."""

    leave = tend

    def explain(self, now: float) -> None:
        """Always None: only the controller can read the switch's records."""

    @property
    def _hasty(self) -> bool:
        """Whether the timer is faster than a round trip. (The network may have duplicated a few results.)"""
        return self._twice > 8

    def next_deadline(self) -> float | None:
        if self._queue and not self._sent and self._way.until:
            return self._way.until
        return self._alarm

    def _expire(self) -> None:
        """Repeat the oldest block, or twice as many blocks as last time if those were needed (a whole flight was lost)."""
        self._alarm = None
        if self._overtaking.doubtful:
            self._overtaking.believe()
            self._find_overtaken()
            if self._again:
                self._repeated.update(self._again)
                return
        if self._needed and not self._hasty:
            self._burst, self._backoff = min(2 * self._burst, self._size), 1
        else:
            self._burst, self._backoff = 1, min(2 * self._backoff, 1 << 16)
        self._needed = False
        for serial in sorted(self._sent)[: self._burst]:
            self._again[serial] = None
        self._repeated.update(self._again)

    def overrule(self, status: Status) -> list[Packet]:
        """Empty contributions with ``status`` to every outstanding block, and to the next, which others may wait for."""
        blocks = {serial: sent.block for serial, sent in self._sent.items()}
        if self.next_serial < self.base + self._size:
            blocks[self.next_serial] = self._queue[0] if self._queue else Block(0, Op.MAX, Lane.L16)
        return [self._pack(at, Block(was.gen, was.op, was.lane, status=status), 0) for at, was in blocks.items()]

    def _pack(self, serial: int, block: Block, room: int) -> Packet:
        header = pack_header(
            Header(
                job_id=self._job_id,
                block_id=self.block_id(serial),
                final=int(block.final),
                degraded=int(block.passing),
                firm=int(block.firm and self._degrade),
                src_id=self._src_id,
                src_cnt=0 if block.passing else 1,
                gen_id=block.gen,
                grad_cnt=len(block.payload) >> block.lane,
                op=block.op,
                lane=block.lane,
                status=block.status,
                dest=block.dest,
                data_cnt=1 if block.payload else 0,
            )
        )
        if block.payload:
            return header, block.payload
        return (header, bytes(room)) if room else (header,)

    def receive(self, packet: memoryview, now: float) -> None:
        stats = self.stats
        stats.packets_received += 1
        stats.bytes_received += len(packet)
        if len(packet) < HEADER_BYTES:
            stats.malformed += 1
            return
        header = parse_header(packet)
        if header.version != VERSION or header.job_id != self._job_id:
            stats.malformed += 1
            return
        serial = self._serial(header.block_id)
        sent = self._sent.get(serial)
        if sent is None:
            self._not_waited_for(serial, header)
        elif header.gen_id != sent.block.gen and header.status not in GIVING_UP:  # which may have another signature
            stats.malformed += 1
            if self._degrade and header.status in MEMBER_STATUSES:
                raise Refusal(
                    serial, Outcome.SIGNATURE
                )  # the others made another call, and closed it before this rank came
        elif header.status == Status.REFUSED:
            self._refused(serial, header, now)
        elif header.status == Status.STALE:
            stats.stale += 1
            if not self._degrade:
                raise Refusal(serial, Outcome.STALE)  # still needed: the epoch has moved on without us
            self._lose(serial, sent, now)
        elif header.status == Status.MISMATCH:
            raise Disagreement(serial)
        elif header.status == Status.AGAIN:
            self._fetch(serial, sent)
        elif header.status not in MEMBER_STATUSES:
            stats.malformed += 1
        else:
            self._result(serial, sent, header, packet[HEADER_BYTES:], now)

    def _not_waited_for(self, serial: int, header: Header) -> None:
        if 0 <= serial < self.next_serial:
            self.stats.duplicates += 1
            self._twice += serial in self._repeated
        elif self._degrade and serial >= self.next_serial and header.status in MEMBER_STATUSES:
            self.stats.ahead += 1
            self.heard = max(self.heard, serial + 1)
        else:
            self.stats.malformed += 1

    def _refused(self, serial: int, header: Header, now: float) -> None:
        self.stats.refused += 1
        refusal = Refusal(serial, header.age_op)
        name = refusal.reason.name if refusal.reason else str(header.age_op)
        self.stats.refusals[name] = self.stats.refusals.get(name, 0) + 1
        if refusal.reason in _RETRIED and now < self._join_deadline:
            return  # the timer repeats it
        raise refusal

    def _result(self, serial: int, sent: _Sent, header: Header, payload: memoryview, now: float) -> None:
        if header.status == Status.OK and not fits(sent.block, header, len(payload), self._workers, self._degrade):
            self.stats.malformed += 1
            return
        size = min(header.payload_bytes, len(payload))
        for_me = header.dest in (EVERYONE, self._rank)
        if header.status == Status.OK and for_me and header.data_cnt and not size:
            self._fetch(serial, sent)
            return
        self._measure(sent, now)
        self._way.heard(bool(header.give_way), now)
        self.stats.gave_way += header.give_way
        self._settle(serial, sent)
        if not sent.block.delivered:
            sent.block.delivered = True
            self.stats.degraded += header.degraded
            self.stats.late += header.age_op == AgeOp.LATE
            if not header.degraded and header.status == Status.OK:
                self.present = header.src_cnt
            if sent.block.on_result is not None:
                sent.block.on_result(header, payload[:size])
        self._hold(serial)
        self._find_overtaken()

    def _settle(self, serial: int, sent: _Sent) -> None:
        del self._sent[serial]
        self._kept[serial] = sent.block

    def _lose(self, serial: int, sent: _Sent, now: float) -> None:
        """The others went on without us and the result is gone. More may be, which only repeating the blocks can tell."""
        self.stats.lost += 1
        self._backoff = 1
        self._needed |= sent.tries > 1
        self._overtaking.arrived(sent.way, sent.order)
        self._settle(serial, sent)
        self._alarm = now + (self._trip.srtt or self._trip.rto) if self._sent else None
        sent.block.delivered = True
        if sent.block.on_lost is not None:
            sent.block.on_lost()
        self._hold(serial)
        self._find_overtaken()

    def _fetch(self, serial: int, sent: _Sent) -> None:
        """The result is in the slot but did not fit into the packet that announced it: repeat with one that has room."""
        self.stats.notices += 1
        if not sent.block.payload:
            sent.packet = self._pack(serial, sent.block, self._largest)
        self._again[serial] = None

    def _hold(self, serial: int) -> None:
        if serial != self.base:
            self._held.add(serial)
            return
        self.base += 1
        while self.base in self._held:
            self._held.remove(self.base)
            self.base += 1
        self.prefix = max(self.prefix, self.base)
        while self._kept_from < self.base - self._size:
            self._kept.pop(self._kept_from, None)
            self._repeated.discard(self._kept_from)
            self._kept_from += 1

    def _find_overtaken(self) -> None:
        """Repeat what was sent well before a block whose result has arrived."""
        for serial, sent in self._sent.items():
            if self._overtaking.too_young(sent.order):
                return
            if serial not in self._again and self._overtaking.overtaken(sent.way, sent.order):
                self.stats.fast_retransmissions += 1
                self._again[serial] = None

    def _measure(self, sent: _Sent, now: float) -> None:
        """Restart the timer and learn the round-trip time. A repeated block's result may be for either transmission (Karn): it
        tells nothing about time, and about order only if nothing more arrives for a round trip, as a straggler's would."""
        if sent.tries == 1:
            if self._hasty:
                self._trip.begin_anew(now - sent.time)
            self._twice = 0
        if not self._hasty:
            self._backoff = 1
        if sent.tries > 1 and not self._hasty:
            self._needed = True
            self._overtaking.perhaps(sent.way, sent.order)
        pause = self._trip.srtt if self._overtaking.doubtful and self._trip.srtt is not None else self._trip.rto
        self._alarm = now + min(pause * self._backoff, MAX_RTO) if len(self._sent) > 1 else None
        if sent.tries > 1:
            return
        self._burst = 1
        self._overtaking.arrived(sent.way, sent.order)
        self._trip.learn(now - sent.time)
        self.stats.rtt = self._trip.srtt or 0.0
