"""A rank of a job, packet by packet: netsum's own window (:mod:`netsum.window`), which is told the simulated time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from netsum.collectives.partition import GROUP
from netsum.descriptor import Descriptor
from netsum.packet_batch import ReceiveBatch
from netsum.window.block import Block
from netsum.window.switch_window import SwitchWindow
from netsum.wire.codec import Header, parse_header
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, Lane, Op

from netsum_planner.simulator.packet_switch import Contribution
from netsum_planner.simulator.packet_wire import Clock

Send = Callable[[Contribution, bool], None]
Over = Callable[["PacketHost"], None]

_OPENING: Final = memoryview(bytes(CHUNK_BYTES))
_MOST: Final = GROUP
"""A call submits more blocks when fewer than this wait for the window."""


class PacketHost:
    """Makes one allreduce of ``blocks`` blocks after the other: it agrees on the call with one small block, and then sends the
    others as fast as the window takes them. ``pause`` seconds pass before it sends a packet, and before it takes one.

    Attributes:
        window: its window.
        marked: results that bore a mark (ECN).
    """

    def __init__(
        self, name: str, descriptor: Descriptor, job: int, clock: Clock, pause: float, send: Send, over: Over
    ) -> None:
        self.name = name
        self.rank = descriptor.rank
        self.window = SwitchWindow(descriptor)
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
        while self._left and self.window.queued < _MOST:
            group = min(self._left, GROUP)
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
            self.window.receive_all(ReceiveBatch.of([data], 1), self._clock.now)
        else:
            self.window.receive(memoryview(data), self._clock.now)
        self._refill()
        self._pump()

    def _pump(self) -> None:
        """Send what the window has to send, and set the alarm for its next time."""
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
