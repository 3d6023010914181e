# SPDX-License-Identifier: MIT
"""The endpoint of a job whose blocks a switch combines: the host's half of the protocol (:mod:`netsum.core.endpoint`).

One window W serves all calls of a job together:

* block b is sent only when every result up to b - W is held (this lets the switch reuse slots, PROTOCOL.md);
* a contribution is repeated until the block's result is held, and kept for W more blocks after that;
* a result is matched to its block by job, block id within the live window, and generation;
* a COPY's payload may come ahead of its result, which is then a header (:mod:`netsum.core.blocks`);
* results tell when to give way to another job (:mod:`netsum.core.priority_backoff`), and when links are congested
  (:mod:`netsum.core.congestion`);
* in a job that degrades, a result may be partial, and a block whose result the switch has recycled (STALE) counts as settled;
* after a switch restart all ranks send again from the first block that some rank lacks (:meth:`SwitchEndpoint.resume`).

What is lost is sent again (:mod:`netsum.core.retransmit`).

Blocks that are alike (:mod:`netsum.core.blocks`) are sent many at a time, and their results taken many at a time if they are
ordinary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from netsum.core.blocks import (
    ID_MASK,
    Block,
    BlockBatch,
    BlockRejected,
    CallMismatch,
    Contributions,
    EarlyPayloads,
    InFlight,
    id_distance,
    is_early,
    is_for_all,
    is_ordinary,
    is_plausible,
    is_same_call,
    is_whole,
)
from netsum.core.congestion import CongestionWindow
from netsum.core.endpoint import GROUP, BlockedOn, CallMemory, Waits
from netsum.core.priority_backoff import PriorityBackoff
from netsum.core.retransmit import Retransmitter
from netsum.descriptor import Descriptor
from netsum.packet_batch import ReceiveBatch, SendBatch, congested
from netsum.settings import Settings
from netsum.stats import Stats
from netsum.transports.base import Packet, Transport
from netsum.wire.codec import Header, parse_header
from netsum.wire.schema import (
    EVERYONE,
    GIVING_UP,
    HEADER_BYTES,
    MEMBER_STATUSES,
    SWITCH_SOURCE,
    VERSION,
    AgeOp,
    Lane,
    Op,
    Outcome,
    Status,
)

LARGEST_GROUP: Final = 256
"""Blocks submitted at a time: half a window, so that the other half is on its way meanwhile, and at most this many."""
_RETRIED: Final = frozenset({Outcome.UNKNOWN_JOB, Outcome.NOT_MEMBER})


class SwitchEndpoint:
    """One member's endpoint in one epoch of a job."""

    combiner = "switch"
    by_chain = False
    needs_background_progress = False
    polls_controller = False

    def __init__(self, descriptor: Descriptor, join_deadline: float = 0.0) -> None:
        """Until ``join_deadline``, UNKNOWN_JOB and NOT_MEMBER mean that the controller has not finished yet."""
        self._job_id = descriptor.job_id
        self._receivers = {EVERYONE, descriptor.rank, *descriptor.local_ranks}
        self._workers = descriptor.workers
        self._contributions = Contributions(descriptor)
        self.set_group_key(descriptor.group_key)
        self._has_group = bool(descriptor.group)
        self._first_id = descriptor.first_block_id
        self._size = descriptor.window
        self.group = max(GROUP, min(self._size // 2, LARGEST_GROUP))
        self._largest = descriptor.block_bytes
        self._join_deadline = join_deadline
        self._degrade = descriptor.block_exp_ms > 0
        self._queue: deque[tuple[int, Sequence[Block]]] = deque()  # with the first one's serial; some may be sent
        self._sent: dict[int, InFlight] = {}
        self._kept: deque[InFlight] = deque()  # all with blocks from base - W on, also those in progress
        self._held: set[int] = set()  # held beyond `base`
        self._early = EarlyPayloads(self._size)
        self._retransmitter = Retransmitter(self.block_id, descriptor.roots)
        self.base = self.prefix = self.received_end = self.next_serial = self.submitted = 0
        self._received = 0  # packets in this epoch, without those that make no sense
        self._by_group = False  # the last of them came by IP multicast
        self.active_size = self._workers - len(descriptor.evicted)
        self._backoff = PriorityBackoff(self._size, descriptor.block_exp_ms)
        self._congestion = CongestionWindow(self._size)
        self.stats = Stats()

    @property
    def call_memory(self) -> CallMemory | None:
        """None: a switch combines."""
        return None

    def set_group_key(self, key: str) -> None:
        """Take packets to the IP multicast group with this key (16 hex digits) from now on; "": none."""
        self._group_key = int(key or "0", 16)

    def attach(self, link: Transport) -> Transport:
        return link

    @property
    def idle(self) -> bool:
        """Nothing is queued and every result is held."""
        return not self.queued and not self._sent

    @property
    def queued(self) -> int:
        return self.submitted - self.next_serial

    def block_id(self, serial: int) -> int:
        return (self._first_id + serial) & ID_MASK

    def submit(self, block: Block) -> int:
        self.submit_all([block])
        return self.submitted - 1

    def submit_all(self, blocks: Sequence[Block]) -> None:
        if blocks:
            self._queue.append((self.submitted, blocks))
            self.submitted += len(blocks)

    def resume(
        self,
        first_block_id: int,
        roots: Sequence[int] = (),
        job_id: int | None = None,
        key: str = "",
        src_id: int | None = None,
    ) -> bool:
        """Repeat everything from this block on, from the contributions that were kept. Results that this rank already holds
        must arrive again, since the switch's slots are empty. The ``roots`` may have changed. False: a contribution is gone, or
        the job or the source has another id."""
        blocks = self.blocks_from(first_block_id)
        if blocks is None or job_id not in (None, self._job_id) or src_id not in (None, self._contributions.src_id):
            return False
        self._contributions.key = int(key or "0", 16)
        first = self._serial(first_block_id)
        self._queue = deque([(first, blocks)] if blocks else ())
        self.base = self.next_serial = first
        kept = self._kept
        while kept and kept[-1].start >= first:
            kept.pop()
        if kept:
            kept[-1].end = first
        self._sent.clear()
        self._held.clear()
        self._early.clear()
        self._retransmitter.begin_anew(roots)
        self._received = 0
        self.stats.resumes += 1
        return True

    def blocks_from(self, block_id: int) -> list[Block] | None:
        first = self._serial(block_id)
        if not (self._kept[0].start if self._kept else self.next_serial) <= first <= self.next_serial:
            return None
        begun = [each.block(at) for each in self._kept for at in range(max(first, each.start), each.end)]
        queue = self._queue
        return begun + [block for origin, blocks in queue for block in blocks[max(0, self.next_serial - origin) :]]

    def _serial(self, block_id: int) -> int:
        return self.base + id_distance(block_id - self.base, self._first_id)

    def poll(self, now: float) -> Sequence[Packet]:
        """First repeat blocks that have timed out, then send new ones as far as the window allows."""
        packets = SendBatch()
        self.stats.fast_retransmissions += self._retransmitter.on_timer(self._sent, now)
        if self._retransmitter.stalled:
            self._congestion.stalled()
        room = self._congestion.room(now, self._in_flight, self._retransmitter.rtt.shortest)
        if self._retransmitter.queue:
            room -= self._repeat_all(max(room, self._retransmitter.due), packets)
        room = min(room, self._backoff.room(now) - len(self._sent), self.base + self._size - self.next_serial)
        while room > 0 and self._queue:
            room -= self._begin(room, now, packets)
        number = packets.number
        if not number:
            return []
        self._congestion.sent(number)
        stats = self.stats
        stats.packets_sent += number
        stats.bytes_sent += packets.nbytes
        if self._retransmitter.deadline is None:
            self._retransmitter.start(now)
        return packets

    @property
    def _in_flight(self) -> int:
        """The number of blocks that have been sent and are not about to be repeated."""
        again = self._retransmitter.queue
        return len(self._sent) - (sum(serial in self._sent for serial in again) if again else 0)

    def _repeat_all(self, most: int, packets: SendBatch) -> int:
        """Retransmit blocks that are due, at most ``most``; returns their number."""
        number, again = 0, self._retransmitter.queue
        for serial in list(again):
            if serial in self._sent:
                if number >= most:
                    break
                self._repeat(serial, packets)
                number += 1
            del again[serial]
        return number

    def _overtaken(self, found: int) -> None:
        """Count ``found`` blocks that later ones have overtaken."""
        if found:
            self.stats.fast_retransmissions += found
            self._congestion.lost(self._in_flight)

    def _repeat(self, serial: int, packets: SendBatch) -> None:
        sent = self._sent.pop(serial).split_off(serial)
        assert sent.packet is not None
        self.stats.retransmissions += 1
        sent.tries += 1
        sent.order = self._retransmitter.next_order() - serial
        self._sent[serial] = sent  # last: `_sent` is in the order of transmission
        packets.add(sent.packet)

    def _begin(self, most: int, now: float, packets: SendBatch) -> int:
        """Send the next block, or at most ``most`` that are alike; returns their number."""
        serial, (origin, blocks) = self.next_serial, self._queue[0]
        alike = min(blocks.alike(serial - origin), most) if type(blocks) is BlockBatch else 0
        number = alike or 1
        sent = InFlight(blocks, origin, serial, serial + number, now, self._retransmitter.next_order(number) - serial)
        if alike and (batch := sent.batch) is not None:
            packets.add_rows(self._contributions.rows(self.block_id(serial), batch, serial - origin, number))
        else:
            block = sent.block(serial)
            sent.packet = self._contributions.packet(self.block_id(serial), block, block.room)
            packets.add(sent.packet)
        self._sent.update(dict.fromkeys(range(serial, serial + number), sent))
        self._kept.append(sent)
        self.next_serial += number
        self.stats.blocks += number
        if self.next_serial == origin + len(blocks):
            self._queue.popleft()
        return number

    def outgoing(self, now: float) -> list[Packet]:  # noqa: ARG002
        return []  # only the switch waits for this member's packets

    def progress(self, transport: Transport) -> None:
        """Nothing to do: the switch's slots hold what others may still need."""

    leave = progress

    def apply(self, settings: Settings) -> None:
        self._backoff.narrow(settings.window)

    def limit_to_buffer(self, holds: Callable[[int], int]) -> None:
        self._congestion.limit(holds(HEADER_BYTES + self._largest))

    def waits(self) -> Waits | None:
        sent = self._sent.get(self.base)
        if sent is None:
            return None
        packet, batch = sent.packet, sent.batch
        octets = batch.rows.shape[1] if batch is not None else sum(memoryview(part).nbytes for part in packet or ())
        return Waits(self.block_id(self.base), sent.tries, octets, self._received & ID_MASK)

    def left_behind(self) -> tuple[int, ...]:
        """None: only the controller knows who has left."""
        return ()

    def explain(self, now: float) -> BlockedOn | None:
        """Always None: only the controller can read the switch's records."""

    def next_deadline(self) -> float | None:
        if self._backoff.paused_until and self.queued and not self._sent:
            return self._backoff.paused_until
        deadline, paced = self._retransmitter.deadline, self._congestion.paced_until
        if not paced or not (self.queued or self._retransmitter.queue):
            return deadline
        return paced if deadline is None else min(deadline, paced)

    def abort_outstanding(self, status: Status) -> list[Packet]:
        """Empty contributions with ``status`` to every outstanding block, and to the next, which others may wait for."""
        blocks = {serial: sent.block(serial) for serial, sent in self._sent.items()}
        if self.next_serial < self.base + self._size:
            origin, following = self._queue[0] if self._queue else (self.next_serial, [Block(0, Op.MAX, Lane.L16)])
            blocks[self.next_serial] = following[self.next_serial - origin]
        return [
            self._contributions.packet(self.block_id(at), Block(was.gen, was.op, was.lane, status=status), 0)
            for at, was in blocks.items()
        ]

    def receive(self, packets: Sequence[memoryview], now: float) -> None:
        if marked := congested(packets):
            self.stats.congested += marked
            self._congestion.marked(marked, self._in_flight)
        received = packets if isinstance(packets, ReceiveBatch) else ReceiveBatch.of(packets)
        stats, at, number = self.stats, 0, len(received)
        while at < number:
            size = int(received.sizes[at])
            stats.packets_received += 1
            stats.bytes_received += size
            malformed = stats.malformed
            self._received += 1  # first: a refusal is raised
            taken = self._take(received, at, size, now)
            self._received += taken - 1 - (stats.malformed - malformed)
            if self._by_group and stats.malformed == malformed:
                stats.multicast += taken
            stats.packets_received += taken - 1
            stats.bytes_received += (taken - 1) * size
            at += taken

    def _take(self, packets: ReceiveBatch, at: int, size: int, now: float) -> int:
        """Take the packet at this place, and those after it that differ only in their block ids and mean the same; returns how
        many."""
        self._by_group = False
        header = parse_header(packets.rows[at, :size].data) if size >= HEADER_BYTES else None
        known = header is not None and header.version == VERSION and header.job_id == self._job_id
        if header is None or not known or not self._is_switchs(header):
            self.stats.malformed += 1
            return 1
        serial = self._serial(header.block_id)
        if is_early(header):
            rows = packets.alike(at, self._size)
            self._early.put(serial, header, rows, self.base, self.stats)
            return len(rows)
        sent = self._sent.get(serial)
        if sent is None:
            self._not_waited_for(serial, header)
            return 1
        like = sent.like(serial)
        of_it = is_same_call(like, header)
        if of_it and header.status == Status.OK:
            if is_plausible(like, header, size - HEADER_BYTES, self._workers, self._degrade):
                return self._take_results(serial, sent, header, packets, at, now)
            self.stats.malformed += 1
        elif not of_it and header.status not in GIVING_UP:  # which may have another fingerprint
            self.stats.malformed += 1
            if self._degrade and header.status in MEMBER_STATUSES:
                # The others made another call, and closed it before this rank came.
                raise BlockRejected(serial, Outcome.FINGERPRINT_MISMATCH)
        elif header.status in MEMBER_STATUSES and header.status != Status.MISMATCH:
            return self._take_results(serial, sent, header, packets, at, now)
        else:
            self._not_a_result(serial, header, now)
        return 1

    def _is_switchs(self, header: Header) -> bool:
        """True if a packet has this member's key; or the group's, and says no more than all members may be told at once."""
        self._by_group = header.key != self._contributions.key
        return not self._by_group or (0 != header.key == self._group_key and is_for_all(header))

    def _take_results(self, serial: int, sent: InFlight, header: Header, packets: ReceiveBatch, at: int, now: float) -> int:
        """Take the result of a block that is waited for. If it is the oldest and ordinary, and blocks that are alike
        follow, take the results of those too that are in the next packets."""
        size = int(packets.sizes[at]) - HEADER_BYTES
        batch = sent.batch
        if batch is not None and not (is_ordinary(header, size) and not self._retransmitter.spurious_rto):
            sent, batch = self._split_off(serial), None
        rows = packets.rows[at : at + 1]
        if batch is not None and serial == self.base:
            rows, number = packets.alike(at, sent.end - serial), 1
            if sent.whole and not self._held:
                number = len(rows)
            while number < len(rows) and self._sent.get(serial + number) is sent:
                number += 1
            rows = rows[:number]
        payloads = rows[:, HEADER_BYTES : HEADER_BYTES + min(header.payload_bytes, size)]
        like = sent.like(serial)
        for_me = header.dest in self._receivers
        if not for_me:  # but perhaps for another rank of this host
            payloads = payloads[:, :0]
        notice = for_me and header.status == Status.OK and header.data_cnt and not payloads.shape[1]
        if notice and not (like.op == Op.COPY and like.payload):  # a COPY's source needs no copy of its own
            payloads = self._early.of(serial, header, len(rows))
            if not len(payloads):
                self._request_result(serial)
                return 1
        number, stats = len(payloads), self.stats
        if self._has_group and not self._by_group and sent.tries > 1 and is_for_all(header._replace(receiver_id=SWITCH_SOURCE)):
            stats.multicast_lost += number
        self._retransmitter.arrived(serial, number, sent, now, others=len(self._sent) > number)
        stats.rtt = self._retransmitter.rtt.srtt or 0.0
        self._backoff.on_result(bool(header.backoff), now, number)
        stats.backoffs += header.backoff * number
        self._note_eviction(header)
        if is_whole(header):
            self.active_size = header.worker_cnt
        if batch is not None:
            stats.stored += payloads.size
            batch.deliver(serial - sent.origin, header, payloads)
        elif not like.delivered:
            like.delivered = True
            stats.degraded += header.degraded
            stats.late += header.age_op == AgeOp.LATE
            stats.stored += payloads.size
            if like.on_result is not None:
                like.on_result(header, payloads[0].data)
        self._settle(serial, number)
        return number

    def _note_eviction(self, header: Header) -> None:
        """Take nothing to the group any more if a result has fewer workers: one was evicted, and knows the group's key."""
        if is_whole(header) and header.worker_cnt < self.active_size:
            self.set_group_key("")

    def _split_off(self, serial: int) -> InFlight:
        """A block that is waited for, which from now on is no longer like the others."""
        self._sent[serial] = alone = self._sent[serial].split_off(serial)
        return alone

    def _not_waited_for(self, serial: int, header: Header) -> None:
        if 0 <= serial < self.next_serial:
            self.stats.duplicates += 1
            self._retransmitter.duplicate(serial)
            self._note_eviction(header)  # perhaps the first was forged
        elif self._degrade and serial >= self.next_serial and header.status in MEMBER_STATUSES:
            self.stats.ahead += 1
            self.received_end = max(self.received_end, serial + 1)
        else:
            self.stats.malformed += 1

    def _not_a_result(self, serial: int, header: Header, now: float) -> None:
        """The switch's answer to a block that has no result, or not yet."""
        if header.status == Status.REFUSED:
            self._refused(serial, header, now)
        elif header.status == Status.STALE:
            self.stats.stale += 1
            if not self._degrade:
                raise BlockRejected(serial, Outcome.STALE)  # still needed: the epoch has moved on without us
            self._lose(serial, now)
        elif header.status == Status.MISMATCH:
            raise CallMismatch(serial)
        elif header.status == Status.AGAIN:
            self._request_result(serial)
        else:
            self.stats.malformed += 1

    def _refused(self, serial: int, header: Header, now: float) -> None:
        self.stats.refused += 1
        refusal = BlockRejected(serial, header.reason)
        name = refusal.reason.name if refusal.reason else str(header.reason)
        self.stats.refusals[name] = self.stats.refusals.get(name, 0) + 1
        if refusal.reason in _RETRIED and now < self._join_deadline:
            return  # the timer repeats it
        raise refusal

    def _lose(self, serial: int, now: float) -> None:
        """The others went on without us and the result is gone."""
        sent = self._split_off(serial)
        self.stats.lost += 1
        self._retransmitter.lost(serial, sent, now, others=len(self._sent) > 1)
        block = sent.block(serial)
        block.delivered = True
        if block.on_lost is not None:
            block.on_lost()
        self._settle(serial)

    def _request_result(self, serial: int) -> None:
        """The result is in the slot but did not fit into the packet that announced it: repeat with one that has room."""
        sent = self._split_off(serial)
        self.stats.notices += 1
        block = sent.block(serial)
        if not block.payload:
            sent.packet = self._contributions.packet(self.block_id(serial), block, self._largest)
        self._retransmitter.queue[serial] = None

    def _settle(self, serial: int, number: int = 1) -> None:
        """Mark ``number`` blocks as done, from ``serial`` on."""
        for at in range(serial, serial + number):
            del self._sent[at]
        if serial != self.base:
            self._held.update(range(serial, serial + number))
        else:
            self.base += number
            while self.base in self._held:
                self._held.remove(self.base)
                self.base += 1
            self.prefix = max(self.prefix, self.base)
            self._early.forget(range(serial, self.base))
            while self._kept[0].end <= self.base - self._size:
                self._kept.popleft()
            self._retransmitter.forget(self.base - self._size)
        self._congestion.arrived(number)
        if self._sent:
            self._overtaken(self._retransmitter.find_overtaken(self._sent))
