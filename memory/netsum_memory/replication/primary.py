# SPDX-License-Identifier: MIT
"""The primary's part: it assigns positions, and replies once all devices that count hold an instruction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Generic

from netsum_memory.replication.log import Copy, LogRecord, M
from netsum_memory.replication.messages import (
    Ack,
    Counted,
    Fetch,
    FetchPiece,
    Given,
    Offer,
    Order,
    OrderEntry,
    PeerMessage,
    Piece,
)

if TYPE_CHECKING:
    from netsum_memory.replication.replica import Replica

LAG: Final = 256
"""A joining device counts once it lacks no more records than this."""

READERS: Final = 1024
"""Reads that may wait until a new primary may answer them."""

ENTRIES: Final = 64
"""Entries of one ORDER, so that it fits a packet."""

IDLE: Final = 20
"""Calls of `tend` after which a copy that no device has requested is dropped."""


class Primary(Generic[M]):
    """For one epoch.

    Attributes:
        first: what the log held when the epoch began; some of it may have been acknowledged to clients, so no client reads
            before all that is executed.
        needed: the devices without which nothing is done.
        held: how far each device's log is known to be ours.
        executed: how far each device has executed it.
        pending: names of what is in the log and not executed.
    """

    ready = True
    lag = LAG

    def __init__(self, replica: Replica[M], others: Iterable[int], needed: set[int]) -> None:
        self.replica = replica
        self.needed = needed
        self.held = dict.fromkeys(others, 0)
        self.executed = dict(self.held)
        self.first = replica.log.end
        self.pending: set[tuple[int, int]] = set()
        self._counted: dict[int, int] = {}
        self._ordered = replica.committed
        self._waiting: dict[tuple[int, int], M] = {}
        self._copy: tuple[int, Copy] | None = None
        self._idle = 0

    @property
    def vouched(self) -> int:
        return self.replica.log.end

    def start(self) -> None:
        """Records of an earlier epoch at the log's end may have been acknowledged, so this primary finishes them."""
        self.inherit()
        pool = list(self.replica.pool.values())
        self.replica.pool.clear()
        for message in pool:
            self.change(message)

    def inherit(self) -> None:
        """Note what is in the log already, so that it is not done twice."""
        log = self.replica.log
        self.pending.update(record.message.name for record in log.between(self.replica.committed + 1, log.end))

    # --- what clients ask ---------------------------------------------------------------------------------------------

    def change(self, message: M) -> None:
        replies, name = self.replica.machine.known(message), message.name
        if replies is not None:
            self.replica.reply(replies)
        elif name not in self.pending:
            self.replica.append(LogRecord(self.replica.epoch, message))
            self.pending.add(name)

    def read(self, message: M) -> bool:
        """Take a read; False if too many wait already."""
        if self.may_read():
            self.replica.reply(self.replica.machine.look(message))
        elif len(self._waiting) >= READERS:
            return False
        else:
            self._waiting[message.name] = message
        return True

    def may_read(self) -> bool:
        return self.replica.committed >= self.first

    # --- what devices say ---------------------------------------------------------------------------------------------

    def receive(self, number: int, peer_message: PeerMessage) -> None:
        if number not in self.held:
            return
        if isinstance(peer_message, Ack):
            self._acknowledged(number, peer_message)
        elif isinstance(peer_message, Fetch):
            self._serve(number, peer_message)
        elif isinstance(peer_message, FetchPiece):
            self._serve_piece(number, peer_message)

    def _acknowledged(self, number: int, peer_message: Ack) -> None:
        end = self.replica.log.end
        self.held[number] = max(self.held[number], min(peer_message.position, end))
        self.executed[number] = max(self.executed[number], peer_message.executed)
        if number not in self.needed and end - self.held[number] <= self.lag:
            self.needed.add(number)
            self._counted[number] = end
        if number in self.needed and not peer_message.ready:
            self.replica.send(number, Counted(self.replica.epoch, self._counted.setdefault(number, end)))

    def _commit(self) -> None:
        reach = self.reach()
        if reach <= self.replica.committed:
            return
        done = self.replica.log.between(self.replica.committed + 1, reach)
        self.pending.difference_update([record.message.name for record in done])
        self.replica.reply(self.replica.execute(reach))
        self.replica.forget(min(reach - self.replica.keep, self._copy[0] + 1 if self._copy else reach))
        if self._waiting and self.may_read():
            waiting, self._waiting = self._waiting, {}
            for message in waiting.values():
                self.read(message)

    def reach(self) -> int:
        """The position up to which all devices that count hold the log."""
        return min((self.held[number] for number in self.needed), default=self.replica.log.end)

    def _serve(self, number: int, peer_message: Fetch) -> None:
        record = self.replica.log.at(peer_message.position)
        if record is not None:
            if peer_message.mine == record.epoch:
                self.replica.send(number, self._order(peer_message.position, peer_message.position))
            else:
                given = Given(self.replica.epoch, peer_message.position, record.epoch, record.message)
                self.replica.send(number, given)
        elif peer_message.position < self.replica.log.first:
            self._offer(number)

    # --- a copy for who is too far behind -----------------------------------------------------------------------------

    def _offer(self, number: int) -> None:
        if self._copy is None:
            self._copy = self.replica.committed, self.replica.machine.copy()
        self._idle = 0
        position, copy = self._copy
        self.replica.send(number, Offer(self.replica.epoch, position, copy.pieces))

    def _serve_piece(self, number: int, peer_message: FetchPiece) -> None:
        if self._copy is None or self._copy[0] != peer_message.position:
            self._offer(number)
            return
        self._idle = 0
        position, copy = self._copy
        if peer_message.number < copy.pieces:
            piece = copy.piece(peer_message.number)
            self.replica.send(number, Piece(self.replica.epoch, position, peer_message.number, piece))

    # --- orders -------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Execute what all have, and announce all new positions at once."""
        self._commit()
        end = self.replica.log.end
        while self._ordered < end:
            upto = min(end, self._ordered + ENTRIES)
            order = self._order(self._ordered + 1, upto)
            for number in self.held:
                self.replica.send(number, order)
            self._ordered = upto

    def _order(self, first: int, last: int) -> Order:
        entries = tuple(map(self._entry, self.replica.log.between(first, last))) if self.held else ()
        return Order(self.replica.epoch, first, entries, self.replica.log.end, self.replica.committed)

    def _entry(self, record: LogRecord[M]) -> OrderEntry:
        epoch, message = record
        return OrderEntry(epoch, self.replica.machine.digest(message), message.name)

    def tend(self) -> None:
        """Repeat orders to devices that lack something or do not know how far this one is."""
        end = self.replica.log.end
        for number, held in self.held.items():
            if held < end or self.executed[number] < self.replica.committed:
                first = max(held + 1, self.replica.log.first)
                self.replica.send(number, self._order(first, min(end, first + ENTRIES - 1)))
        self._idle += 1
        if self._idle > IDLE:
            self._copy = None
