# SPDX-License-Identifier: MIT
"""A backup's part: its log becomes the primary's, position by position, and it asks at once for what it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

from netsum_memory.replication.log import LogRecord, M
from netsum_memory.replication.messages import Ack, Counted, Fetch, Given, Offer, Order, OrderEntry, PeerMessage, Piece
from netsum_memory.replication.transfer import Outstanding, SnapshotTransfer

if TYPE_CHECKING:
    from netsum_memory.replication.replica import Replica

AHEAD: Final = 4096
"""Positions beyond the log's end for which orders are kept."""

UNCOUNTED: Final = 1 << 64
"""Beyond any position: a joining device does not know yet from where on it counts."""


class Ordered(NamedTuple):
    """The primary's word on a position: the record's epoch, and the instruction or its entry."""

    epoch: int
    entry: OrderEntry | None = None
    message: Any = None


class Backup(Generic[M]):
    """For one epoch.

    Attributes:
        agreed: how far this log is known to be the primary's: at first what is executed, for that is the same everywhere.
        end: the end of the primary's log, as far as known.
        executed: how far the primary has executed, as far as known.
        counted: the position from which on nothing is done without this device.
    """

    def __init__(self, replica: Replica[M], *, joining: bool) -> None:
        self.replica = replica
        self.agreed = self.end = replica.committed
        self.executed = 0
        self._orders: dict[int, Ordered] = {}
        self._outstanding = Outstanding()
        self.joining = joining
        self.counted = UNCOUNTED if joining else 0
        self._loading: SnapshotTransfer | None = None
        self._owes_ack = False
        self._in_contact = False

    @property
    def ready(self) -> bool:
        return self.replica.whole and self.agreed >= self.counted

    @property
    def vouched(self) -> int:
        return self.agreed

    def start(self) -> None:
        self._owes_ack = True
        if not self.replica.whole:
            self._fetch(0)  # this primary's copy, since that of another has come in part

    # --- what the primary says ----------------------------------------------------------------------------------------

    def receive(self, number: int, peer_message: PeerMessage) -> None:
        if number != 0:
            return
        self._in_contact = True
        if isinstance(peer_message, Order):
            self._ordered(peer_message)
        elif isinstance(peer_message, Given):
            self._came(peer_message.position)
            self._note(peer_message.position, Ordered(peer_message.of, message=peer_message.message))
        elif isinstance(peer_message, Counted):
            self.counted = min(self.counted, peer_message.position)
            self._owes_ack = True
        elif isinstance(peer_message, Offer):
            self._offered(peer_message)
        elif isinstance(peer_message, Piece) and self._loading is not None:
            self._loading.came(peer_message)
            self._load()

    def _ordered(self, peer_message: Order) -> None:
        for position, entry in enumerate(peer_message.entries, peer_message.first):
            self._note(position, Ordered(entry.epoch, entry))
        self.end = max(self.end, peer_message.end)
        self.executed = max(self.executed, peer_message.committed)
        self._owes_ack = True

    def trusted(self) -> int:
        """The log up to here needs no comparison: a device that has counted all along holds all that the primary has
        executed."""
        return 0 if self.joining else min(self.executed, self.replica.log.end)

    def _note(self, position: int, order: Ordered) -> None:
        if self.agreed < position <= self.agreed + AHEAD and self.replica.whole:
            before = self._orders.get(position)
            if before is None or before.message is None:
                self._orders[position] = order

    # --- the log ------------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Agree as far as possible, execute what all have, request what is missing."""
        before = self.agreed
        self.agreed = max(before, self.trusted())
        while (order := self._orders.get(self.agreed + 1)) is not None and self._agree(self.agreed + 1, order):
            self.agreed += 1
        if self.agreed > before:
            self._outstanding.done(self.agreed)
            for position in range(before + 1, self.agreed + 1):
                self._orders.pop(position, None)
            self._owes_ack = True
        self.replica.execute(min(self.executed, self.agreed))
        self.replica.forget(self.replica.committed - self.replica.keep)
        self._fetch_missing()

    def _agree(self, position: int, order: Ordered) -> bool:
        """True if the log has the primary's record there now. A record of another epoch there, and all behind it, was never
        acknowledged to any client, or the primary would have it."""
        mine = self.replica.log.at(position)
        if mine is not None and self.same(mine, order):
            return True
        message = self._message(order)
        if message is None:
            return False
        if mine is not None:
            self.replica.cut(position)
        self.replica.append(LogRecord(order.epoch, message))
        return True

    def same(self, mine: LogRecord[M], order: Ordered) -> bool:
        return mine.epoch == order.epoch

    def _message(self, order: Ordered) -> M | None:
        if order.entry is None:
            return order.message  # type: ignore[no-any-return]
        message = self.replica.pool.get(order.entry.name)
        if message is None or self.replica.machine.digest(message) != order.entry.digest:
            return None
        return message

    def _fetch_missing(self) -> None:
        if self.agreed >= self.end or not self.replica.whole:
            return
        wanted = (position for position in range(self.agreed + 1, self.end + 1) if self._lacks(position))
        for position in self._outstanding.more(wanted):
            self._fetch(position)

    def _lacks(self, position: int) -> bool:
        order = self._orders.get(position)
        if order is None:
            return position <= self.agreed + AHEAD
        mine = self.replica.log.at(position)
        return not (mine is not None and self.same(mine, order)) and self._message(order) is None

    def _came(self, position: int) -> None:
        for overdue in self._outstanding.came(position):
            self._fetch(overdue)

    def _fetch(self, position: int) -> None:
        mine = self.replica.log.at(position)
        self.replica.send(0, Fetch(self.replica.epoch, position, mine.epoch if mine is not None else 0))

    # --- a copy of everything -----------------------------------------------------------------------------------------

    def _offered(self, peer_message: Offer) -> None:
        if (self.replica.whole and peer_message.position <= self.agreed) or (
            self._loading is not None and self._loading.position == peer_message.position
        ):
            return
        replica = self.replica
        replica.whole = False
        replica.log.forget(replica.log.end + 1)
        replica.committed = self.agreed = 0
        self._orders.clear()
        self._outstanding.again()
        replica.machine.begin(peer_message.position)
        self._loading = SnapshotTransfer(peer_message)
        self._load()

    def _load(self) -> None:
        loading, replica = self._loading, self.replica
        assert loading is not None
        for data in loading.take():
            replica.machine.piece(data)
        for peer_message in loading.fetches(replica.epoch):
            replica.send(0, peer_message)
        if not loading.over:
            return
        self._loading = None
        replica.machine.finish(loading.position)
        replica.log.first = loading.position + 1
        replica.committed = self.agreed = loading.position
        replica.whole = True
        self.end = max(self.end, self.agreed)
        self._owes_ack = True

    # --- acknowledgments ---------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Advance as far as possible; one acknowledgment covers all that has come."""
        self._advance()
        if self._owes_ack:
            self._owes_ack = False
            self.replica.send(0, Ack(self.replica.epoch, self.agreed, self.replica.committed, self.ready))

    def tend(self) -> None:
        """Repeat the requests that have no answer."""
        self._outstanding.again()
        if self._loading is not None:
            self._loading.again()
            self._load()
        elif not self.replica.whole:
            self._fetch(0)
        if not self._in_contact or not self.ready:
            self._owes_ack = True
