"""A table's rows on disk, in lmdb, each with its position in the log."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from netsum.memory.keys import Keys
from numpy.typing import NDArray

from netsum_memory.optimizer_rules import Floats

_FIRST_SIZE: Final = 64 << 20
_BUFFER: Final = 256
"""Rows per transaction."""


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
        self._record = np.dtype([("position", "<u8"), ("values", "<f4", (width,))])
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
            raise OSError(
                f"the table's file {path or 'in ' + tempfile.gettempdir()} cannot be opened: {error}"
            ) from error

    def read(self, keys: Keys) -> tuple[NDArray[np.bool_], Rows]:
        """Which of the keys have a row here, and their rows in that order. Each key is given once."""
        names = _names(keys)
        with self._environment.begin() as transaction:
            found = dict(transaction.cursor().getmulti(names))
        if self._waiting:
            found |= {name: self._waiting[name] for name in names if name in self._waiting}
        there = np.array([name in found for name in names], np.bool_)
        return there, self._rows(keys[there], [found[name] for name in names if name in found])

    def write(self, rows: Rows) -> None:
        """Raises OSError if the file would grow too large."""
        records = np.empty(rows.keys.size, self._record)
        records["position"], records["values"] = rows.positions, rows.values
        self._waiting.update(zip(_names(rows.keys), (record.tobytes() for record in records), strict=True))
        if len(self._waiting) >= self._buffer:
            self._write()

    def _write(self) -> None:
        if not self._waiting:
            return
        self._before_writing()
        pairs = sorted(self._waiting.items())
        self._waiting = {}
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
        with self._environment.begin() as transaction:
            pairs = list(transaction.cursor())
        keys = np.frombuffer(b"".join(name for name, _ in pairs), ">u8").astype(np.uint64)
        return self._rows(keys, [value for _, value in pairs])

    def clear(self) -> None:
        self._waiting = {}
        with self._environment.begin(write=True) as transaction:
            transaction.drop(self._environment.open_db(None, transaction), delete=False)

    def sync(self) -> None:
        """What was written outlives the machine."""
        self._write()
        self._environment.sync(True)

    def close(self, *, remove: bool) -> None:
        self._environment.close()
        if remove and self._path is not None:
            self._path.unlink(missing_ok=True)

    def _rows(self, keys: Keys, values: list[bytes]) -> Rows:
        records = np.frombuffer(b"".join(values), self._record)
        return Rows(keys, records["position"], records["values"])


def _names(keys: Keys) -> list[bytes]:
    data = keys.astype(">u8").tobytes()
    return [data[at : at + 8] for at in range(0, len(data), 8)]


def _lmdb() -> Any:
    try:
        import lmdb  # noqa: PLC0415  only tables need it
    except ImportError:
        raise OSError("tables need the package lmdb: pip install lmdb") from None
    return lmdb
