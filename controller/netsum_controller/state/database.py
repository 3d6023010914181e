"""A connection to an SQLite file, whose errors are one clear sentence."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from netsum_controller.errors import StateError


class Database(sqlite3.Connection):
    """An SQLite connection whose disk errors become :class:`StateError`; the caller may try again."""

    path = Path()
    closed = False

    def close(self) -> None:
        self.closed = True
        super().close()

    def execute(self, *args: Any) -> sqlite3.Cursor:
        with self._explained():
            return super().execute(*args)

    def executemany(self, *args: Any) -> sqlite3.Cursor:
        with self._explained():
            return super().executemany(*args)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        if self.closed:
            raise StateError(f"{self.path}: the controller has stopped")
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StateError(
                f"{self.path}: the controller's state cannot be read or written ({error}); nothing was changed. "
                f"Make sure that its disk has room and can be written, then try again"
            ) from None
