# SPDX-License-Identifier: MIT
"""COPY from another shard: the destination's primary reads the source like any client, and continues when the reply arrives.
Pure: packets and times come in, packets go out."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from netsum.wire.memory import AGAIN, CLIENT_WINDOW, Flag, Instruction, MemoryHeader, MemoryStatus

from netsum_memory.message import Address, MemoryMessage, Send

FIRST_WAIT: Final = 0.02
"""Seconds until the source is asked again; then twice as long, and so on."""
PATIENCE: Final = 2.0
"""Seconds after which the client is told to try again."""

Copied = Callable[[MemoryMessage, Address, MemoryStatus], None]
"""Takes the COPY, with the source's bytes as payload where the status is OK, and its sender."""


@dataclass
class _Copy:
    request: MemoryMessage
    sender: Address
    read: MemoryMessage
    to: Address
    done: Copied
    deadline: float
    due: float
    wait: float = FIRST_WAIT


class Copies:
    """The copies in flight."""

    def __init__(self) -> None:
        self.client = secrets.randbits(64)
        self._sequence = 0
        self._waiting: dict[int, _Copy] = {}
        self._names: set[tuple[int, int]] = set()

    def begin(self, request: MemoryMessage, sender: Address, to: Address, done: Copied, now: float) -> list[Send]:
        """Read the source of a COPY through ``to``, unless that is already in progress."""
        if request.name in self._names:
            return []
        if len(self._waiting) >= CLIENT_WINDOW:
            done(request, sender, MemoryStatus.BUSY)
            return []
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        header = request.header
        read = MemoryMessage(
            MemoryHeader(
                Instruction.READ,
                header.argument,
                header.length,
                header.key,
                client=self.client,
                sequence=self._sequence,
            )
        )
        self._waiting[self._sequence] = _Copy(request, sender, read, to, done, now + PATIENCE, now + FIRST_WAIT)
        self._names.add(request.name)
        return [(to, read.pack())]

    def receive(self, answer: MemoryMessage) -> bool:
        """Take a reply to one of our READs; False if no worker waits for it."""
        header = answer.header
        copy = self._waiting.get(header.sequence) if header.client == self.client else None
        if copy is None:
            return False
        if header.status in AGAIN:
            return True  # it is asked again in time
        if header.status == MemoryStatus.OK and len(answer.payload) != copy.request.header.length:
            return False
        self._end(header.sequence, MemoryStatus(header.status), answer.payload)
        return True

    def _end(self, sequence: int, status: MemoryStatus, payload: bytes = b"") -> None:
        copy = self._waiting.pop(sequence)
        self._names.discard(copy.request.name)
        copy.done(copy.request._replace(payload=payload), copy.sender, status)

    def tend(self, now: float) -> list[Send]:
        sends: list[Send] = []
        for sequence, copy in list(self._waiting.items()):
            if now >= copy.deadline:
                self._end(sequence, MemoryStatus.BUSY)
            elif now >= copy.due:
                copy.wait *= 2
                copy.due = now + copy.wait
                again = copy.read.header._replace(flags=Flag.REPEAT)
                sends.append((copy.to, copy.read._replace(header=again).pack()))
        return sends
