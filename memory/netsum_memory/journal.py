"""A file that entries are added to and that tells, after the process was killed at any instant, which ones are whole.

An entry is its length, its CRC-32 and its bytes. Those of a batch are written together.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from netsum_memory.errors import DeviceError

_FRAME: Final = struct.Struct("<II")
_READ: Final = 1 << 20


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
            sync_folder(path.parent)
        self.added = 0
        self._waiting: list[bytes] = []

    def add(self, *parts: bytes) -> None:
        """Add an entry, to be written by :meth:`commit`."""
        size, crc = 0, 0
        for part in parts:
            size, crc = size + len(part), zlib.crc32(part, crc)
        self.added += 1
        self._waiting += (_FRAME.pack(size, crc), *parts)

    def commit(self) -> None:
        """Write what was added. Raises :class:`DeviceError`, after which nothing more may be answered."""
        if not self._waiting:
            return
        rest = memoryview(b"".join(self._waiting))
        self._waiting.clear()
        try:
            while rest:
                written = os.write(self._file, rest)
                self.size += written
                rest = rest[written:]
            if self._fsync:
                os.fdatasync(self._file)
        except OSError as error:
            raise DeviceError(
                f"cannot write {self.path}: {error.strerror}; what was not answered has not been done"
            ) from error

    def close(self) -> None:
        os.close(self._file)


def sync_folder(folder: Path) -> None:
    """Have the disk know which files there are. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
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
