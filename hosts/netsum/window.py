"""The host's half of the protocol as a pure state machine: no socket, no thread, the clock passed in.

Blocks have *serials*: 0, 1, 2… from the epoch's first block on; a block's id on the wire is ``first_block_id + serial``
modulo 2^32. One window W serves all calls of a job together:

* block b is sent only when every result up to b - W is held (this is what lets the switch reuse slots, docs/protocol.md);
* a contribution is sent again until the block's result is held, and kept for W more blocks after that;
* a result belongs to a block by job, block id within the live window, and generation.

Retransmission: the round-trip time is estimated as in RFC 6298 with Karn's rule (no sample of a block that was sent twice); each
further sending of a block doubles its timeout up to a cap, so that waiting for a straggler causes no storm. A block that later
ones overtook is sent again at once, as TCP's fast retransmit does (RFC 5681, section 3.2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from netsum.descriptor import Descriptor
from netsum.wire.codec import Header, pack_header, parse_header
from netsum.wire.schema import EVERYONE, HEADER_BYTES, UDP_PORT, VERSION, Lane, Op, Outcome, Status

ID_MASK: Final = 0xFFFFFFFF
INITIAL_RTO: Final = 0.2
MIN_RTO: Final = 0.04
MAX_RTO: Final = 2.0
_OVERTAKEN: Final = 3

Payload = bytes | bytearray | memoryview
Packet = tuple[Payload, ...]


@dataclass
class Stats:
    """What a communicator has sent and received. Bytes are UDP payload: netsum header and gradients."""

    blocks: int = 0
    packets_sent: int = 0
    packets_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    retransmissions: int = 0
    fast_retransmissions: int = 0
    duplicates: int = 0
    stale: int = 0
    refused: int = 0
    malformed: int = 0
    notices: int = 0
    redone: int = 0
    rtt: float = 0.0
    refusals: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Block:
    """One contribution. ``room`` is how many bytes of zeros an empty one carries where a result with payload is
    expected (a result leaves the switch only in a packet that had room for it). ``on_result`` gets the result's header and
    payload; the payload is valid during the call only."""

    gen: int
    op: Op
    lane: Lane
    payload: Payload = b""
    status: Status = Status.OK
    dest: int = EVERYONE
    room: int = 0
    final: bool = False
    on_result: Callable[[Header, memoryview], None] | None = None


@dataclass(slots=True)
class _Sent:
    block: Block
    packet: Packet
    first: float
    last: float
    timeout: float
    tries: int = 1
    fast: bool = False


class Refusal(Exception):
    """The switch refused a block for good; ``reason`` is the Outcome."""

    def __init__(self, serial: int, reason: int) -> None:
        self.serial = serial
        self.reason = Outcome(reason) if reason in Outcome._value2member_map_ else None
        super().__init__(f"block {serial} refused: {self.reason.name if self.reason else reason}")


_RETRIED: Final = frozenset({Outcome.UNKNOWN_JOB, Outcome.NOT_MEMBER})


class Window:
    """One member's window over one epoch of a job."""

    def __init__(self, descriptor: Descriptor, join_deadline: float = 0.0) -> None:
        """``join_deadline``: until then UNKNOWN_JOB and NOT_MEMBER are taken for a controller that is not done yet."""
        self._job_id = descriptor.job_id
        self._src_id = descriptor.src_id
        self._rank = descriptor.rank
        self._first_id = descriptor.first_block_id
        self._size = descriptor.window
        self._join_deadline = join_deadline
        self._queue: deque[Block] = deque()
        self._sent: dict[int, _Sent] = {}
        self._kept: dict[int, Packet] = {}
        self._kept_from = 0
        self._held: set[int] = set()  # held beyond `base`
        self._alarm = float("inf")  # nothing times out before
        self._again: deque[int] = deque()
        self.base = 0  # every result below is held
        self.next_serial = 0  # of the next block to be sent
        self.submitted = 0
        self._srtt: float | None = None
        self._rttvar = 0.0
        self._rto = INITIAL_RTO
        self.stats = Stats()

    @property
    def idle(self) -> bool:
        """Nothing is queued and every result is held."""
        return not self._queue and not self._sent

    @property
    def queued(self) -> int:
        """Blocks that wait for the window."""
        return len(self._queue)

    def block_id(self, serial: int) -> int:
        """A block's id on the wire."""
        return (self._first_id + serial) & ID_MASK

    def submit(self, block: Block) -> int:
        """Queue the next block; returns its serial."""
        self._queue.append(block)
        serial = self.submitted
        self.submitted += 1
        return serial

    def poll(self, now: float) -> list[Packet]:
        """What is to be sent now: timed-out blocks again, then new ones as far as the window goes."""
        packets: list[Packet] = []
        self._time_out(now)
        while self._again:
            sent = self._sent.get(self._again.popleft())
            if sent is not None:
                self.stats.retransmissions += 1
                sent.last = now
                sent.tries += 1
                packets.append(sent.packet)
        while self._queue and self.next_serial < self.base + self._size:
            block = self._queue.popleft()
            packet = self._pack(self.next_serial, block, block.room)
            self._sent[self.next_serial] = _Sent(block, packet, now, now, self._rto)
            self._alarm = min(self._alarm, now + self._rto)
            self.next_serial += 1
            self.stats.blocks += 1
            packets.append(packet)
        self.stats.packets_sent += len(packets)
        self.stats.bytes_sent += sum(len(part) for packet in packets for part in packet)
        return packets

    def next_deadline(self) -> float | None:
        """When :meth:`poll` may have something to send although nothing arrives; None while nothing is outstanding."""
        return self._alarm if self._sent else None

    def _time_out(self, now: float) -> None:
        if now < self._alarm:
            return
        alarm = float("inf")
        for serial, sent in self._sent.items():
            due = sent.last + sent.timeout
            if due <= now:
                sent.timeout = min(2 * max(sent.timeout, self._rto), MAX_RTO)
                self._again.append(serial)
                due = now + sent.timeout
            alarm = min(alarm, due)
        self._alarm = alarm

    def overrule(self, status: Status) -> list[Packet]:
        """Empty contributions with ``status`` to every outstanding block, in place of what was sent; not retransmitted."""
        packets = []
        for serial, sent in self._sent.items():
            block = Block(sent.block.gen, sent.block.op, sent.block.lane, status=status, dest=sent.block.dest)
            packets.append(self._pack(serial, block, 0))
        return packets

    def _pack(self, serial: int, block: Block, room: int) -> Packet:
        header = pack_header(
            Header(
                job_id=self._job_id,
                block_id=self.block_id(serial),
                final=int(block.final),
                src_id=self._src_id,
                src_cnt=1,
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
        """Take a packet from the switch. :class:`Refusal` when it refused a block for good; anything else that makes no
        sense is counted and ignored."""
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
        ahead = (header.block_id - self.block_id(self.base)) & ID_MASK
        serial = self.base + (ahead if ahead < 1 << 31 else ahead - (1 << 32))
        sent = self._sent.get(serial)
        if sent is None:
            if 0 <= serial < self.next_serial:
                stats.duplicates += 1
            else:
                stats.malformed += 1
            return
        if header.status == Status.REFUSED:
            self._refused(serial, header, now)
        elif header.status == Status.STALE:
            # Of a block that is still needed: in wait mode the epoch has moved on without us.
            stats.stale += 1
            raise Refusal(serial, Outcome.STALE)
        elif header.gen_id != sent.block.gen or header.status > Status.MISMATCH:
            stats.malformed += 1
        else:
            self._result(serial, sent, header, packet[HEADER_BYTES:], now)

    def _refused(self, serial: int, header: Header, now: float) -> None:
        self.stats.refused += 1
        refusal = Refusal(serial, header.age_op)
        name = refusal.reason.name if refusal.reason else str(header.age_op)
        self.stats.refusals[name] = self.stats.refusals.get(name, 0) + 1
        if refusal.reason in _RETRIED and now < self._join_deadline:
            return  # the timer sends it again
        raise refusal

    def _result(self, serial: int, sent: _Sent, header: Header, payload: memoryview, now: float) -> None:
        size = header.payload_bytes
        if size > len(payload):
            self.stats.malformed += 1
            return
        for_me = header.dest in (EVERYONE, self._rank)
        if header.status == Status.OK and for_me and header.data_cnt and not size:
            self._fetch(serial, sent)
            return
        self._sample(sent, now)
        del self._sent[serial]
        self._kept[serial] = sent.packet
        if sent.block.on_result is not None:
            sent.block.on_result(header, payload[:size])
        self._hold(serial)
        self._find_overtaken(serial, sent.first)

    def _fetch(self, serial: int, sent: _Sent) -> None:
        """The result is in the slot but did not fit the packet that brought the news: ask with one that has room."""
        self.stats.notices += 1
        if not sent.block.payload:
            sent.packet = self._pack(serial, sent.block, max(sent.block.room, 4096))
        self._again.append(serial)

    def _hold(self, serial: int) -> None:
        if serial != self.base:
            self._held.add(serial)
            return
        self.base += 1
        while self.base in self._held:
            self._held.remove(self.base)
            self.base += 1
        while self._kept_from < self.base - self._size:
            self._kept.pop(self._kept_from, None)
            self._kept_from += 1

    def _find_overtaken(self, serial: int, first: float) -> None:
        if serial < self.base + _OVERTAKEN:
            return
        oldest = self._sent.get(self.base)
        if oldest is not None and not oldest.fast and oldest.tries == 1 and oldest.last <= first:
            oldest.fast = True
            self.stats.fast_retransmissions += 1
            self._again.append(self.base)

    def _sample(self, sent: _Sent, now: float) -> None:
        if sent.tries > 1:
            return
        rtt = now - sent.first
        if self._srtt is None:
            self._srtt, self._rttvar = rtt, rtt / 2
        else:
            self._rttvar += (abs(self._srtt - rtt) - self._rttvar) / 4
            self._srtt += (rtt - self._srtt) / 8
        self._rto = min(max(self._srtt + 4 * self._rttvar, MIN_RTO), MAX_RTO)
        self.stats.rtt = self._srtt


__all__ = ["UDP_PORT", "Block", "Packet", "Refusal", "Stats", "Window"]
