# SPDX-License-Identifier: MIT
"""A device's folder whose files were changed behind its back: it is refused, and nothing that was answered is silently gone.

Most of this asks a folder, whatever is in it. The flips of every bit ask the files' parts.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from netsum.wire.memory import Instruction, LaneType, MemoryStatus
from netsum_memory import identity, storage
from netsum_memory.checkpoint import Checkpoint
from netsum_memory.errors import DeviceError
from netsum_memory.journal import EMPTY_BYTES, Journal
from netsum_memory.storage import Storage

from tests.memory.device.desk import BASE, CLIENT, I64, Desk, assignments, kept_device, region

ONE = np.array([1], "<i8")
WHERE = (0, 8, 4096, 8192)
"""Of the counters that instructions add to."""
EARLY = 40000
"""Of a counter that the first three alone add to, so that the newest checkpoint does not have its page."""
LAST = 24
"""Instructions that are done in all."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The power stays on here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def counters(done: int) -> list[int]:
    """The counters once so many instructions are done."""
    return [sum(number % len(WHERE) == at for number in range(3, done)) for at in range(len(WHERE))] + [min(done, 3)]


def fill(desk: Desk, upto: int) -> None:
    while desk.sequence < upto:
        address = BASE + (EARLY if desk.sequence < 3 else WHERE[desk.sequence % len(WHERE)])
        assert desk.ask(Instruction.FETCH_ADD, address, ONE, lane=I64).status == MemoryStatus.OK


class Folders:
    """A folder as it is when the device has done all instructions, and as it was at times before."""

    def __init__(self, path: Path, *, in_order: bool) -> None:
        self.path, self.region = path, region(1 << 16, 1)
        desk = Desk(kept_device(path / "live"), of=self.region)
        self.older: dict[int, Path] = {}
        for upto, checkpointed in ((3, False), (8, True), (13, False), (17, True), (21, False), (LAST, False)):
            fill(desk, upto)
            if checkpointed:
                desk.device.holdings.checkpoint()
            self.older[upto] = self.copy(f"at {upto}")
        desk.device.close() if in_order else desk.device.abandon()
        self.last = self.copy("last")
        self.files = sorted(each.relative_to(self.last) for each in self.last.rglob("*") if each.is_file())
        self.files.remove(Path("lock"))

    def copy(self, name: str) -> Path:
        return Path(shutil.copytree(self.path / "live", self.path / name))

    def changed(self, change: Callable[[Path], object]) -> int | None:
        """The number of instructions that a device that finds the changed folder has done; None if it refuses the folder. Its
        memory is always that of this moment."""
        folder = self.path / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.last, folder)
        change(folder)
        try:
            device = kept_device(folder)
        except DeviceError:
            return None
        (held,) = device.report()["shards"]
        done = int(held["position"])
        device.assign(assignments(self.region), 0)
        desk = Desk(device, of=self.region)
        desk.client = 6
        assert [int(desk.read(BASE + at, 8, "<i8")[0]) for at in (*WHERE, EARLY)] == counters(done)
        device.abandon()
        return done


@pytest.fixture(scope="module", params=[False, True], ids=["killed", "ended"])
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp("folders"), in_order=request.param)


def flipped(at: int, bit: int, file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1 << bit
    file.write_bytes(content)


def test_what_is_as_it_was_left_is_taken(folders: Folders) -> None:
    assert folders.changed(lambda _: None) == LAST


def test_a_flipped_bit_is_refused_or_changes_nothing(folders: Folders) -> None:
    chance = random.Random(1)
    refused = 0
    for name in folders.files:
        size = (folders.last / name).stat().st_size
        for _ in range(25):
            at, bit = chance.randrange(size), chance.randrange(8)
            done = folders.changed(lambda folder: flipped(at, bit, folder / name))  # noqa: B023
            assert done in (None, LAST), f"{name}: bit {bit} of byte {at}"
            refused += done is None
    assert refused > 15 * len(folders.files)


def test_a_file_that_is_missing_or_empty_is_refused(folders: Folders) -> None:
    for name in folders.files:
        assert folders.changed(lambda folder: (folder / name).unlink()) is None, f"without {name}"  # noqa: B023
        assert folders.changed(lambda folder: (folder / name).write_bytes(b"")) is None, f"{name} empty"  # noqa: B023


def test_only_the_last_batch_may_be_cut_short_and_only_of_a_killed_device(folders: Folders) -> None:
    """A journal cut beyond that looks like an older one: the device says so, and the controller knows better."""
    (name,) = (each for each in folders.files if each.name.startswith("journal"))
    size = (folders.last / name).stat().st_size
    ended = folders.changed(lambda folder: os.truncate(folder / name, size - 1)) is None
    for left in {*range(0, size, 9), *range(size - 20, size)}:
        done = folders.changed(lambda folder: os.truncate(folder / name, left))  # noqa: B023
        if ended or left < EMPTY_BYTES:
            assert done is None
        else:
            assert done is not None
            assert 17 <= done < LAST
    assert ended or folders.changed(lambda folder: os.truncate(folder / name, size - 1)) == LAST - 1


def test_files_of_another_moment_are_refused(folders: Folders) -> None:
    """Every file, and every pair of files, of an earlier moment among the newest."""
    for moment, older in folders.older.items():
        names = sorted(each.relative_to(older) for each in older.rglob("*") if each.is_file() and each.name != "lock")
        for first in names:
            for second in names[names.index(first) :]:

                def change(folder: Path) -> None:
                    for name in {first, second}:  # noqa: B023
                        shutil.copy(older / name, folder / name)  # noqa: B023

                done = folders.changed(change)
                assert done is None or 17 <= done <= LAST, f"{first} and {second} of {moment}"


def test_what_was_appended_to_a_file_is_refused(folders: Folders) -> None:
    for name in folders.files:
        if name.suffix != ".json":
            whole = (folders.last / name).read_bytes()
            done = folders.changed(lambda folder: (folder / name).write_bytes(whole + whole[:200]))  # noqa: B023
            assert done is None or not any(whole[:200]), name


# Every bit of what the files are made of.


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp("bits"), in_order=False)


def every_flip(path: Path, of: Callable[[int], Iterator[int]] = lambda _: iter(range(8))) -> Iterator[tuple[int, int]]:
    """The file with each of its bits flipped, one after the other; ``of`` says which bits of a byte."""
    with path.open("r+b", buffering=0) as file:
        content = file.read()
        for at, byte in enumerate(content):
            for bit in of(at):
                os.pwrite(file.fileno(), bytes([byte ^ 1 << bit]), at)
                yield at, bit
            os.pwrite(file.fileno(), bytes([byte]), at)


@pytest.mark.parametrize("power", [False, True])
def test_every_bit_of_a_journal_counts(killed: Folders, tmp_path: Path, power: bool) -> None:
    """After a power failure, too: what did not reach the disk is a whole sector."""
    incarnation = known_of(killed.last).incarnation
    path = Path(shutil.copy(killed.last / "journal.2", tmp_path))
    for at, bit in every_flip(path):
        journal = Journal(path, incarnation)
        with pytest.raises(DeviceError, match=r"is damaged at byte \d+ of \d+|is no journal|lost its beginning"):
            list(journal.recover(power=power))
        journal.close()
        assert path.stat().st_size == journal.size, f"bit {bit} of byte {at}: it was cut off"
    journal = Journal(path, incarnation)
    assert len(list(journal.recover())) == LAST - 17
    journal.close()


def test_every_byte_of_a_checkpoint_counts(killed: Folders, tmp_path: Path) -> None:
    incarnation = known_of(killed.last).incarnation
    path = Path(shutil.copy(killed.last / "checkpoint.2", tmp_path))
    size = path.stat().st_size
    for _ in every_flip(path, lambda at: iter(range(8) if at < 1300 or at > size - 20 else [at % 8] * (at % 3 == 0))):
        with pytest.raises(DeviceError, match="is damaged at byte"):
            read_all(path, incarnation)
    for length in range(0, size, 13):
        os.truncate(path, size - 1 - length)
        with pytest.raises(DeviceError, match="is damaged at byte"):
            read_all(path, incarnation)
    assert read_all(killed.last / "checkpoint.2", incarnation) == 3


def read_all(path: Path, incarnation: str) -> int:
    """The number of pages in a checkpoint."""
    return sum(len(list(pages.changed)) for pages in Checkpoint(path, incarnation).pages())


def test_every_bit_of_the_identity_counts(killed: Folders, tmp_path: Path) -> None:
    path = Path(shutil.copy(killed.last / "device.json", tmp_path))
    known, refused = known_of(tmp_path), 0
    for at, bit in every_flip(path):
        try:
            assert identity.read_identity(path) == known, f"bit {bit} of byte {at}"
        except DeviceError:
            refused += 1
    assert refused > 1000


def known_of(folder: Path) -> identity.Identity:
    known = identity.read_identity(folder / "device.json")
    assert known is not None
    return known


def test_what_did_not_reach_the_disk_before_a_power_failure_is_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --fsync; sectors of the last batch may be zeros, in any combination."""
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    of = region(1 << 16, 1)
    device = kept_device(tmp_path / "live", fsync=True)
    desk = Desk(device, of=of)
    packets = [desk.packet(Instruction.WRITE, BASE + 256 * at, bytes([at + 1] * 200)) for at in range(12)]
    device.receive([(CLIENT, each.pack()) for each in packets[:6]], 0)
    before = (tmp_path / "live" / "journal.0").stat().st_size
    device.receive([(CLIENT, each.pack()) for each in packets[6:]], 0)
    device.abandon()
    monkeypatch.setattr(storage, "_boot", lambda: "the next")
    whole = (tmp_path / "live" / "journal.0").read_bytes()
    sectors = sorted({before, *range(-(-before // 512) * 512, len(whole), 512)})
    for lacking in range(1 << len(sectors)):
        folder = Path(shutil.copytree(tmp_path / "live", tmp_path / "power", dirs_exist_ok=True))
        content = bytearray(whole)
        for number, (begin, end) in enumerate(zip(sectors, [*sectors[1:], len(whole)], strict=True)):
            if lacking >> number & 1:
                content[begin:end] = bytes(end - begin)
        (folder / "journal.0").write_bytes(content)
        shutil.copy(tmp_path / "live" / "device.json", folder)
        head_alone_is_gone = lacking & 1 and lacking != (1 << len(sectors)) - 1
        if head_alone_is_gone:
            with pytest.raises(DeviceError, match="is damaged at byte"):
                kept_device(folder, fsync=True)
            continue
        again = kept_device(folder, fsync=True)
        assert again.report()["shards"][0]["position"] == (12 if not lacking else 6)
        again.abandon()


def test_a_folder_that_was_never_finished_is_begun_again(tmp_path: Path) -> None:
    for name in ("checkpoint.0.part", "journal.0", "checkpoint.0"):
        folder = tmp_path / name
        (folder / "regions").mkdir(parents=True)
        identity.write_identity(folder / "device.json", identity.Identity("0" * 16, None, "another"))
        (folder / name).write_bytes(b"half")
        desk = Desk(kept_device(folder))
        desk.write(BASE, b"12345678")
        desk.device.abandon()
        assert Storage(folder).incarnation != "0" * 16


# Tables have a file of lmdb's, which has no checksums.


def table_of(folder: Path) -> Desk:
    of = region(1 << 16, 1, kind="table", options={"dim": 4, "ram_rows": 1})
    return Desk(kept_device(folder), of=of)


def push(desk: Desk, keys: int) -> None:
    for key in range(keys):
        payload = np.array([key], "<u8").tobytes() + np.ones(4, "<f4").tobytes()
        assert desk.ask(Instruction.PUSH, BASE, payload, lane=int(LaneType.FLOAT32)).status == MemoryStatus.OK


def look_all(desk: Desk) -> None:
    for key in range(20):
        desk.ask(Instruction.LOOKUP, BASE, np.array([key], "<u8"))


def test_every_byte_of_a_row_on_disk_counts(tmp_path: Path) -> None:
    desk = table_of(tmp_path / "live")
    push(desk, 20)
    desk.device.holdings.checkpoint()
    key = np.array([7], "<u8")
    row = desk.ask(Instruction.LOOKUP, BASE, key).payload
    desk.device.abandon()
    file = tmp_path / "live" / "regions" / "7.0.table"
    content = file.read_bytes()
    places = [at for at in range(len(content) - 16) if content[at : at + 16] == row]
    assert places
    for at in range(-8, 20):
        folder = tmp_path / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "live", folder)
        changed = bytearray(content)
        for place in places:
            changed[place + at] ^= 1 << at % 8
        (folder / "regions" / "7.0.table").write_bytes(changed)
        desk.device = kept_device(folder)
        desk.device.assign(assignments(desk.region), 0)
        with pytest.raises(DeviceError, match=r"7\.0\.table is damaged at key \d+: give this device another folder"):
            look_all(desk)
        desk.device.abandon()


def test_a_tables_file_that_is_missing_or_older_is_refused(tmp_path: Path) -> None:
    desk = table_of(tmp_path / "live")
    file = tmp_path / "live" / "regions" / "7.0.table"
    for upto in (5, 10):
        push(desk, upto)
        desk.device.holdings.checkpoint()
        shutil.copy(file, tmp_path / f"at {upto}")
    desk.device.abandon()
    shutil.copy(tmp_path / "at 5", file)
    with pytest.raises(DeviceError, match=r"is older than its checkpoint, or was missing: synced 1 times, not 2"):
        Desk(kept_device(tmp_path / "live"), of=desk.region)
    shutil.copy(tmp_path / "at 10", file)
    kept_device(tmp_path / "live").abandon()
    file.unlink()
    with pytest.raises(DeviceError, match=r"was missing: synced 0 times, not 2"):
        kept_device(tmp_path / "live")


def test_a_shard_that_was_given_up_leaves_nothing_that_a_later_one_would_find(tmp_path: Path) -> None:
    desk = table_of(tmp_path)
    push(desk, 20)
    desk.device.holdings.checkpoint()
    desk.device.assign([], 0)
    assert not any((tmp_path / "regions").iterdir())
    desk.device.abandon()
    desk = table_of(tmp_path)
    assert desk.device.report()["shards"][0]["position"] == 0
    fresh = desk.ask(Instruction.LOOKUP, BASE, np.array([7], "<u8")).payload
    push(desk, 8)
    assert desk.ask(Instruction.LOOKUP, BASE, np.array([7], "<u8")).payload != fresh
    desk.device.close()
