"""In what order a shard's instructions are done, and when their replies may leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from netsum_memory.message import Address, Message, Send
from netsum_memory.shard import Shard
from netsum_memory.windows import Absent


class Ordering(Protocol):
    """A pure state machine for each shard; every method returns packets to send. ``now`` is in seconds. What comes in has been
    checked: the key, the epoch, the instruction itself."""

    @property
    def position(self) -> int:
        """Of the last instruction in the shard's log here."""

    @property
    def ready(self) -> bool:
        """Whether, in this epoch, nothing is acknowledged to a client that this device does not have."""

    @property
    def readable(self) -> bool:
        """Whether this device is the primary, and what is executed may be shown as it is now. Ordinary READs then do not come
        to :meth:`read`."""

    def change(self, asked: Message, sender: Address, now: float) -> list[Send]:
        """An instruction that changes memory: from a client, at the primary as at the backups, for the first time or again."""

    def read(self, asked: Message, now: float) -> list[Send]:
        """One that changes nothing, at the primary: done by :meth:`Shard.look`, at once or when everything that it would
        show is there to stay."""

    def hear(self, told: Message, sender: Address, now: float) -> list[Send]:
        """ORDER, ACK, RECORD and STORE, from a device of the group."""

    def tend(self, now: float) -> list[Send]:
        """Time passes."""

    def regroup(self, now: float) -> list[Send]:
        """The shard has been assigned anew: another epoch, another group."""


class Alone:
    """The only device of its shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    @property
    def position(self) -> int:
        return self._shard.position + len(self._shard.tail)

    @property
    def ready(self) -> bool:
        return self._shard.whole

    @property
    def readable(self) -> bool:
        return self._shard.primary

    def change(self, asked: Message, sender: Address, now: float) -> list[Send]:  # noqa: ARG002
        noted = self._shard.known(asked.header)
        if noted is Absent.NEW:
            self._shard.append(self._shard.position + 1, self._shard.epoch, asked)
            return self._shard.answers(self._shard.apply())
        return self._shard.answers(self._shard.repeated(asked.header, noted))

    def read(self, asked: Message, now: float) -> list[Send]:  # noqa: ARG002
        return self._shard.look(asked)

    def hear(self, told: Message, sender: Address, now: float) -> list[Send]:  # noqa: ARG002
        return []

    def tend(self, now: float) -> list[Send]:  # noqa: ARG002
        return []

    def regroup(self, now: float) -> list[Send]:  # noqa: ARG002
        while self._shard.tail:  # of an epoch in which there were others
            self._shard.apply()
        return []


OrderingFactory = Callable[[Shard], Ordering]
