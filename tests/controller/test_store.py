# SPDX-License-Identifier: MIT
"""The state file: on disk before anything else, one command at a time, never read wrongly."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock, Timeout
from netsum_controller import Controller, JobSpec
from netsum_controller.errors import AbandonedError, StateError
from netsum_controller.state import database
from netsum_controller.state.lock import StateLock
from netsum_controller.state.model import ROOM, Claim, Edge, Epoch, IdRange, Job, JobState, Part, Rejoin, Seat, Shape
from netsum_controller.state.store import Store

from tests.threads import until


def test_a_job_survives(open_controller: Callable[[], Controller], spec: JobSpec) -> None:
    first = open_controller()
    first.push()
    job = first.create_job(spec)
    found = open_controller().job("resnet")
    assert found.epoch == job.epoch
    assert (found.members, found.slot_base, found.token_sha256) == (job.members, job.slot_base, job.token_sha256)


def test_the_token_is_not_in_the_file(controller: Controller, spec: JobSpec, tmp_path: Path) -> None:
    token = controller.create_job(spec).token
    assert token is not None
    assert token.encode() not in (tmp_path / "state.db").read_bytes()
    assert (tmp_path / "state.db").stat().st_mode & 0o077 == 0


def test_a_failed_transaction_is_undone(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    number = store.next_epoch

    def take_and_fail() -> None:
        with store.transaction():
            store.skip_epochs(number + 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        take_and_fail()
    assert store.next_epoch == number
    store.close()


def test_epoch_numbers_only_rise(tmp_path: Path) -> None:
    numbers = []
    for _ in range(2):
        store = Store(tmp_path / "state.db")
        for above in (5, 3):
            numbers.append(store.next_epoch)
            with store.transaction():
                store.skip_epochs(numbers[0] + above)
        store.close()
    assert numbers[1:] == [numbers[0] + 5] * 3


def test_not_a_state_file(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_text("this is not a database, by far, and it is longer than a header of one would be" * 10)
    with pytest.raises(StateError, match=r"state\.db: not a usable netsum state file"):
        Store(path)
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="file"):
        Store(tmp_path / "file" / "state.db")


@pytest.mark.parametrize("version", [database.VERSION - 1, database.VERSION + 1, 99])
def test_a_file_of_another_version(tmp_path: Path, version: int) -> None:
    Store(tmp_path / "state.db").close()
    with sqlite3.connect(tmp_path / "state.db") as db:
        db.execute(f"PRAGMA user_version = {version}")
    db.close()
    with pytest.raises(StateError, match=rf"written by another version of netsum \(format {version};.*--take-over"):
        Store(tmp_path / "state.db")


HOLD = """
import sys
from pathlib import Path
from netsum_controller.state.lock import StateLock
with StateLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StateError, match="another netsum command has held it"), StateLock(path, wait=0.05):
            pass
        holder.kill()  # the kernel gives the lock back
        holder.wait()
        with StateLock(path, wait=10):
            pass


def test_the_lock_is_reentrant(tmp_path: Path) -> None:
    lock = StateLock(tmp_path / "lock", wait=0.05)
    with lock, lock:
        pass
    other = StateLock(tmp_path / "lock", wait=0.05)
    with lock, pytest.raises(StateError), other:
        pass
    with other:
        pass


class InLine:
    """Threads that want the lock, one after the other, and note that they had it."""

    def __init__(self, lock: StateLock) -> None:
        self._lock = lock
        self._threads: list[threading.Thread] = []
        self.had: list[str] = []

    def queue(self, name: str, wanted: Callable[[], bool] = lambda: True) -> None:
        """Have a thread of this name wait; returns when it stands in line."""

        def run() -> None:
            with suppress(AbandonedError), self._lock.while_wanted(wanted):
                self.had.append(name)

        before = len(self._lock._line)
        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()
        until(lambda: len(self._lock._line) > before)

    def wait(self) -> list[str]:
        for thread in self._threads:
            thread.join()
        return self.had


def test_threads_have_the_lock_in_turn(tmp_path: Path) -> None:
    lock = StateLock(tmp_path / "lock")
    line = InLine(lock)
    gone = threading.Event()
    with lock:
        for number in range(8):
            line.queue(str(number))
        line.queue("gives up", lambda: not gone.is_set())
        line.queue("last")
        gone.set()
        with lock:  # which is re-entrant, and not last
            line.had.append("first")
    assert line.wait() == ["first", *map(str, range(8)), "last"]
    assert not lock._line


def test_a_process_that_takes_the_lock_again_and_again_leaves_it_to_others(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    busy, other = StateLock(path), StateLock(path)  # to the kernel, two of a process are as good as two processes
    line = InLine(other)

    def is_next() -> bool:
        try:
            with FileLock(tmp_path / "lock.next", timeout=0):
                return False
        except Timeout:
            return True

    with busy:
        line.queue("other")
        until(is_next)
    with busy:
        line.had.append("busy")
    assert line.wait() == ["other", "busy"]


def test_what_is_said_of_an_epoch_is_kept(controller: Controller, spec: JobSpec) -> None:
    store = controller.context.store
    epoch = controller.create_job(spec).epoch
    with store.transaction():
        store.set_needs(epoch.number, 1, 77)
        store.set_evicted(epoch.number, 2)
        store.set_rejoin(epoch.number, Rejoin.WAITING)
        store.set_peer(epoch.number, 0, "10.0.0.1:4000")
    found = store.job("resnet").epoch
    assert (found.seats[1].needs, found.evicted, found.rejoin) == (77, (2,), Rejoin.WAITING)
    assert [seat.peer for seat in found.seats] == ["10.0.0.1:4000", None, None]
    assert [seat.rank for seat in found.members] == [0, 1]
    with store.transaction():
        store.set_needs(epoch.number, 1, None)
        store.set_evicted(epoch.number, 2, evicted=False)
        store.set_rejoin(epoch.number, Rejoin.DONE, 4711)
    found = store.job("resnet").epoch
    first = replace(epoch.seats[0], peer="10.0.0.1:4000")
    assert found == replace(epoch, rejoin=Rejoin.DONE, first_block_id=4711, seats=(first, *epoch.seats[1:]))


SEATS = (Seat(0, 0, "h1", 13001), Seat(1, 1, "h2", 13002))


def job_of(**fields: Any) -> Job:
    """A job of those two, ready."""
    fields |= {"slots": 16, "window": 8, "chunks": 4}
    return Job(members=("h1", "h2"), state=JobState.READY, token_sha256="abc", **fields)


def test_a_job_on_several_switches_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    edges = (Edge("leaf1", "spine1", 13005), Edge("leaf2", "spine1", 13006))
    shape = Shape(("spine1",), {"spine1": {"leaf1": "spine1", "leaf2": "spine1"}}, ("leaf1", "leaf2"))
    with store.transaction():
        epoch = Epoch(7, 0, SEATS, edges=edges, shape=shape)
        parts = (Part("spine1", 64), Part("leaf1", 0), Part("leaf2", 16))
        job = job_of(name="wide", job_id=9, parts=parts, epoch=epoch, roots={"spine1": 2, "spine2": 1})
        store.add_job(job, Claim(7, 11, (13001, 13002, 13005, 13006), {"spine1": 0, "leaf1": 0}))
        assert not store.has_claimed(7, "leaf2", 9)
        store.set_claimed(7, "leaf2")
    assert store.has_claimed(7, "leaf2", 9)
    assert not store.has_claimed(7, "leaf2", 8)
    assert store.job("wide") == job
    assert (job.switch, job.slot_base, job.switches) == ("spine1", 64, ("spine1", "leaf1", "leaf2"))
    assert job.epoch.port_between("leaf2", "spine1") == 13006
    assert job.epoch.port_between("spine1", "leaf2") is None
    assert [store.jobs(name) for name in ("leaf2", "spine2")] == [[job], []]
    assert store.used_ports() == {("h1", 13001), ("h2", 13002), ("leaf1", 13005), ("leaf2", 13006)}
    assert store.used_ranges(["leaf2"], 9) == store.used_ranges(["leaf1", "spine1"], 9) == [IdRange(0, ROOM)]
    assert store.used_ranges(["spine2"], 9) == []
    with pytest.raises(sqlite3.IntegrityError), store.transaction():
        store.set_parts("wide", 9, (Part("leaf1", 0), Part("leaf1", 64)))
    with store.transaction():
        store.set_parts("wide", 9, (Part("leaf1", 0),))
    assert store.job("wide").parts == (Part("leaf1", 0),)
    with store.transaction():
        store.remove_job("wide")
    assert store.jobs() == []
    assert store.used_ports() == set()
    assert store.used_ranges(["spine1"], 9) == [IdRange(0, ROOM)]  # its ids stay used
    store.close()


def test_a_job_whose_members_combine_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    with store.transaction():
        epoch = Epoch(7, 0, SEATS, peer_key="00112233445566ff")
        job = job_of(name="ring", job_id=0, parts=(), epoch=epoch, algorithm="ring")
        store.add_job(job, Claim(7, 9, (13001, 13002)))
    assert store.last_job_id == 0
    assert store.job("ring") == job
    assert (job.by_switch, job.combines, job.switch, job.switches) == (False, "ring", "", ())
    assert store.jobs("s1") == []
    moved = replace(job, algorithm="auto", job_id=3, slots=32, parts=(Part("s1", 32),))
    with store.transaction():
        store.set_combining(moved)
    assert store.job("ring") == moved
    assert (moved.combines, store.jobs("s1")) == ("switch", [moved])
    store.close()
