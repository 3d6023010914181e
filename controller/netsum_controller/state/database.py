# SPDX-License-Identifier: MIT
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


# The tables of the state file.


VERSION = 8
"""The format, kept in the file (``PRAGMA user_version``); a file of another one is refused."""

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE jobs (
    name TEXT PRIMARY KEY, job_id INTEGER NOT NULL, slots INTEGER NOT NULL, window INTEGER NOT NULL,
    chunks INTEGER NOT NULL, members TEXT NOT NULL, token_sha256 TEXT NOT NULL, state TEXT NOT NULL,
    epoch INTEGER NOT NULL REFERENCES epochs(number), late TEXT NOT NULL DEFAULT 'wait',
    block_exp_us INTEGER NOT NULL DEFAULT 0, quorum INTEGER NOT NULL DEFAULT 0, tenant TEXT NOT NULL DEFAULT 'default',
    roots TEXT NOT NULL DEFAULT '{}', priority INTEGER NOT NULL DEFAULT 0,
    algorithm TEXT NOT NULL DEFAULT 'auto',                -- who combines (in a job without parts its members)
    network TEXT NOT NULL DEFAULT '',                      -- for which the weights of its roots were planned
    share_memory INTEGER NOT NULL DEFAULT 0, multicast INTEGER NOT NULL DEFAULT 0,
    advice TEXT NOT NULL DEFAULT '[]',                     -- which calls may be faster without the switch
    rates TEXT NOT NULL DEFAULT ''                         -- in words, what that follows from
);
CREATE TABLE parts (
    job TEXT NOT NULL REFERENCES jobs(name) ON DELETE CASCADE, place INTEGER NOT NULL,   -- 0: the first root's
    switch TEXT NOT NULL, job_id INTEGER NOT NULL, slot_base INTEGER NOT NULL,
    PRIMARY KEY (job, switch), UNIQUE (switch, job_id)
) WITHOUT ROWID;
CREATE TABLE epochs (   -- also of deleted jobs: their numbers and ids stay used
    number INTEGER PRIMARY KEY, job_id INTEGER NOT NULL, job TEXT NOT NULL,
    first_block_id INTEGER NOT NULL, used_ids INTEGER,     -- NULL: its progress is not known
    resumes INTEGER,                                       -- the epoch that it goes on with
    rejoin TEXT NOT NULL DEFAULT 'none', shape TEXT NOT NULL DEFAULT '{}',
    peer_key TEXT NOT NULL DEFAULT '', key_seed TEXT NOT NULL DEFAULT ''
);
CREATE TABLE reach (    -- the switches on which an epoch's number is its own, and its block ids are used
    epoch INTEGER NOT NULL REFERENCES epochs(number), switch TEXT NOT NULL, PRIMARY KEY (epoch, switch)
) WITHOUT ROWID;
CREATE TABLE edges (
    epoch INTEGER NOT NULL REFERENCES epochs(number), child TEXT NOT NULL, parent TEXT NOT NULL,
    udp_port INTEGER NOT NULL, PRIMARY KEY (epoch, child, parent)
) WITHOUT ROWID;
CREATE TABLE seats (
    epoch INTEGER NOT NULL REFERENCES epochs(number), rank INTEGER NOT NULL, src_id INTEGER NOT NULL,
    host TEXT NOT NULL, udp_port INTEGER NOT NULL, instance TEXT, joined INTEGER NOT NULL DEFAULT 0,
    left_ INTEGER NOT NULL DEFAULT 0, evicted INTEGER NOT NULL DEFAULT 0,
    needs INTEGER,                                         -- first block whose result the member lacks
    peer TEXT,                                             -- HOST:PORT at which the others reach it
    host_id TEXT,                                          -- equal for ranks that can share memory, empty: for none
    multicast INTEGER NOT NULL DEFAULT 0,                  -- whether it has joined the job's IP multicast group
    waiting TEXT,                                          -- the last report of what it waits for
    PRIMARY KEY (epoch, rank)
) WITHOUT ROWID;
CREATE TABLE tokens (sha256 TEXT PRIMARY KEY) WITHOUT ROWID;   -- of every job there ever was
"""

# Made where they are missing, so that files of before need no other format. Keys have 64 bits, more than an INTEGER: hexadecimal.
MEMORY_TABLES = """
CREATE TABLE IF NOT EXISTS memory_regions (
    name TEXT PRIMARY KEY, id INTEGER NOT NULL UNIQUE, base INTEGER NOT NULL, size INTEGER NOT NULL,
    granule INTEGER NOT NULL, shards INTEGER NOT NULL, replicas INTEGER NOT NULL, devices TEXT NOT NULL,
    kind TEXT NOT NULL, dtype TEXT, shape TEXT, read_key TEXT NOT NULL, write_key TEXT NOT NULL,
    device_key TEXT NOT NULL, token_sha256 TEXT NOT NULL, read_token_sha256 TEXT NOT NULL, state TEXT NOT NULL,
    options TEXT NOT NULL, trouble TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS memory_shards (
    region TEXT NOT NULL REFERENCES memory_regions(name) ON DELETE CASCADE, shard INTEGER NOT NULL,
    now TEXT NOT NULL, next TEXT,                          -- next: what the switches are being told
    PRIMARY KEY (region, shard)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS memory_devices (
    host TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE, incarnation TEXT NOT NULL, durable INTEGER NOT NULL,
    alive INTEGER NOT NULL, free INTEGER
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS memory_vouched (host TEXT PRIMARY KEY, incarnation TEXT NOT NULL, shards TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS memory_groups (devices TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS memory_ids (id INTEGER PRIMARY KEY);   -- every region's there ever was
CREATE TABLE IF NOT EXISTS memory_secrets (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID
"""


def create(db: sqlite3.Connection) -> None:
    """Make the tables. Call it in a transaction."""
    for statement in TABLES.split(";"):  # executescript would commit the transaction
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {VERSION}")


def add_memory(db: sqlite3.Connection) -> None:
    """Make memory's tables if they are missing. Call it in a transaction."""
    for statement in MEMORY_TABLES.split(";"):
        db.execute(statement)
