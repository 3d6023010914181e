"""The tables of the state file, and how a file of an earlier format becomes one of this."""

from __future__ import annotations

import sqlite3

VERSION = 4

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE jobs (
    name TEXT PRIMARY KEY, job_id INTEGER NOT NULL, slots INTEGER NOT NULL, window INTEGER NOT NULL,
    chunks INTEGER NOT NULL, members TEXT NOT NULL, token_sha256 TEXT NOT NULL, state TEXT NOT NULL,
    epoch INTEGER NOT NULL REFERENCES epochs(number), late TEXT NOT NULL DEFAULT 'wait',
    block_exp_us INTEGER NOT NULL DEFAULT 0, quorum INTEGER NOT NULL DEFAULT 0, tenant TEXT NOT NULL DEFAULT 'default',
    roots TEXT NOT NULL DEFAULT '{}', priority INTEGER NOT NULL DEFAULT 0,
    algorithm TEXT NOT NULL DEFAULT 'auto'                 -- who combines (in a job without parts its members)
);
CREATE TABLE parts (
    job TEXT NOT NULL REFERENCES jobs(name) ON DELETE CASCADE, place INTEGER NOT NULL,   -- 0: the first root's
    switch TEXT NOT NULL, job_id INTEGER NOT NULL, slot_base INTEGER NOT NULL,
    PRIMARY KEY (job, switch), UNIQUE (switch, job_id)
) WITHOUT ROWID;
CREATE TABLE epochs (   -- also of deleted jobs: their numbers and ids stay used
    number INTEGER PRIMARY KEY, job_id INTEGER NOT NULL, job TEXT NOT NULL,
    first_block_id INTEGER NOT NULL, used_ids INTEGER,     -- NULL: nobody could tell how far it got
    resumes INTEGER,                                       -- the epoch that it goes on with
    rejoin TEXT NOT NULL DEFAULT 'none', shape TEXT NOT NULL DEFAULT '{}',
    peer_key TEXT NOT NULL DEFAULT ''
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
    PRIMARY KEY (epoch, rank)
) WITHOUT ROWID;
CREATE TABLE tokens (sha256 TEXT PRIMARY KEY) WITHOUT ROWID;   -- of every job there ever was
"""

_MIGRATIONS: dict[int, str] = {
    1: """
ALTER TABLE jobs ADD COLUMN late TEXT NOT NULL DEFAULT 'wait';
ALTER TABLE jobs ADD COLUMN block_exp_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN quorum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';
ALTER TABLE epochs ADD COLUMN resumes INTEGER;
ALTER TABLE epochs ADD COLUMN rejoin TEXT NOT NULL DEFAULT 'none';
ALTER TABLE seats ADD COLUMN evicted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE seats ADD COLUMN needs INTEGER;
CREATE TABLE tokens (sha256 TEXT PRIMARY KEY) WITHOUT ROWID;
INSERT INTO tokens SELECT DISTINCT token_sha256 FROM jobs;
""",
    2: """
CREATE TABLE parts (
    job TEXT NOT NULL REFERENCES jobs(name) ON DELETE CASCADE, place INTEGER NOT NULL,
    switch TEXT NOT NULL, job_id INTEGER NOT NULL, slot_base INTEGER NOT NULL,
    PRIMARY KEY (job, switch), UNIQUE (switch, job_id)
) WITHOUT ROWID;
CREATE TABLE reach (
    epoch INTEGER NOT NULL REFERENCES epochs(number), switch TEXT NOT NULL, PRIMARY KEY (epoch, switch)
) WITHOUT ROWID;
CREATE TABLE edges (
    epoch INTEGER NOT NULL REFERENCES epochs(number), child TEXT NOT NULL, parent TEXT NOT NULL,
    udp_port INTEGER NOT NULL, PRIMARY KEY (epoch, child, parent)
) WITHOUT ROWID;
CREATE TABLE new_jobs (
    name TEXT PRIMARY KEY, job_id INTEGER NOT NULL, slots INTEGER NOT NULL, window INTEGER NOT NULL,
    chunks INTEGER NOT NULL, members TEXT NOT NULL, token_sha256 TEXT NOT NULL, state TEXT NOT NULL,
    epoch INTEGER NOT NULL REFERENCES epochs(number), late TEXT NOT NULL DEFAULT 'wait',
    block_exp_us INTEGER NOT NULL DEFAULT 0, quorum INTEGER NOT NULL DEFAULT 0, tenant TEXT NOT NULL DEFAULT 'default',
    roots TEXT NOT NULL DEFAULT '{}', priority INTEGER NOT NULL DEFAULT 0
);
INSERT INTO new_jobs SELECT name, job_id, slots, window, chunks, members, token_sha256, state, epoch, late, block_exp_us,
    quorum, tenant, '{}', 0 FROM jobs;
CREATE TEMPORARY TABLE old_parts AS SELECT name, switch, job_id, slot_base FROM jobs;
DROP TABLE jobs;
ALTER TABLE new_jobs RENAME TO jobs;
INSERT INTO parts SELECT name, 0, switch, job_id, slot_base FROM old_parts;
DROP TABLE old_parts;
INSERT INTO reach SELECT number, switch FROM epochs;
ALTER TABLE epochs ADD COLUMN shape TEXT NOT NULL DEFAULT '{}';
UPDATE epochs SET shape = json_object('roots', json_array(switch));
ALTER TABLE epochs DROP COLUMN switch;
""",
    3: """
ALTER TABLE jobs ADD COLUMN algorithm TEXT NOT NULL DEFAULT 'auto';
ALTER TABLE epochs ADD COLUMN peer_key TEXT NOT NULL DEFAULT '';
ALTER TABLE seats ADD COLUMN peer TEXT;
""",
}
"""What turns a file of format ``n`` into one of ``n + 1``. A file is never turned back."""


def is_known(version: int) -> bool:
    """Whether a file of that format is, or can become, one of ours; 0 is an empty file."""
    return version in (0, VERSION) or version in _MIGRATIONS


def create(db: sqlite3.Connection) -> None:
    """Make the tables. Call it in a transaction."""
    _run(db, TABLES)
    db.execute(f"PRAGMA user_version = {VERSION}")


def migrate(db: sqlite3.Connection, version: int) -> None:
    """Bring a file of an earlier format up to this one. Call it in a transaction."""
    for step in range(version, VERSION):
        _run(db, _MIGRATIONS[step])
    db.execute(f"PRAGMA user_version = {VERSION}")


def _run(db: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";"):  # executescript would commit the transaction
        db.execute(statement)
