# SPDX-License-Identifier: MIT
"""In what order and when a shard's instructions are done, and when their replies may leave: as the devices of its group
agree."""

from __future__ import annotations

from netsum.wire.memory import MemoryHeader, MemoryStatus

from netsum_memory.execute import Result
from netsum_memory.message import Address, MemoryMessage, Send
from netsum_memory.replication import messages
from netsum_memory.replication.log import Log, LogRecord
from netsum_memory.replication.replica import Replica
from netsum_memory.shard import Contents, Reply, Shard

WAIT = 0.05
"""Seconds between checks for messages that may have been lost."""


class Ordering:
    """The shard's :class:`~netsum_memory.replication.replica.Replica`, with packets. What comes in has been checked: the key and
    the instruction itself. What is to be sent, :meth:`leave` gives after a batch of packets. ``now`` is in seconds.

    Attributes:
        position: the end of the log.
        ready: whether, in this epoch, nothing is acknowledged to a client that this device does not have.
        readable: whether this device is the primary, and what is executed may be shown as it is now. Ordinary READs then do
            not come to :meth:`read`.
    """

    def __init__(self, shard: Shard) -> None:
        """``shard`` as it is, after a restart with the end of its log."""
        self._shard = shard
        log: Log[MemoryMessage] = Log(shard.position + 1)
        for epoch, message in shard.tail:
            log.append(LogRecord(epoch, message))
        self._replica = Replica(Contents(shard), log, committed=shard.position, epoch=shard.epoch)
        self._replica.whole = shard.whole
        self._tended = 0.0

    @property
    def position(self) -> int:
        return self._replica.position

    @property
    def ready(self) -> bool:
        return self._replica.ready

    @property
    def vouched(self) -> int:
        """The position up to which this device has said, in this epoch, that it has the log."""
        return self._replica.vouched

    def lacks(self, shown: int, epoch: int) -> bool:
        """True if something is gone from here; ``shown`` is a position that some client was told is done, ``epoch`` that of its
        request."""
        return self._replica.lacks(shown, epoch)

    @property
    def readable(self) -> bool:
        return self._replica.readable

    def change(self, request: MemoryMessage) -> None:
        """An instruction that changes memory: from a client, at the primary or a backup, new or repeated."""
        if len(request.segments) > messages.RECORD_SEGMENTS:
            self._answer(request, MemoryStatus.MALFORMED)
        else:
            self._replica.change(request, request.header.epoch)

    def read(self, request: MemoryMessage) -> None:
        """One that only reads, at the primary: done at once, or once everything that it would show is final."""
        if not self._replica.read(request, request.header.epoch):
            self._answer(request, MemoryStatus.BUSY)

    def _answer(self, request: MemoryMessage, status: MemoryStatus) -> None:
        self._replica.reply(self._shard.answers([Reply(request.header, Result(status))]))

    def receive(self, packet: MemoryMessage, sender: Address) -> None:
        """The message of another device."""
        peer_message = messages.parse(packet)
        number = next((at for at, peer in enumerate(self._shard.group) if peer.address == sender), None)
        if peer_message is not None and number is not None:
            self._replica.receive(number, peer_message)

    def tend(self, now: float) -> bool:
        """Time passes; whether that changes anything."""
        if now - self._tended < WAIT:
            return False
        self._tended = now
        self._replica.tend()
        return True

    def regroup(self, now: float) -> None:
        """The shard has been assigned anew: another epoch, another group."""
        self._tended = now
        self._replica.regroup(self._shard.epoch, [peer.joining for peer in self._shard.group], self._shard.number)

    def take_output(self) -> list[Send]:
        """Execute what may be executed; returns the replies and the packets for the other devices."""
        sends, peer_messages = self._replica.take_output()
        if not peer_messages:
            return sends
        shard = self._shard
        region, number = shard.id
        blank = MemoryHeader(0, key=shard.region.keys.device, shard=number, region=region, replica=shard.number)
        return sends + [(shard.group[to].address, messages.pack(peer_message, blank)) for to, peer_message in peer_messages]
