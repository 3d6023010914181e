"""An append-only file that shows which entries are whole, even if the process was killed at any instant.

An entry is its length, its CRC-32 and its bytes. Those of a batch are written together.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from netsum_memory.errors import DeviceError

_FRAME: Final = struct.Struct("<II")
_MOST: Final = 1024
"""Parts per system call (IOV_MAX)."""


class Journal:
    """One file, open for adding.

    Attributes:
        size: of the file.
        added: entries by this process.
    """

    def __init__(self, path: Path, *, fsync: bool = False) -> None:
        """``fsync``: what :meth:`commit` has written survives a power failure, too. Raises OSError."""
        self.path, self._fsync = path, fsync
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self._file).st_size
        if fsync:
            sync(path.parent)
        self.added = 0
        self._waiting: list[bytes] = []

    def add(self, head: bytes, body: bytes = b"") -> None:
        """Add an entry of two parts, to be written by :meth:`commit`."""
        frame = _FRAME.pack(len(head) + len(body), zlib.crc32(body, zlib.crc32(head)))
        self.added += 1
        self._waiting += (frame + head, body)

    def commit(self) -> None:
        """Write what was added. Raises :class:`DeviceError`, after which nothing more may be answered."""
        if not self._waiting:
            return
        parts, self._waiting = self._waiting, []
        try:
            for start in range(0, len(parts), _MOST):
                self._write(parts[start : start + _MOST])
            if self._fsync:
                os.fdatasync(self._file)
        except OSError as error:
            raise DeviceError(
                f"cannot write {self.path}: {error.strerror}; what was not answered has not been done"
            ) from error

    def _write(self, parts: Sequence[bytes]) -> None:
        written = os.writev(self._file, parts)
        if written < sum(map(len, parts)):  # the disk may be full: then it will say so
            rest = b"".join(parts)[written:]
            while rest:
                more = os.write(self._file, rest)
                rest, written = rest[more:], written + more
        self.size += written

    def close(self) -> None:
        os.close(self._file)


def sync(path: Path) -> None:
    """Force a file's bytes, or a folder's entries, to the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def entries(path: Path) -> Iterator[bytes]:
    """The whole entries of a journal. What a killed process has left behind them, at most one batch cut short, is cut off
    (nothing that was in it was answered). Raises :class:`DeviceError` if the file is damaged before its end."""
    with path.open("r+b") as file:
        total, at = file.seek(0, os.SEEK_END), 0
        file.seek(0)
        while at < total:
            frame = file.read(_FRAME.size)
            if len(frame) < _FRAME.size:
                break
            size, crc = _FRAME.unpack(frame)
            if at + _FRAME.size + size > total:
                break
            body = file.read(size)
            end = at + _FRAME.size + size
            if zlib.crc32(body) != crc or not size:
                if end < total and any(frame + body):
                    raise DeviceError(
                        f"{path} is damaged at byte {at} of {total}: put it right from a copy, or give this device another folder"
                    )
                break
            at = end
            yield body
        file.truncate(at)
