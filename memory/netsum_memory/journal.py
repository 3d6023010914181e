# SPDX-License-Identifier: MIT
"""An append-only file of entries. Those of a batch are one frame (:mod:`netsum_memory.sealed`), which is written by one call.

So a killed process leaves at most one frame unfinished: its beginning, at the file's end. Nothing that was in it was answered.
Everything else that is wrong is damage.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from netsum_memory.errors import DeviceError
from netsum_memory.sealed import HEAD_BYTES, Head, Seal, damaged

_SIZE: Final = struct.Struct("<I")
_MOST: Final = 1024
"""Parts per system call (IOV_MAX)."""
_FIRST: Final = b"netsum-memory journal"
EMPTY_BYTES: Final = HEAD_BYTES + len(_FIRST)
"""Of a journal without entries."""
_SECTOR: Final = 512


class End(NamedTuple):
    """The end of a journal, and the seal of all that is in it."""

    size: int
    seal: int


class Journal:
    """One file, open for adding.

    Attributes:
        size: of the file.
        added: entries by this process.
    """

    def __init__(self, path: Path, incarnation: str, *, fsync: bool = False, new: bool = False) -> None:
        """``fsync``: what :meth:`commit` has written survives a power failure, too. A journal that is not ``new`` must be
        recovered before anything is added. Raises OSError."""
        self.path, self._fsync = path, fsync
        self._seal = Seal(incarnation, path.name)
        flags = os.O_CREAT | os.O_TRUNC if new else 0
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | flags, 0o600)
        self.size = os.fstat(self._file).st_size
        self.added = 0
        self._waiting: list[bytes] = []
        if new:
            self._append([_FIRST])
            if fsync:
                sync(path.parent)

    @property
    def end(self) -> End:
        return End(self.size, self._seal.value)

    def add(self, head: bytes, body: bytes = b"") -> None:
        """Add an entry of two parts, to be written by :meth:`commit`."""
        self.added += 1
        self._waiting += (_SIZE.pack(len(head) + len(body)) + head, body)

    def commit(self) -> None:
        """Write what was added. Raises :class:`DeviceError`, after which nothing more may be answered."""
        if not self._waiting:
            return
        parts, self._waiting = self._waiting, []
        try:
            self._append(parts)
        except OSError as error:
            raise DeviceError(f"cannot write {self.path}: {error.strerror}; what was not answered has not been done") from error

    def _append(self, body: Sequence[bytes]) -> None:
        parts = [self._seal.head(body), *body]
        for start in range(0, len(parts), _MOST):
            self._write(parts[start : start + _MOST])
        if self._fsync:
            os.fdatasync(self._file)

    def _write(self, parts: Sequence[bytes]) -> None:
        written = os.writev(self._file, parts)
        if written < sum(map(len, parts)):  # the disk may be full: then it will say so
            rest = b"".join(parts)[written:]
            while rest:
                more = os.write(self._file, rest)
                rest, written = rest[more:], written + more
        self.size += written

    def recover(self, *, end: End | None = None, power: bool = False) -> Iterator[bytes]:
        """The entries, in order. A frame that was not finished is cut off. ``end``: the device was ended in order, there.
        ``power``: the machine has ended since, and so some of the last frame may not have reached the disk. Raises
        :class:`DeviceError` if the file is damaged."""
        at = 0
        with self.path.open("rb") as file:
            while at < self.size:
                body = self._next(file, at, power=power)
                if body is None:
                    break
                if at:
                    yield from _entries(body)
                elif body != _FIRST:
                    raise damaged(self.path, "is no journal of netsum-memory")
                at += HEAD_BYTES + len(body)
        if at < EMPTY_BYTES:
            raise damaged(self.path, "has lost its beginning")
        if end is not None and (at < self.size or end != (at, self._seal.value)):
            raise damaged(self.path, f"ends at byte {self.size}, where it was ended at byte {end.size}")
        if at < self.size:
            os.ftruncate(self._file, at)
            self.size = at

    def _next(self, file: BinaryIO, at: int, *, power: bool) -> bytes | None:
        """The body of the frame that begins here, or None if that was not finished."""
        start, before = file.read(HEAD_BYTES), self._seal.value
        if len(start) < HEAD_BYTES:
            return None
        head = self._seal.opened(start)
        if head is None:
            if power and not any(start) and not any(file.read()):
                return None
            raise damaged(self.path, f"is damaged at byte {at} of {self.size}")
        body = file.read(head.size)
        if head.fits(body):
            return body
        if len(body) == head.size and not (power and self._is_last(head, at) and _lacks_a_sector(body, at)):
            raise damaged(self.path, f"is damaged at byte {at} of {self.size}")
        self._seal.value = before
        return None

    def _is_last(self, head: Head, at: int) -> bool:
        return at + HEAD_BYTES + head.size == self.size

    def close(self) -> None:
        os.close(self._file)


def _entries(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        (size,) = _SIZE.unpack_from(body, at)
        at += _SIZE.size + size
        yield body[at - size : at]


def _lacks_a_sector(body: bytes, at: int) -> bool:
    """True if a sector of the file is all zeros, as one is that was never written. Its part in the body counts."""
    start = at + HEAD_BYTES
    cuts = [0, *range(-start % _SECTOR or _SECTOR, len(body), _SECTOR), len(body)]
    return any(not any(body[begin:end]) for begin, end in pairwise(cuts))


def sync(path: Path) -> None:
    """Force a file's bytes, or a folder's entries, to the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
