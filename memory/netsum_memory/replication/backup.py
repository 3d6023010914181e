"""A backup's part: its log becomes the primary's, position by position, and it asks at once for what it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

from netsum_memory.replication.log import LogRecord, M
from netsum_memory.replication.messages import Ack, Ask, Counted, Given, Offer, Order, OrderEntry, PeerMessage, Piece
from netsum_memory.replication.transfer import Outstanding, SnapshotTransfer

if TYPE_CHECKING:
    from netsum_memory.replication.replica import Replica

AHEAD: Final = 4096
"""Positions beyond the log's end for which orders are kept."""

UNCOUNTED: Final = 1 << 64
"""Beyond any position: a joining device does not know yet from where on it counts."""


class Told(NamedTuple):
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
        self._told: dict[int, Told] = {}
        self._asking = Outstanding()
        self.joining = joining
        self.counted = UNCOUNTED if joining else 0
        self._loading: SnapshotTransfer | None = None
        self._owes_ack = False
        self._heard = False

    @property
    def ready(self) -> bool:
        return self.replica.whole and self.agreed >= self.counted

    @property
    def vouched(self) -> int:
        return self.agreed

    def start(self) -> None:
        self._owes_ack = True
        if not self.replica.whole:
            self._ask_for(0)  # this primary's copy, since that of another has come in part

    # --- what the primary says ----------------------------------------------------------------------------------------

    def receive(self, number: int, peer_message: PeerMessage) -> None:
        if number != 0:
            return
        self._heard = True
        if isinstance(peer_message, Order):
            self._ordered(peer_message)
        elif isinstance(peer_message, Given):
            self._came(peer_message.position)
            self._tell(peer_message.position, Told(peer_message.of, message=peer_message.message))
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
            self._tell(position, Told(entry.epoch, entry))
        self.end = max(self.end, peer_message.end)
        self.executed = max(self.executed, peer_message.committed)
        self._owes_ack = True

    def trusted(self) -> int:
        """The log up to here needs no comparison: a device that has counted all along holds all that the primary has
        executed."""
        return 0 if self.joining else min(self.executed, self.replica.log.end)

    def _tell(self, position: int, told: Told) -> None:
        if self.agreed < position <= self.agreed + AHEAD and self.replica.whole:
            before = self._told.get(position)
            if before is None or before.message is None:
                self._told[position] = told

    # --- the log ------------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Agree as far as possible, execute what all have, request what is missing."""
        before = self.agreed
        self.agreed = max(before, self.trusted())
        while (told := self._told.get(self.agreed + 1)) is not None and self._agree(self.agreed + 1, told):
            self.agreed += 1
        if self.agreed > before:
            self._asking.done(self.agreed)
            for position in range(before + 1, self.agreed + 1):
                self._told.pop(position, None)
            self._owes_ack = True
        self.replica.execute(min(self.executed, self.agreed))
        self.replica.forget(self.replica.committed - self.replica.keep)
        self._ask()

    def _agree(self, position: int, told: Told) -> bool:
        """True if the log has the primary's record there now. A record of another epoch there, and all behind it, was never
        acknowledged to any client, or the primary would have it."""
        mine = self.replica.log.at(position)
        if mine is not None and self.same(mine, told):
            return True
        message = self._message(told)
        if message is None:
            return False
        if mine is not None:
            self.replica.cut(position)
        self.replica.append(LogRecord(told.epoch, message))
        return True

    def same(self, mine: LogRecord[M], told: Told) -> bool:
        return mine.epoch == told.epoch

    def _message(self, told: Told) -> M | None:
        if told.entry is None:
            return told.message  # type: ignore[no-any-return]
        message = self.replica.pool.get(told.entry.name)
        if message is None or self.replica.machine.digest(message) != told.entry.digest:
            return None
        return message

    def _ask(self) -> None:
        if self.agreed >= self.end or not self.replica.whole:
            return
        wanted = (position for position in range(self.agreed + 1, self.end + 1) if self._lacks(position))
        for position in self._asking.more(wanted):
            self._ask_for(position)

    def _lacks(self, position: int) -> bool:
        told = self._told.get(position)
        if told is None:
            return position <= self.agreed + AHEAD
        mine = self.replica.log.at(position)
        return not (mine is not None and self.same(mine, told)) and self._message(told) is None

    def _came(self, position: int) -> None:
        for overdue in self._asking.came(position):
            self._ask_for(overdue)

    def _ask_for(self, position: int) -> None:
        mine = self.replica.log.at(position)
        self.replica.send(0, Ask(self.replica.epoch, position, mine.epoch if mine is not None else 0))

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
        self._told.clear()
        self._asking.again()
        replica.machine.begin(peer_message.position)
        self._loading = SnapshotTransfer(peer_message)
        self._load()

    def _load(self) -> None:
        loading, replica = self._loading, self.replica
        assert loading is not None
        for data in loading.take():
            replica.machine.piece(data)
        for peer_message in loading.asks(replica.epoch):
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
        self._asking.again()
        if self._loading is not None:
            self._loading.again()
            self._load()
        elif not self.replica.whole:
            self._ask_for(0)
        if not self._heard or not self.ready:
            self._owes_ack = True
