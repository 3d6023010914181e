# SPDX-License-Identifier: MIT
"""One device's part in one shard: its log, how far it is executed, and its role in the present epoch.

Instructions are executed once all devices that count have them in their logs, never before: so memory shows only what is
there to stay, a log's end can be cut off without undoing anything, and any device that counts may become the primary.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, Generic

from netsum_memory.replication.backup import Backup
from netsum_memory.replication.log import Log, LogRecord, M, StateMachine
from netsum_memory.replication.messages import PeerMessage
from netsum_memory.replication.primary import Primary

KEEP: Final = 1024
"""Executed records that a log keeps for devices that lack some."""

POOL: Final = 1024
"""Instructions that a device keeps until their order comes; a dropped one is requested later."""


class Replica(Generic[M]):
    """Methods take what happens; after any number of them, :meth:`leave` draws the conclusions, and gives what is to be sent
    once the journal is written.

    Attributes:
        epoch: of the group that this device was told last; 0 before the first.
        committed: position of the last executed instruction.
        whole: whether the contents are those as of ``committed``, not those of a copy that is still coming.
        behind: the newest epoch that a packet had, if the controller has not told us of it yet; else 0.
    """

    primary_role: type[Primary[M]] = Primary
    backup_role: type[Backup[M]] = Backup

    def __init__(
        self,
        machine: StateMachine[M],
        log: Log[M] | None = None,
        *,
        committed: int = 0,
        epoch: int = 0,
        keep: int = KEEP,
    ) -> None:
        self.machine = machine
        self.log: Log[M] = log if log is not None else Log()
        self.committed, self.epoch, self.keep = committed, epoch, keep
        self.whole = True
        self.behind = 0
        self.pool: OrderedDict[tuple[int, int], M] = OrderedDict()
        self.role: Primary[M] | Backup[M] | None = None
        self._peer_messages: list[tuple[int, PeerMessage]] = []
        self._replies: list[Any] = []

    @property
    def position(self) -> int:
        """The end of the log."""
        return self.log.end

    @property
    def ready(self) -> bool:
        """True if, in this epoch, nothing is acknowledged to a client that this device does not have."""
        return self.role is not None and self.role.ready

    @property
    def vouched(self) -> int:
        """The position up to which this device has said, in this epoch, that it has the log."""
        return self.role.vouched if self.role is not None and self.role.ready else 0

    def lacks(self, shown: int, epoch: int) -> bool:
        """True if something is gone from here. ``shown``: a position that some client was told is done. A device that counts
        had it in its log before the client was told, and only what no client was told of is ever cut off. In a later ``epoch``
        than ours, the switch's, this device may have been left out of the group, so there it says nothing."""
        return self.ready and epoch <= self.epoch and shown > self.log.end

    @property
    def primary(self) -> bool:
        return isinstance(self.role, Primary)

    @property
    def readable(self) -> bool:
        """True if what is executed may be shown: by the primary, once its log as it was is finished."""
        return isinstance(self.role, Primary) and self.role.may_read()

    # --- what happens -------------------------------------------------------------------------------------------------

    def regroup(self, epoch: int, joining: Sequence[bool], number: int) -> None:
        """The controller has told of a group: who in it is joining, and this device's number; 0 is the primary's. News of an
        earlier epoch, or known already, changes nothing."""
        if epoch < self.epoch or (epoch == self.epoch and self.role is not None):
            return
        again = epoch == self.epoch  # this process is new to it, the device is not
        if not again:
            self.machine.entered(epoch)
        self.epoch = epoch
        self.behind = 0 if self.behind <= epoch else self.behind
        if number:
            self.role = self.backup_role(self, joining=joining[number])
        else:
            others = range(1, len(joining))
            self.role = self.primary_role(self, others, {each for each in others if again or not joining[each]})
        self.role.start()

    def change(self, message: M, epoch: int) -> None:
        """An instruction that changes memory, from a client; ``epoch`` is the switch's, which may know of it before we do. What
        has a position has it in our own, and no device that has left that acknowledges it."""
        self._meets(epoch)
        if isinstance(self.role, Primary):
            self.role.change(message)
            return
        self.keep_for_later(message)

    def read(self, message: M, epoch: int) -> bool:
        """One that changes nothing. False: the client must ask again, for this is not the primary, or it has just begun and too
        many wait already."""
        self._meets(epoch)
        return isinstance(self.role, Primary) and self.role.read(message)

    def receive(self, number: int, peer_message: PeerMessage) -> None:
        """Receive a message from another device of the group."""
        self._meets(peer_message.epoch)
        if self.role is not None and self.concerns(peer_message):
            self.role.receive(number, peer_message)

    def tend(self) -> None:
        """Send again what may have been lost."""
        if self.role is not None:
            self.role.tend()

    def take_output(self) -> tuple[list[Any], list[tuple[int, PeerMessage]]]:
        """The packets for clients, and to devices by their numbers. The instructions of a batch are executed together here,
        and what was appended to logs is told of and acknowledged together."""
        if self.role is not None:
            self.role.finish()
        replies, self._replies = self._replies, []
        peer_messages, self._peer_messages = self._peer_messages, []
        return replies, peer_messages

    # --- for the roles ------------------------------------------------------------------------------------------------

    def send(self, number: int, peer_message: PeerMessage) -> None:
        self._peer_messages.append((number, peer_message))

    def reply(self, replies: Sequence[Any]) -> None:
        self._replies += replies

    def keep_for_later(self, message: M) -> None:
        """Its order is still to come, or this device still to become the primary."""
        if self.machine.known(message) is not None:
            return
        self.pool[message.name] = message
        if len(self.pool) > POOL:
            self.pool.popitem(last=False)

    def append(self, record: LogRecord[M]) -> None:
        self.log.append(record)
        self.machine.append(self.log.end, record)

    def cut(self, position: int) -> None:
        self.log.cut(position)
        self.machine.cut(position)

    def execute(self, upto: int) -> list[Any]:
        """Execute the log up to a position; returns the replies."""
        replies: list[Any] = []
        for record in self.log.between(self.committed + 1, upto):
            self.committed += 1
            replies += self.machine.execute(self.committed, record.message)
            if self.pool:
                self.pool.pop(record.message.name, None)
        return replies

    def forget(self, kept: int) -> None:
        """Drop executed records before ``kept``, many at a time."""
        if kept - self.log.first > self.keep:
            self.log.forget(kept)

    def concerns(self, peer_message: PeerMessage) -> bool:
        """Not if it is of another epoch. An old one this device has promised to have no part in any more; what a new one wants of
        us the controller will tell."""
        return peer_message.epoch == self.epoch

    def _meets(self, epoch: int) -> None:
        if epoch > self.epoch:
            self.behind = max(self.behind, epoch)
