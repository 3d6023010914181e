# SPDX-License-Identifier: MIT
"""Messages between two ranks, and what each rank keeps of a message in flight."""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from netsum.numeric.fixed_point import Array


class MessageKind(IntEnum):
    """The kinds of messages: the eager and the rendezvous protocol of MPI libraries."""

    EAGER = 0  # a whole message
    RTS = 1  # request to send: a message of this size waits for a tensor
    CTS = 2  # clear to send
    REJECT = 3  # the tensor has another size or type
    DATA = 4  # bytes of a message that was cleared


ENVELOPE: Final = struct.Struct(">BqQQ16s")


class Envelope(NamedTuple):
    """The head of a message: its kind; torch's tag; the message's number, which the sender gives it; the message's size in bytes,
    or where this part begins; the name of its elements' type."""

    kind: int
    tag: int
    number: int
    size: int = 0
    type: bytes = b""


def element_type(array: Array) -> str:
    """The name of the type of a tensor's elements, from the array that it is lent as."""
    name: str = (array.dtype.names or (array.dtype.name,))[0]
    return name.removeprefix("torch.")


class Request:
    """A send or a receive in progress, as :class:`netsum.Work` is a call: ``value`` is the rank that a message came from."""

    def __init__(self, rank: int | None, waits_for: str, deadline: float) -> None:
        self.rank = rank
        self.waits_for = waits_for
        self.deadline = deadline
        self._value: int | None = None
        self._error: Exception | None = None
        self._done = threading.Event()

    def finish(self, error: Exception | None = None, value: int | None = None) -> None:
        if not self._done.is_set():
            self._error, self._value = error, value
            self._done.set()

    def done(self) -> bool:
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> int | None:
        if not self._done.wait(timeout):
            raise TimeoutError(f"waiting for {self.waits_for}: still in progress after {timeout} s")
        if self._error is not None:
            raise self._error
        return self._value


@dataclass
class Sending:
    rank: int
    number: int
    data: Array
    request: Request
    sent: int = 0


@dataclass
class Unexpected:
    """A message that no receive waits for yet: with its ``data``, or announced by the sender under a ``number``."""

    source: int
    tag: int
    size: int
    type: str
    number: int = 0
    data: bytes | None = None


@dataclass(eq=False)
class Receiving:
    """``rank`` is the sender, None for any rank; ``source`` whose message it is, once known."""

    rank: int | None
    tag: int
    into: Array
    type: str
    request: Request
    source: int | None = None
    filled: int = 0

    def wants(self, message: Unexpected) -> bool:
        return self.tag == message.tag and self.rank in (None, message.source)

    def fill(self, start: int, data: memoryview) -> bool:
        """Put a part in its place; returns whether all are there."""
        self.into[start : start + len(data)] = data
        self.filled += len(data)
        return self.filled == len(self.into)
