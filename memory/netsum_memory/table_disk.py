# SPDX-License-Identifier: MIT
"""A table's rows on disk, in lmdb, each with its position in the log and a checksum.

lmdb has no checksums. The file also counts how often it was synced: a checkpoint knows the count, so an older file is told from
the one that belongs to it.
"""

from __future__ import annotations

import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from netsum.memory.client import Keys, mixed
from numpy.typing import NDArray

from netsum_memory.errors import DeviceError
from netsum_memory.optimizer_rules import Floats
from netsum_memory.sealed import damaged

# How often keys were used recently: TinyLFU's sketch (Einziger, Friedman, Manes, 2017), which admits rows to RAM.


_DEPTH: Final = 4
_MOST: Final = 15
_SAMPLE: Final = 10
"""Counters are halved after this many uses per row in RAM, so that old popularity fades."""
_SEEDS: Final = mixed(np.arange(1, _DEPTH + 1, dtype=np.uint64))[:, None]


class Frequency:
    """A count-min sketch with counters up to 15."""

    def __init__(self, capacity: int) -> None:
        """``capacity``: rows that fit."""
        width = 1 << max(6, (4 * capacity - 1).bit_length())
        self._mask = np.uint64(width - 1)
        self._counters = np.zeros((_DEPTH, width), np.uint8)
        self._rows = np.arange(_DEPTH)[:, None]
        self._sample, self._seen = _SAMPLE * capacity, 0

    def add(self, keys: Keys) -> None:
        """These keys are used once each."""
        places = self._places(keys)
        counters = self._counters[self._rows, places]
        self._counters[self._rows, places] = np.minimum(counters + np.uint8(1), _MOST)
        self._seen += keys.size
        if self._seen >= self._sample:
            self._counters >>= np.uint8(1)
            self._seen //= 2

    def of(self, keys: Keys) -> list[int]:
        """Estimates of the recent uses of each key; collisions can only add to it."""
        counted: list[int] = self._counters[self._rows, self._places(keys)].min(axis=0).tolist()
        return counted

    def _places(self, keys: Keys) -> Keys:
        return mixed(keys[None, :] ^ _SEEDS) & self._mask


_FIRST_SIZE: Final = 64 << 20
_BUFFER: Final = 256
"""Rows per transaction."""
_SYNCS: Final = b"syncs"
"""A name that no row has, since those are of 8 bytes."""
_CRC: Final = struct.Struct("<I")
_COUNT: Final = struct.Struct("<Q")


class Rows(NamedTuple):
    """Rows of a table: keys, the position of each row's last change in the shard's log (0: never changed), and values."""

    keys: Keys
    positions: Keys
    values: Floats

    def at(self, chosen: NDArray[Any]) -> Rows:
        return Rows(self.keys[chosen], self.positions[chosen], self.values[chosen])


class Disk:
    """One shard's file. Rows are written some hundreds at a time. Without ``fsync`` they are not forced to the disk: before a
    sync, they outlive the process, but not the machine."""

    def __init__(
        self,
        width: int,
        path: Path | None,
        most: int,
        before_writing: Callable[[], None] = lambda: None,
        buffer: int = _BUFFER,
        *,
        fsync: bool = False,
    ) -> None:
        """``path``: None if nothing is to outlive the process; then the file has no name, and goes with it. ``before_writing``
        has the journal keep what is about to be written, or a row could be further than the log. Raises OSError."""
        self._lmdb, self._before_writing = _lmdb(), before_writing
        self._waiting: dict[bytes, bytes] = {}
        self._buffer = buffer
        self._record = np.dtype([("position", "<u8"), ("values", "<f4", (width,)), ("crc", "<u4")])
        self._path, self._most, self._fsync = path, most, fsync
        self._environment = self._open(path)

    def _open(self, path: Path | None) -> Any:
        options = {"subdir": False, "lock": False, "sync": self._fsync, "readahead": False}
        size = min(_FIRST_SIZE, self._most)
        try:
            if path is not None:
                size = max(size, path.stat().st_size if path.exists() else 0)
                return self._lmdb.open(str(path), map_size=size, **options)
            with tempfile.TemporaryDirectory(prefix="netsum-table-") as folder:
                return self._lmdb.open(f"{folder}/rows", map_size=size, **options)
        except self._lmdb.Error as error:
            raise OSError(f"the table's file {path or 'in ' + tempfile.gettempdir()} cannot be opened: {error}") from error

    def read(self, keys: Keys) -> tuple[NDArray[np.bool_], Rows]:
        """The keys among these that have a row here, and their rows in that order. Each key is given once."""
        names = _names(keys)
        with self._reading() as transaction:
            found = dict(transaction.cursor().getmulti(names))
        if self._waiting:
            found |= {name: self._waiting[name] for name in names if name in self._waiting}
        there = np.array([name in found for name in names], np.bool_)
        return there, self._rows(keys[there], [(name, found[name]) for name in names if name in found])

    def write(self, rows: Rows) -> None:
        """Raises OSError if the file would grow too large."""
        records = np.empty(rows.keys.size, self._record)
        records["position"], records["values"] = rows.positions, rows.values
        for name, record in zip(_names(rows.keys), records, strict=True):
            self._waiting[name] = _sealed(name, record.tobytes()[: -_CRC.size])
        if len(self._waiting) >= self._buffer:
            self._write()

    def _write(self) -> None:
        if not self._waiting:
            return
        self._before_writing()
        pairs = sorted(self._waiting.items())
        self._waiting = {}
        self._put(pairs)

    def _put(self, pairs: list[tuple[bytes, bytes]]) -> None:
        while True:
            try:
                with self._environment.begin(write=True) as transaction:
                    transaction.cursor().putmulti(pairs)
                return
            except self._lmdb.MapFullError:
                self._grow()

    def _grow(self) -> None:
        size = self._environment.info()["map_size"]
        if size >= self._most:
            raise OSError(f"the table's file has its {self._most} bytes: make the region with a larger `disk`")
        self._environment.set_mapsize(min(2 * size, self._most))

    def all(self) -> Rows:
        self._write()
        with self._reading() as transaction:
            pairs = [(bytes(name), bytes(value)) for name, value in transaction.cursor() if name != _SYNCS]
        if any(len(name) != _COUNT.size for name, _ in pairs):
            raise self._damaged("has a row without a key")
        keys = np.frombuffer(b"".join(name for name, _ in pairs), ">u8").astype(np.uint64)
        return self._rows(keys, pairs)

    def clear(self) -> None:
        self._waiting = {}
        syncs = self.syncs
        with self._environment.begin(write=True) as transaction:
            transaction.drop(self._environment.open_db(None, transaction), delete=False)
            transaction.put(_SYNCS, _sealed(_SYNCS, _COUNT.pack(syncs)))

    @property
    def syncs(self) -> int:
        """The number of syncs."""
        with self._reading() as transaction:
            found = transaction.get(_SYNCS)
        if found is None:
            return 0
        if len(found) != _COUNT.size + _CRC.size:
            raise self._damaged("has no count of its syncs")
        return int(_COUNT.unpack_from(self._checked(_SYNCS, found))[0])

    def require(self, syncs: int) -> None:
        """Raise :class:`DeviceError` if the file is older than one that was synced so often."""
        if self.syncs < syncs:
            raise self._damaged(f"is older than its checkpoint, or was missing: synced {self.syncs} times, not {syncs}")

    def sync(self) -> int:
        """Make what was written outlive the machine. Returns how often there was a sync now."""
        self._write()
        syncs = self.syncs + 1
        self._put([(_SYNCS, _sealed(_SYNCS, _COUNT.pack(syncs)))])
        self._environment.sync(True)
        return syncs

    def close(self) -> None:
        self._environment.close()

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        try:
            with self._environment.begin() as transaction:
                yield transaction
        except self._lmdb.Error as error:
            raise self._damaged(f"cannot be read ({error})") from error

    def _rows(self, keys: Keys, pairs: list[tuple[bytes, bytes]]) -> Rows:
        for name, value in pairs:
            if len(value) != self._record.itemsize:
                raise self._damaged(f"is damaged at key {int.from_bytes(name)}")
            self._checked(name, value)
        records = np.frombuffer(b"".join(value for _, value in pairs), self._record)
        return Rows(keys, records["position"], records["values"])

    def _checked(self, name: bytes, value: bytes) -> bytes:
        if _sealed(name, value[: -_CRC.size]) != value:
            raise self._damaged(f"is damaged at key {int.from_bytes(name)}")
        return value

    def _damaged(self, what: str) -> DeviceError:
        return damaged(self._path or Path(tempfile.gettempdir(), "netsum-table"), what)


def _sealed(name: bytes, value: bytes) -> bytes:
    """The value with a checksum, which covers the name, too."""
    return value + _CRC.pack(zlib.crc32(value, zlib.crc32(name)))


def _names(keys: Keys) -> list[bytes]:
    data = keys.astype(">u8").tobytes()
    return [data[at : at + 8] for at in range(0, len(data), 8)]


def _lmdb() -> Any:
    try:
        import lmdb  # noqa: PLC0415  only tables need it
    except ImportError:
        raise OSError("tables need the package lmdb: pip install lmdb") from None
    return lmdb
