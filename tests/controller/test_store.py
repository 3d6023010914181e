"""The state file: on disk before anything else, one command at a time, never read wrongly."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from netsum_controller.controller import Controller
from netsum_controller.errors import StateError
from netsum_controller.job_spec import JobSpec
from netsum_controller.lock import StateLock
from netsum_controller.store import Store


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
    number = store._meta("next_epoch")

    def take_and_fail() -> None:
        with store.transaction():
            store.take_epoch_number()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        take_and_fail()
    assert store._meta("next_epoch") == number
    store.close()


def test_epoch_numbers_are_never_used_twice(tmp_path: Path) -> None:
    numbers = []
    for _ in range(3):
        store = Store(tmp_path / "state.db")
        for _ in range(3):
            with store.transaction():
                numbers.append(store.take_epoch_number())
        store.close()
    assert numbers == list(range(numbers[0], numbers[0] + 9))


def test_not_a_state_file(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_text("this is not a database, by far, and it is longer than a header of one would be" * 10)
    with pytest.raises(StateError, match=r"state\.db: not a usable netsum state file"):
        Store(path)
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="file"):
        Store(tmp_path / "file" / "state.db")


def test_a_file_of_another_version(tmp_path: Path) -> None:
    Store(tmp_path / "state.db").close()
    with sqlite3.connect(tmp_path / "state.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StateError, match=r"written by another version of netsum \(format 99\)"):
        Store(tmp_path / "state.db")


HOLD = """
import sys
from pathlib import Path
from netsum_controller.lock import StateLock
with StateLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
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
