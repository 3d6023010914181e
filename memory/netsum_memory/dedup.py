# SPDX-License-Identifier: MIT
"""The replies to each client's last instructions, so that none is done twice.

A client sends instruction s once all up to s - CLIENT_WINDOW are complete, so what is older than that is a late copy. Everything
here follows from the order of the shard's log alone, and is the same on all its devices.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from enum import Enum
from typing import Final, NamedTuple

from netsum.wire.memory import CLIENT_WINDOW, MemoryHeader

from netsum_memory.execute import Result

CLIENTS: Final = 4096
"""Clients that a shard remembers; the one that has been idle longest is forgotten first."""

_HALF: Final = 1 << 31
_WHOLE: Final = 1 << 32
_CLIENT: Final = struct.Struct(">QIH")
_ENTRY: Final = struct.Struct(">IBBBBQQQH")
_WAITING: Final = 255  # in place of a status


class Absent(Enum):
    """The reason why there is no reply."""

    NEW = 0  # it has not been done
    EXPIRED = 1  # it was done, or given up, long ago


NEW, EXPIRED = Absent.NEW, Absent.EXPIRED
"""By names that are quick to look up, since every packet is held against them."""


class Noted(NamedTuple):
    """An instruction that was done: as much of its request as a reply repeats, and the result; None as long as that waits for
    another instruction."""

    instruction: int
    lane: int
    address: int
    argument: int
    result: Result | None

    def header(self, client: int, sequence: int, region: int, shard: int) -> MemoryHeader:
        return MemoryHeader(
            self.instruction,
            self.address,
            client=client,
            sequence=sequence,
            lane=self.lane,
            argument=self.argument,
            region=region,
            shard=shard,
        )


class _Window:
    """One client's."""

    __slots__ = ("newest", "noted")

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self.noted: dict[int, Noted] = {}

    def age(self, sequence: int) -> int:
        """The distance behind the newest one; negative if ahead. Numbers wrap."""
        return (self.newest - sequence + _HALF) % _WHOLE - _HALF

    def add(self, sequence: int, noted: Noted) -> None:
        if self.age(sequence) < 0:
            self.newest = sequence
        self.noted[sequence] = noted
        if len(self.noted) >= 2 * CLIENT_WINDOW:
            self.prune()

    def prune(self) -> None:
        self.noted = {number: noted for number, noted in self.noted.items() if self.age(number) < CLIENT_WINDOW}


class DedupWindows:
    """The clients of one shard."""

    def __init__(self, most: int = CLIENTS) -> None:
        self._most = most
        self._windows: OrderedDict[int, _Window] = OrderedDict()

    def __len__(self) -> int:
        return len(self._windows)

    def find(self, client: int, sequence: int) -> Noted | Absent:
        window = self._windows.get(client)
        if window is None:
            return NEW
        if window.age(sequence) >= CLIENT_WINDOW:
            return EXPIRED
        return window.noted.get(sequence, NEW)

    def note(self, header: MemoryHeader, result: Result | None) -> None:
        window = self._windows.get(header.client)
        if window is None:
            window = self._windows[header.client] = _Window(header.sequence)
            if len(self._windows) > self._most:
                self._windows.popitem(last=False)
        else:
            self._windows.move_to_end(header.client)
        window.add(header.sequence, Noted(header.instruction, header.lane, header.address, header.argument, result))

    def settle(self, client: int, sequence: int, result: Result) -> Noted | None:
        """Set the result of an earlier instruction that waited; returns the instruction, or None if it is forgotten."""
        noted = self.find(client, sequence)
        if isinstance(noted, Absent):
            return None
        settled = noted._replace(result=result)
        self._windows[client].noted[sequence] = settled
        return settled

    def save(self) -> bytes:
        """The same on all devices that have executed the same log."""
        parts = []
        for client, window in self._windows.items():
            window.prune()
            parts.append(_CLIENT.pack(client, window.newest, len(window.noted)))
            parts += [_pack(sequence, noted) for sequence, noted in window.noted.items()]
        return b"".join(parts)

    @classmethod
    def load(cls, saved: bytes, most: int = CLIENTS) -> DedupWindows:
        windows, at = cls(most), 0
        while at < len(saved):
            client, newest, count = _CLIENT.unpack_from(saved, at)
            at += _CLIENT.size
            window = windows._windows[client] = _Window(newest)
            for _ in range(count):
                sequence, noted, at = _unpack(saved, at)
                window.noted[sequence] = noted
        return windows


_NO_CHANGE: Final = 255  # in place of a lane
_SAME: Final = (1 << 64) - 1  # in place of an argument


def _pack(sequence: int, noted: Noted) -> bytes:
    result = noted.result
    status = _WAITING if result is None else int(result.status)
    payload = b"" if result is None else result.payload
    lane = _NO_CHANGE if result is None or result.lane is None else int(result.lane)
    argument = _SAME if result is None or result.argument is None else result.argument
    start = _ENTRY.pack(
        sequence, noted.instruction, noted.lane, status, lane, noted.address, noted.argument, argument, len(payload)
    )
    return start + payload


def _unpack(saved: bytes, at: int) -> tuple[int, Noted, int]:
    sequence, instruction, lane, status, other_lane, address, argument, other, size = _ENTRY.unpack_from(saved, at)
    at += _ENTRY.size
    result = None
    if status != _WAITING:
        result = Result(
            status,
            saved[at : at + size],
            None if other == _SAME else other,
            None if other_lane == _NO_CHANGE else other_lane,
        )
    return sequence, Noted(instruction, lane, address, argument, result), at + size
