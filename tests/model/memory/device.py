# SPDX-License-Identifier: MIT
"""A device of the model: the real replica over a memory that remembers all that was ever done to it."""

from __future__ import annotations

from typing import NamedTuple

from netsum_memory.replication.backup import Backup
from netsum_memory.replication.log import Log, LogRecord
from netsum_memory.replication.primary import Primary
from netsum_memory.replication.replica import Replica

Name = tuple[int, int]
Reply = tuple[Name, int]
"""Whose instruction, and the last position whose effect the reply shows."""


class Asked(NamedTuple):
    """An instruction: no two have effects that commute, since the memory is the history itself."""

    name: Name
    reads: bool = False


class HistoryCopy(NamedTuple):
    """One name a piece."""

    done: tuple[Name, ...]

    @property
    def pieces(self) -> int:
        return len(self.done)

    def piece(self, number: int) -> bytes:
        return bytes(self.done[number])


class History:
    """A memory whose contents are the names of all instructions done, in order."""

    def __init__(self) -> None:
        self.done: tuple[Name, ...] = ()

    def digest(self, message: Asked) -> int:
        return int(message.reads)

    def known(self, message: Asked) -> list[Reply] | None:
        if message.name not in self.done:
            return None
        return [(message.name, self.done.index(message.name) + 1)]

    def entered(self, epoch: int) -> None:
        pass

    def append(self, position: int, record: LogRecord[Asked]) -> None:
        pass

    def cut(self, position: int) -> None:
        pass

    def execute(self, position: int, message: Asked) -> list[Reply]:
        assert position == len(self.done) + 1
        self.done = (*self.done, message.name)
        return [(message.name, position)]

    def look(self, message: Asked) -> list[Reply]:
        return [(message.name, len(self.done))]

    def copy(self) -> HistoryCopy:
        return HistoryCopy(self.done)

    def begin(self, position: int) -> None:  # noqa: ARG002
        self.done = ()

    def piece(self, data: bytes) -> None:
        self.done = (*self.done, (data[0], data[1]))

    def finish(self, position: int) -> None:
        assert position == len(self.done)


class CarefulPrimary(Primary[Asked]):
    """Waits for who is joining only once it lacks nothing, and drops a copy that no device asks for at once."""

    lag = 0


class ModelReplica(Replica[Asked]):
    primary_role: type[Primary[Asked]] = CarefulPrimary
    backup_role: type[Backup[Asked]] = Backup


def restarted(before: ModelReplica, *, durable: bool) -> ModelReplica:
    """The device's process begins anew. All that is not in a journal is gone; what is there is executed again only so far as a
    checkpoint had it."""
    history = History()
    if not durable:
        return type(before)(history, keep=before.keep)
    log: Log[Asked] = before.log
    done = log.first - 1 if before.whole else 0
    history.done = before.machine.done[:done]  # type: ignore[attr-defined]
    after = type(before)(history, log, committed=done, epoch=before.epoch, keep=before.keep)
    after.whole = before.whole
    return after
