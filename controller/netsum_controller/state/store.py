# SPDX-License-Identifier: MIT
"""The controller's state in SQLite: jobs, epochs, ranges of block ids, ports, tokens, and who has joined.

The file is the desired state. Every change is one transaction, written before the switch is touched, so the controller may be
killed at any moment: a job that is not ``ready`` was left by a killed command, and the next command cleans it up.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from netsum_controller.errors import StateError, UnknownJobError
from netsum_controller.state import database
from netsum_controller.state.database import Database
from netsum_controller.state.lock import StateLock
from netsum_controller.state.model import (
    ROOM,
    SERIAL,
    Claim,
    Edge,
    Epoch,
    IdRange,
    Job,
    JobState,
    Late,
    Part,
    Rejoin,
    Seat,
    Shape,
    Waiting,
)

_JOB_COLUMNS = (
    "name, job_id, slots, window, chunks, members, token_sha256, state, epoch, late, block_exp_us, quorum, tenant, "
    "roots, priority, algorithm, network, share_memory, multicast, advice, rates"
)
_SEAT_COLUMNS = "rank, src_id, host, udp_port, instance, joined, left_, evicted, needs, peer, host_id, multicast, waiting"
_REMEMBERED_RANGES = 64
"""The number of earlier epochs of a job id that a new one avoids."""


def _shape(text: str) -> Shape:
    values = json.loads(text)
    roots, homes, leaders = (tuple(values.get(name, ())) for name in ("roots", "homes", "leaders"))
    return Shape(roots, values.get("parents", {}), homes, leaders)


class Store:
    """The state file. All methods may be called from any thread; changes need :meth:`transaction`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))  # it holds hashes of secrets
        except OSError as error:
            raise StateError(f"{self.path}: {error.strerror}") from None
        self.lock = StateLock(self.path.with_name(self.path.name + ".lock"))
        self._guard = threading.RLock()
        self._changes = 0
        try:
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=10.0, factory=Database)
            self._db.path = self.path
            self._prepare()
        except sqlite3.Error as error:
            raise StateError(f"{self.path}: not a usable netsum state file ({error})") from None

    def _prepare(self) -> None:
        self._db.execute("PRAGMA foreign_keys = ON")
        with self.lock:
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, database.VERSION):  # 0: the file is new
                self._db.close()
                raise StateError(
                    f"{self.path}: written by another version of netsum (format {version}; this one reads format "
                    f"{database.VERSION}). Use that version, or another state file: `netsum switch push --take-over` then "
                    f"removes the jobs of this one from the switches"
                )
            if version == 0:
                with self.transaction():
                    database.create(self._db)
                    # The switches know which numbers are taken. For jobs without a switch, the time is the best guess.
                    start = {"next_epoch": int(time.time()), "last_job_id": 0}
                    self._db.executemany("INSERT INTO meta VALUES (?, ?)", start.items())
            with self.transaction():
                database.add_memory(self._db)

    def close(self) -> None:
        """Close the file, after what other threads are doing in it; what they want to do later raises :class:`StateError`."""
        with self._guard:  # SQLite does not survive it in the middle of a statement
            self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, and on disk when it ends. Raises :class:`StateError` when the disk cannot be written."""
        with self._guard:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # on a full disk SQLite has rolled back by itself
                    self._db.execute("ROLLBACK")
                raise

    # -- memory's tables (netsum_controller.memory.rows)

    @property
    def version(self) -> tuple[int, int]:
        """Another one if anything may have changed, by us or by another process."""
        with self._guard:
            return self._changes, int(self._db.execute("PRAGMA data_version").fetchone()[0])

    @property
    def changing(self) -> bool:
        """True if this thread is in a transaction: what it reads may yet be undone."""
        with self._guard:
            return not self._db.closed and self._db.in_transaction

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._guard:
            return self._db.execute(query, values).fetchall()

    def change(self, statement: str, values: Sequence[Any]) -> None:
        """Carry out a statement. Call it in a transaction."""
        self._changes += 1
        self._db.execute(statement, values)

    def note(self, statement: str, values: Sequence[Any]) -> None:
        """The same for what no reader keeps: :attr:`version` stays."""
        self._db.execute(statement, values)

    # -- counters

    def _meta(self, key: str) -> int:
        return int(self.rows("SELECT value FROM meta WHERE key = ?", (key,))[0][0])

    def _set_meta(self, key: str, value: int) -> None:
        self._db.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))

    @property
    def next_epoch(self) -> int:
        """First number that no epoch has had, as far as this file knows (see :mod:`netsum_controller.jobs.epochs`)."""
        return self._meta("next_epoch")

    def skip_epochs(self, number: int) -> None:
        """Never use a number below this one. Call it in a transaction."""
        self._set_meta("next_epoch", max(self.next_epoch, number))

    @property
    def last_job_id(self) -> int:
        """The last job id of the round robin."""
        return self._meta("last_job_id")

    def used_ports(self) -> set[tuple[str, int]]:
        """(host or child switch, UDP port) pairs of every job's current epoch."""
        query = (
            "SELECT host, udp_port FROM seats JOIN jobs ON seats.epoch = jobs.epoch UNION "
            "SELECT child, udp_port FROM edges JOIN jobs ON edges.epoch = jobs.epoch"
        )
        return set(self.rows(query))

    def used_ranges(self, switches: Sequence[str], job_id: int) -> list[IdRange]:
        """Block ids of the latest epochs of a job id on any of these switches, oldest first, including deleted jobs."""
        query = (
            "SELECT first_block_id, used_ids FROM epochs WHERE job_id = ? AND EXISTS (SELECT 1 FROM reach WHERE epoch = "
            f"number AND switch IN ({', '.join('?' * len(switches))})) ORDER BY number DESC LIMIT ?"
        )
        rows = self.rows(query, (job_id, *switches, _REMEMBERED_RANGES))
        return [IdRange(first, min(ROOM if used is None else used, SERIAL // 2)) for first, used in reversed(rows)]

    # -- jobs

    def jobs(self, switch: str | None = None) -> list[Job]:
        """All jobs, or those with a part on one switch, by name and in any state."""
        here = "" if switch is None else "WHERE name IN (SELECT job FROM parts WHERE switch = ?)"
        query = f"SELECT {_JOB_COLUMNS} FROM jobs {here} ORDER BY name"
        with self._guard:
            rows = self._db.execute(query, () if switch is None else (switch,)).fetchall()
            return [self._job(row) for row in rows]

    def classes(self, switch: str, but: str = "") -> set[int]:
        """The priorities of the jobs on a switch, without those that are being deleted and the one of the name ``but``."""
        query = "SELECT DISTINCT priority FROM jobs JOIN parts ON job = name WHERE switch = ? AND name <> ? AND state <> ?"
        return {priority for (priority,) in self.rows(query, (switch, but, JobState.DELETING.value))}

    def half_done(self, switch: str) -> list[Job]:
        """The jobs on a switch that a killed command has left half created or half deleted."""
        query = "SELECT name FROM jobs JOIN parts ON job = name WHERE switch = ? AND state IN (?, ?) ORDER BY name"
        names = self.rows(query, (switch, JobState.INSTALLING.value, JobState.DELETING.value))
        return [job for (name,) in names if (job := self.find_job(name)) is not None]

    def find_job(self, name: str) -> Job | None:
        """The job of that name in any state, or None."""
        with self._guard:
            row = self._db.execute(f"SELECT {_JOB_COLUMNS} FROM jobs WHERE name = ?", (name,)).fetchone()
            return self._job(row) if row else None

    def job(self, name: str) -> Job:
        """The job of that name; :class:`UnknownJobError` also when it is only half there."""
        job = self.find_job(name)
        if job is None or not job.exists:
            raise UnknownJobError(name)
        return job

    def _job(self, row: tuple[object, ...]) -> Job:
        values = dict(zip(_JOB_COLUMNS.split(", "), row, strict=True))
        values["epoch"] = self._epoch(int(str(values["epoch"])))
        values["members"] = tuple(json.loads(str(values["members"])))
        values["state"] = JobState(str(values["state"]))
        values["late"] = Late(str(values["late"]))
        values["share_memory"], values["multicast"] = bool(values["share_memory"]), bool(values["multicast"])
        values["roots"] = json.loads(str(values["roots"]))
        values["advice"] = tuple((int(size), float(share)) for size, share in json.loads(str(values["advice"])))
        query = "SELECT switch, slot_base FROM parts WHERE job = ? ORDER BY place"
        values["parts"] = tuple(Part(*part) for part in self._db.execute(query, (values["name"],)))
        return Job(**values)  # type: ignore[arg-type]

    def _epoch(self, number: int) -> Epoch:
        columns = "first_block_id, resumes, rejoin, shape, peer_key, key_seed"
        row = self._db.execute(f"SELECT {columns} FROM epochs WHERE number = ?", (number,)).fetchone()
        rows = self._db.execute(f"SELECT {_SEAT_COLUMNS} FROM seats WHERE epoch = ? ORDER BY rank", (number,))
        seats = tuple(
            Seat(
                *(rank, src_id, host, port, instance, bool(joined), bool(left), bool(evicted), needs, peer, host_id),
                multicast=bool(multicast),
                waiting=Waiting(*json.loads(waiting)) if waiting else None,
            )
            for rank, src_id, host, port, instance, joined, left, evicted, needs, peer, host_id, multicast, waiting in rows
        )
        query = "SELECT child, parent, udp_port FROM edges WHERE epoch = ? ORDER BY child, parent"
        edges = tuple(Edge(*edge) for edge in self._db.execute(query, (number,)))
        return Epoch(number, row[0], seats, row[1], Rejoin(row[2]), edges, _shape(row[3]), row[4], row[5])

    def resumed(self, number: int) -> list[int]:
        """The epochs that an epoch continues, latest first: the one it resumes, the one that was resumed there, ..."""
        query = (
            "WITH RECURSIVE earlier(number) AS (SELECT resumes FROM epochs WHERE number = ? UNION "
            "SELECT resumes FROM epochs JOIN earlier USING (number)) "
            "SELECT number FROM earlier WHERE number IS NOT NULL ORDER BY number DESC"
        )
        return [earlier for (earlier,) in self.rows(query, (number,))]

    def add_job(self, job: Job, claim: Claim) -> None:
        self.add_epoch(job, job.epoch, claim)
        values = (
            *(job.name, job.job_id, job.slots, job.window, job.chunks),
            *(json.dumps(job.members), job.token_sha256, job.state.value, job.epoch.number),
            *(job.late.value, job.block_exp_us, job.quorum, job.tenant, json.dumps(dict(job.roots)), job.priority),
            *(job.algorithm, job.network, job.share_memory, job.multicast, json.dumps(job.advice), job.rates),
        )
        self._db.execute(f"INSERT INTO jobs ({_JOB_COLUMNS}) VALUES ({', '.join('?' * len(values))})", values)
        self.set_parts(job.name, job.job_id, job.parts)
        self._db.execute("INSERT OR IGNORE INTO tokens VALUES (?)", (job.token_sha256,))
        if job.job_id:
            self._set_meta("last_job_id", job.job_id)

    def knows_token(self, sha256: str) -> bool:
        """True if any job, deleted or not, has the token with this hash. (No client can choose a hash's bytes, so the time of the
        lookup reveals nothing.)"""
        return bool(self.rows("SELECT 1 FROM tokens WHERE sha256 = ?", (sha256,)))

    def set_parts(self, name: str, job_id: int, parts: Sequence[Part]) -> None:
        self._db.execute("DELETE FROM parts WHERE job = ?", (name,))
        self._db.executemany(
            "INSERT INTO parts (job, place, switch, job_id, slot_base) VALUES (?, ?, ?, ?, ?)",
            [(name, place, part.switch, job_id, part.slot_base) for place, part in enumerate(parts)],
        )

    def set_combining(self, job: Job) -> None:
        """Record who combines in a job: its algorithm, id, slots and parts. Call it in a transaction."""
        values = (job.algorithm, job.job_id, job.slots, job.name)
        self._db.execute("UPDATE jobs SET algorithm = ?, job_id = ?, slots = ? WHERE name = ?", values)
        self.set_parts(job.name, job.job_id, job.parts)

    def add_epoch(self, job: Job, epoch: Epoch, claim: Claim) -> None:
        """Record an epoch, and on which switches its number is claimed; it does not become the job's current one."""
        self._db.execute(
            "INSERT INTO epochs (number, job_id, job, first_block_id, resumes, rejoin, shape, peer_key, key_seed) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(epoch.number, job.job_id, job.name, epoch.first_block_id, epoch.resumes, epoch.rejoin.value),
                *(json.dumps(asdict(epoch.shape)), epoch.peer_key, epoch.key_seed),
            ),
        )
        for switch, known in claim.switches.items():
            self.set_claimed(epoch.number, switch, known)
        self._db.executemany(
            "INSERT INTO edges VALUES (?, ?, ?, ?)",
            [(epoch.number, edge.child, edge.parent, edge.udp_port) for edge in epoch.edges],
        )
        self._db.executemany(
            "INSERT INTO seats (epoch, rank, src_id, host, udp_port, evicted, instance, host_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (epoch.number, seat.rank, seat.src_id, seat.host, seat.udp_port, seat.evicted, seat.instance, seat.host_id)
                for seat in epoch.seats
            ],
        )
        self.skip_epochs(claim.next_number)

    def set_claimed(self, epoch: int, switch: str, known: int = 0) -> None:
        """Record that the epoch's number is claimed on the switch, and its :meth:`known_claims`. Call it in a transaction."""
        self._db.execute("INSERT OR IGNORE INTO reach VALUES (?, ?)", (epoch, switch))
        self.set_known_claims(switch, known)

    def known_claims(self, switch: str) -> int | None:
        """Up to which number all epochs on the switch were found to be this file's; 0 if another controller has claimed some,
        None if this file never has."""
        found = self.rows("SELECT value FROM meta WHERE key = ?", (f"claimed {switch}",))
        return int(found[0][0]) if found else None

    def set_known_claims(self, switch: str, number: int) -> None:
        """Record it. Call it in a transaction."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"claimed {switch}", number))

    def has_claimed(self, epoch: int, switch: str, job_id: int) -> bool:
        """True if the number belongs to one of our epochs, of a job with that id, and is claimed on the switch."""
        query = "SELECT 1 FROM reach JOIN epochs ON number = epoch WHERE number = ? AND switch = ? AND job_id = ?"
        return bool(self.rows(query, (epoch, switch, job_id)))

    def set_epoch(self, name: str, number: int) -> None:
        """Make a recorded epoch the job's current one, or go back to an earlier one. Call it in a transaction."""
        self._db.execute("UPDATE jobs SET epoch = ? WHERE name = ?", (number, name))

    def set_used_ids(self, epoch: int, used: int | None) -> None:
        """Record how many block ids an epoch has used, None when that is not known. Call it in a transaction."""
        self._db.execute("UPDATE epochs SET used_ids = ? WHERE number = ?", (used, epoch))

    def set_rejoin(self, epoch: int, rejoin: Rejoin, first_block_id: int | None = None) -> None:
        """Record how far an epoch's resumption is, and the agreed first block. Call it in a transaction."""
        self._db.execute("UPDATE epochs SET rejoin = ? WHERE number = ?", (rejoin.value, epoch))
        if first_block_id is not None:
            self._db.execute("UPDATE epochs SET first_block_id = ? WHERE number = ?", (first_block_id, epoch))

    def set_state(self, name: str, state: JobState) -> None:
        self._db.execute("UPDATE jobs SET state = ? WHERE name = ?", (state.value, name))

    def remove_job(self, name: str) -> None:
        """Forget a job, but not its epochs. Call it in a transaction."""
        epochs = [number for (number,) in self._db.execute("SELECT number FROM epochs WHERE job = ?", (name,))]
        self._db.execute("DELETE FROM jobs WHERE name = ?", (name,))
        for table in ("seats", "edges"):
            self._db.executemany(f"DELETE FROM {table} WHERE epoch = ?", [(number,) for number in epochs])

    # -- members

    def set_joined(self, epoch: int, ranks: Sequence[int], instance: str) -> None:
        """Record that ``instance`` holds these ranks. Call it in a transaction."""
        self._db.executemany(
            "UPDATE seats SET joined = 1, left_ = 0, instance = ? WHERE epoch = ? AND rank = ?",
            [(instance, epoch, rank) for rank in ranks],
        )

    def set_host_id(self, epoch: int, rank: int, host_id: str | None) -> None:
        """Record with which others the rank can share memory. Call it in a transaction."""
        self._db.execute("UPDATE seats SET host_id = ? WHERE epoch = ? AND rank = ?", (host_id, epoch, rank))

    def set_multicast(self, epoch: int, rank: int, multicast: bool) -> None:
        """Record whether the rank has joined the job's IP multicast group. Call it in a transaction."""
        self._db.execute("UPDATE seats SET multicast = ? WHERE epoch = ? AND rank = ?", (multicast, epoch, rank))

    def set_waiting(self, rank: int, report: Waiting) -> None:
        """Record what a rank says that it waits for. Call it in a transaction."""
        self._db.execute("UPDATE seats SET waiting = ? WHERE epoch = ? AND rank = ?", (json.dumps(report), report.epoch, rank))

    def set_peer(self, epoch: int, rank: int, peer: str) -> None:
        """Record where the other members reach the rank. Call it in a transaction."""
        self._db.execute("UPDATE seats SET peer = ? WHERE epoch = ? AND rank = ?", (peer, epoch, rank))

    def set_left(self, epoch: int, rank: int, instance: str) -> bool:
        """Record that the rank has left if ``instance`` holds it; returns whether it does. Call it in a transaction."""
        changed = self._db.execute(
            "UPDATE seats SET left_ = 1 WHERE epoch = ? AND rank = ? AND instance = ?", (epoch, rank, instance)
        )
        return changed.rowcount > 0

    def set_evicted(self, epoch: int, rank: int, evicted: bool = True) -> None:
        """Record that the rank is evicted, or admitted again. Call it in a transaction."""
        self._db.execute("UPDATE seats SET evicted = ? WHERE epoch = ? AND rank = ?", (evicted, epoch, rank))

    def set_needs(self, epoch: int, rank: int, needs: int | None) -> None:
        """Record the first block whose result the rank lacks, as it reported when rejoining. Call it in a transaction."""
        self._db.execute("UPDATE seats SET needs = ? WHERE epoch = ? AND rank = ?", (needs, epoch, rank))
