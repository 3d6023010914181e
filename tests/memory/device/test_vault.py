# SPDX-License-Identifier: MIT
"""All that a device has answered survives it, at whatever instant it ends."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from netsum.wire.memory import CLIENT_WINDOW, Flag, Instruction, MemoryStatus
from netsum_memory.device import Device
from netsum_memory.errors import DeviceError
from netsum_memory.message import MemoryMessage
from netsum_memory.region import Assignment
from netsum_memory.storage import Storage

from tests.memory.device.desk import (
    BASE,
    CLIENT,
    HERE,
    HOST,
    I64,
    THERE,
    Answer,
    Desk,
    assignments,
    kept_device,
    region,
)

SIZE = 1 << 17
SMALL = 3000
"""Bytes of journal after which a checkpoint is made: every few instructions."""


class Killed(BaseException):
    """The process ends here."""


class Model:
    """Memory as it should be, and the packets with the answers that were given."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.memory = np.zeros(SIZE, np.uint8)
        self.answered: list[tuple[MemoryMessage, Answer]] = []
        self.in_flight: MemoryMessage | None = None

    def next(self, desk: Desk) -> MemoryMessage:
        """A random instruction that changes memory."""
        at = self.random.randrange(0, 24) * 4096 + 8 * self.random.randrange(500)
        kind = self.random.choice([Instruction.WRITE, Instruction.FETCH_ADD, Instruction.COMPARE_SWAP, Instruction.COPY])
        if kind == Instruction.WRITE:
            return desk.packet(kind, BASE + at, self.random.randbytes(8 * self.random.randint(1, 11)))
        if kind == Instruction.COPY:
            source = self.random.randrange(0, 24) * 4096
            return desk.packet(kind, BASE + at, length=8, argument=BASE + source)
        values = [0, self.random.randrange(1 << 40)] if kind == Instruction.COMPARE_SWAP else [self.random.randrange(9)]
        return desk.packet(kind, BASE + at, np.array(values, "<i8"), lane=I64)

    def answer(self, packet: MemoryMessage) -> tuple[MemoryStatus, bytes]:
        """Do the instruction on the reference; returns the right answer."""
        head = packet.header
        at = head.address - BASE
        held = self.memory[at : at + 8].view("<i8")
        before = held.tobytes()
        if head.instruction == Instruction.WRITE:
            self.memory[at : at + head.length] = np.frombuffer(packet.payload, np.uint8)
            return MemoryStatus.OK, b""
        if head.instruction == Instruction.COPY:
            source = head.argument - BASE
            self.memory[at : at + 8] = self.memory[source : source + 8]
            return MemoryStatus.OK, b""
        given = np.frombuffer(packet.payload, "<i8")
        if head.instruction == Instruction.FETCH_ADD:
            held += given
            return MemoryStatus.OK, before
        if held[0] != given[0]:
            return MemoryStatus.MISMATCH, before
        held[0] = given[1]
        return MemoryStatus.OK, before

    def step(self, desk: Desk) -> None:
        """Ask for something, or once more for what was in flight when the device ended."""
        if self.in_flight is None:
            self.in_flight = self.next(desk)
        (got,) = desk.send(self.in_flight)
        assert (got.status, got.payload) == self.answer(self.in_flight)
        self.answered.append((self.in_flight, got))
        self.in_flight = None

    def check(self, desk: Desk) -> None:
        """All memory is as it should be, and what was answered lately is answered so again, and not done again."""
        if self.in_flight is not None:
            self.step(desk)
        lately = [each for each in self.answered if each[0].header.sequence > desk.sequence - CLIENT_WINDOW]
        for packet, answer in lately:
            header = packet.header._replace(flags=int(Flag.REPEAT))
            (again,) = desk.send(packet._replace(header=header))
            assert again._replace(header=again.header._replace(key=answer.header.key)) == answer
        for at in range(0, SIZE, 8192):
            assert (desk.read(BASE + at, 8192) == self.memory[at : at + 8192]).all(), f"at {at}"


def reopened(desk: Desk, folder: Path) -> Desk:
    """The same client at the device that comes next in that folder."""
    desk.device = kept_device(folder, largest=SMALL)
    desk.device.assign(assignments(desk.region), 0)
    return desk


@pytest.mark.parametrize("seed", range(4))
def test_random_instructions_and_ends(seed: int, tmp_path: Path) -> None:
    model = Model(seed)
    desk = Desk(kept_device(tmp_path, largest=SMALL))
    for _ in range(6):
        for _ in range(model.random.randrange(60)):
            model.step(desk)
        if model.random.random() < 0.7:
            desk.device.abandon()
        else:
            desk.device.close()
        model.check(reopened(desk, tmp_path))
    desk.device.close()


@contextmanager
def killed_at(instant: int, random_: random.Random) -> Iterator[None]:
    """The process ends in its ``instant``-th write, rename or removal: before it, after it, or in the midst of a write."""
    left = [instant]

    def deadly(owner: Any, name: str, partly: bool) -> Any:
        real: Callable[..., Any] = getattr(owner, name)

        def call(*args: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] > 0:
                return real(*args, **more)
            if left[0] == 0 and partly and random_.random() < 0.7:
                data = b"".join(args[1]) if name == "writev" else args[1]
                part = data[: random_.randrange(len(data) + 1)]
                real(args[0], [part] if name == "writev" else part, *args[2:])
            elif left[0] == 0 and random_.random() < 0.5:
                real(*args, **more)
            raise Killed

        return patch.object(owner, name, call)

    with ExitStack() as stack:
        for name in ("write", "writev", "pwrite"):
            stack.enter_context(deadly(os, name, partly=True))
        for name in ("replace", "unlink"):
            stack.enter_context(deadly(Path, name, partly=False))
        yield


@pytest.fixture
def only_what_is_new() -> Iterator[None]:
    """Collections of garbage pass over what other tests have left, which takes long."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 9))])
@pytest.mark.usefixtures("only_what_is_new")
def test_every_write_may_be_the_last(seed: int, tmp_path: Path) -> None:
    """A device is killed in its first file operation, its second, and so on, also while it recovers; each time the next one
    goes on from what is in the folder."""
    model = Model(seed)
    desk = Desk(kept_device(tmp_path, largest=SMALL))
    deaths = 0
    for instant in range(1, 60):
        deaths += 1
        with suppress(Killed), killed_at(instant, model.random):
            for _ in range(40):
                model.step(desk)
            deaths -= 1
        desk.device.abandon()
        with suppress(Killed), killed_at(model.random.randint(1, 12), model.random):
            kept_device(tmp_path, largest=SMALL).abandon()
        release(tmp_path)
        model.check(reopened(desk, tmp_path))
    assert deaths > 50
    desk.device.close()


def release(folder: Path) -> None:
    """A device killed while it was made has left its lock to this process, as no real one does."""
    gc.collect()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith(str(folder)):
                os.close(int(name))


def test_a_folder_has_one_user_and_one_incarnation(tmp_path: Path) -> None:
    first = Storage(tmp_path)
    with pytest.raises(DeviceError, match=f"folder {tmp_path} is in use by another device"):
        Storage(tmp_path)
    first.close()
    assert Storage(tmp_path).incarnation == first.incarnation


def test_a_journal_that_cannot_be_written_ends_the_device_before_it_answers(tmp_path: Path) -> None:
    desk = Desk(kept_device(tmp_path))
    full = OSError(28, "No space left on device")
    with (
        patch.object(os, "writev", side_effect=full),
        pytest.raises(DeviceError, match=r"journal.*No space left.*what was not answered has not been done"),
    ):
        desk.write(BASE, b"12345678")
    desk.device.abandon()
    assert not reopened(desk, tmp_path).read(BASE, 8).any()


def test_a_write_that_is_cut_short_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "writev", lambda file, parts: os.write(file, b"".join(parts)[:99]))
    desk = Desk(kept_device(tmp_path))
    packets = [desk.packet(Instruction.WRITE, BASE + 8 * at, bytes([at] * 8)) for at in range(20)]
    desk.device.receive([(CLIENT, each.pack()) for each in packets], 0)
    desk.device.abandon()
    assert (reopened(desk, tmp_path).read(BASE, 160) == np.repeat(np.arange(20), 8)).all()
    desk.device.close()


def test_a_shard_that_leaves_takes_its_memory_along(tmp_path: Path) -> None:
    desk = Desk(kept_device(tmp_path, largest=SMALL))
    both = assignments(desk.region)
    desk.write(BASE, b"one")
    desk.write(BASE + 8192, b"two")
    desk.device.assign(both[1:], 0)
    assert desk.device.report()["shards"] == [{"region": 7, "shard": 1, "epoch": 1, "position": 1, "vouched": 1, "ready": True}]
    desk.device.abandon()
    reopened(desk, tmp_path)  # is given both again
    assert (desk.read(BASE, 3).tobytes(), desk.read(BASE + 8192, 3).tobytes()) == (bytes(3), b"two")
    desk.device.assign([], 0)
    assert not list((tmp_path / "regions").iterdir())
    desk.device.close()
    device = kept_device(tmp_path)
    assert device.report() == {"shards": [], "refused": [], "free": None}


def test_a_backup_restarts_with_what_it_knows_was_executed_and_the_rest_of_its_log(tmp_path: Path) -> None:
    """Entries appended and not executed are kept: in the journal, and in a checkpoint."""
    desk = Desk(Device(HOST))
    packets = [desk.packet(Instruction.WRITE, BASE + 8 * at, bytes([at + 1] * 8)) for at in range(5)]
    group = (THERE, HERE)
    for checkpointed in (False, True):
        folder = tmp_path / str(checkpointed)
        device = kept_device(folder)
        device.assign(assignments(desk.region, 3, group), 0)
        holding = device.holdings.get(7, 0)
        assert holding is not None
        for at, packet in enumerate(packets[:4], 1):
            holding.shard.append(at, 3, packet)
        holding.shard.apply()
        holding.shard.apply()
        holding.shard.cut(4)
        holding.shard.append(4, 4, packets[4])
        device.tend(0)
        if checkpointed:
            device.holdings.checkpoint()
        device.abandon()
        again = kept_device(folder).holdings.get(7, 0)
        assert again is not None
        shard = again.shard
        assert (shard.position, shard.epoch, shard.group, again.assigned) == (2, 3, group, False)
        assert list(shard.tail) == [(3, packets[2]), (4, packets[4])]
        assert shard.store.read(BASE, 32) == bytes([1] * 8 + [2] * 8 + [0] * 16)


def test_another_devices_contents_are_kept_once_they_are_whole(tmp_path: Path) -> None:
    source = Desk()
    source.write(BASE, b"from elsewhere")
    (given,) = [each.shard for each in source.device.holdings.all() if each.shard.index == 0]
    group = (THERE, HERE)
    desk = Desk(kept_device(tmp_path))
    desk.device.assign(assignments(desk.region, 2, group), 0)
    holding = desk.device.holdings.get(7, 0)
    assert holding is not None
    holding.shard.begin_install()
    holding.shard.store.write(BASE, given.store.read(BASE, 7))
    desk.device.tend(0)
    desk.device.abandon()
    device = kept_device(tmp_path)
    assert device.report()["shards"][0] == {
        "region": 7,
        "shard": 0,
        "epoch": 2,
        "position": 0,
        "vouched": 0,
        "ready": False,
    }
    holding = device.holdings.get(7, 0)
    assert holding is not None
    holding.shard.store.write(BASE, given.store.read(BASE, 8192))
    holding.shard.install(given.position, given.windows.save(), given.kind.save(elsewhere=True))
    device.tend(0)
    device.abandon()
    device = kept_device(tmp_path)
    assert device.report()["shards"][0] == {
        "region": 7,
        "shard": 0,
        "epoch": 2,
        "position": 1,
        "vouched": 0,
        "ready": False,
    }
    device.assign(assignments(desk.region, 2, group), 0)  # it is ready once it knows that the epoch goes on
    assert device.report()["shards"][0] == {
        "region": 7,
        "shard": 0,
        "epoch": 2,
        "position": 1,
        "vouched": 1,
        "ready": True,
    }
    again = device.holdings.get(7, 0)
    assert again is not None
    assert again.shard.store.read(BASE, 14) == b"from elsewhere"
    assert again.shard.windows.save() == given.windows.save()


def test_limits_and_kinds_are_refused_in_words() -> None:
    device = Device(HOST, limit=SIZE // 2)
    device.assign([Assignment(region(SIZE), shard, 1, (HERE,)) for shard in range(2)], 0)
    report = device.report()
    assert (len(report["shards"]), report["free"]) == (1, 0)
    why = "65536 bytes more than the 0 left of its limit"
    assert report["refused"] == [{"region": 7, "shard": 1, "why": why}]
    device = Device(HOST)
    device.assign(assignments(region(kind="heap", shards=1)), 0)
    (refused,) = device.report()["refused"]
    assert refused["why"].startswith("region r is of kind 'heap'; this device knows array")
