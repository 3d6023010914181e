# SPDX-License-Identifier: MIT
"""A device whose folder was put back from an older copy: who was told of more is told that the memory is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from netsum.errors import MemoryLostError
from netsum.memory import Table
from netsum.memory.array import MemoryArray
from netsum.memory.parameters import Parameters
from netsum.wire.memory import Flag, Instruction, MemoryStatus, pack_position, parse_position, position_seed

from tests.memory.device.desk import BASE, I64, KEYS, Desk, assignments, kept_device, region
from tests.memory.inside import Inside

KINDS: dict[str, dict[str, Any]] = {
    "array": {},
    "parameters": {"optimizer": "sgd", "workers": 1, "lr": 0.5},
    "table": {"dim": 4},
}


def array(memory: MemoryArray) -> None:
    whole = memory.view("int64")
    whole.fetch_add(slice(0, 8), 1)


Call = Callable[[MemoryArray], object]
CALLS: dict[str, tuple[str, Call, Call]] = {
    "read": ("array", array, lambda memory: memory.read(slice(0, 64))),
    "write": ("array", array, lambda memory: memory.write(slice(0, 64), 1)),
    "add": ("array", array, lambda memory: memory.view("int64").add(slice(0, 8), 1)),
    "fetch_add": ("array", array, lambda memory: memory.view("int64").fetch_add(0, 1)),
    "compare_swap": ("array", array, lambda memory: memory.view("int64").compare_swap(0, 1, 2)),
    "copy": ("array", array, lambda memory: memory.copy(slice(64, 128), slice(0, 64))),
    "push": ("table", lambda memory: push(memory, 1), lambda memory: push(memory, 1)),
    "lookup": ("table", lambda memory: push(memory, 1), lambda memory: Table(memory).lookup([1])),
}


def push(memory: MemoryArray, key: int) -> None:
    Table(memory).push([key], np.ones((1, 4), np.float32))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_client_that_was_told_of_more_is_told_that_it_is_lost(name: str, checkpointed: bool, tmp_path: Path) -> None:
    kind, before, call = CALLS[name]
    inside = Inside(kind, KINDS[kind], folder=tmp_path / "live", shards=1)
    first, other = inside.opened(), inside.opened()
    before(first)
    inside.device.tend(0)
    shutil.copytree(tmp_path / "live", tmp_path / "older")
    for _ in range(3):
        before(first)
    if checkpointed:
        inside.checkpoint()
    inside.device.abandon()
    shutil.rmtree(tmp_path / "live")
    shutil.copytree(tmp_path / "older", tmp_path / "live")
    inside.start()
    with pytest.raises(MemoryLostError):
        call(first)
    assert inside.device.report()["shards"] == []
    with pytest.raises(MemoryLostError):  # who was told nothing is not shown it, either
        call(other)
    inside.kill()
    with pytest.raises(MemoryLostError):
        call(other)
    inside.device.close()


def test_a_step_on_older_parameters_is_not_taken(tmp_path: Path) -> None:
    inside = Inside("parameters", KINDS["parameters"], folder=tmp_path / "live", shards=1)
    memory = inside.opened(timeout=60.0)
    values = np.ones(64, np.float32)
    parameters = Parameters(memory, [values], worker=0)
    shutil.copytree(tmp_path / "live", tmp_path / "older")
    for _ in range(3):
        parameters.step([values])
    inside.device.abandon()
    shutil.rmtree(tmp_path / "live")
    shutil.copytree(tmp_path / "older", tmp_path / "live")
    inside.start()
    with pytest.raises(MemoryLostError):
        parameters.step([values])
    inside.device.close()


ONE = np.array([1], "<i8")


def grown(folder: Path, number: int) -> Desk:
    desk = Desk(kept_device(folder), of=region(1 << 16, 1))
    for _ in range(number):
        desk.ask(Instruction.FETCH_ADD, BASE, ONE, lane=I64)
    return desk


def shown(position: int, shard: int = 0, key: int = KEYS.device) -> int:
    return pack_position(position, position_seed(key, 7, shard))


def test_replies_say_the_position_and_requests_may_show_it() -> None:
    desk = Desk()
    for position in range(1, 5):
        answer = desk.ask(Instruction.FETCH_ADD, BASE, ONE, lane=I64, argument=shown(position - 1))
        assert answer.header.key == shown(position)
        assert answer.status == MemoryStatus.OK
    for epoch in (0, 1):  # 1: as a switch has written it, which takes the fast path
        got = desk.ask(Instruction.READ, BASE, length=8, argument=shown(4), region=7 * epoch, epoch=epoch)
        assert (got.status, got.header.key) == (MemoryStatus.OK, shown(4))
        got = desk.ask(Instruction.READ, BASE, length=8, argument=shown(4, 1), region=7 * epoch, epoch=epoch)
        assert got.status == MemoryStatus.OK, "it is another shard's"


@pytest.mark.parametrize("epoch", [0, 1])
def test_who_may_only_read_loses_nothing_for_others(epoch: int) -> None:
    desk = Desk()
    desk.write(BASE, ONE)
    more: dict[str, Any] = {"length": 8, "region": 7 * epoch, "epoch": epoch}
    got = desk.ask(Instruction.READ, BASE, key=KEYS.read, argument=shown(9), **more)
    assert got.status == MemoryStatus.LOST
    assert desk.read(BASE, 8, "<i8")[0] == 1
    got = desk.ask(Instruction.READ, BASE, argument=shown(9), **more)
    assert got.status == MemoryStatus.LOST
    assert desk.ask(Instruction.READ, BASE, key=KEYS.read, **more).status == MemoryStatus.LOST
    assert [each["shard"] for each in desk.device.report()["shards"]] == [1]


def test_what_was_done_in_a_later_epoch_is_not_lost() -> None:
    """The device had left the group, is to join again, and has heard of neither."""
    desk = Desk()
    desk.write(BASE, ONE)
    more: dict[str, Any] = {"lane": I64, "argument": shown(9), "region": 7, "flags": Flag.REPLICATED}
    assert desk.ask(Instruction.ADD, BASE, ONE, epoch=3, **more).status == MemoryStatus.OK
    assert desk.device.behind
    assert desk.ask(Instruction.ADD, BASE, ONE, epoch=1, **more).status == MemoryStatus.LOST
    assert desk.ask(Instruction.ADD, BASE, ONE, epoch=3, **more).status == MemoryStatus.BUSY


def test_no_damaged_position_loses_memory() -> None:
    """Each bit of it, flipped; the bits that are to come are more than a shard ever has."""
    desk = Desk()
    desk.write(BASE, ONE)
    for bit in range(64):
        got = desk.ask(Instruction.READ, BASE, length=8, argument=shown(1) ^ 1 << bit)
        assert got.status == MemoryStatus.OK
    assert parse_position(shown(1), position_seed(KEYS.device, 7, 1)) is None


def test_a_shard_that_is_behind_is_given_up_before_it_joins_again(tmp_path: Path) -> None:
    desk = grown(tmp_path, 3)
    assert desk.ask(Instruction.READ, BASE, length=8, argument=shown(4)).status == MemoryStatus.LOST
    desk.device.abandon()
    device = kept_device(tmp_path)
    desk.device = device
    device.assign(assignments(desk.region, 5), 0)
    (held,) = device.report()["shards"]
    assert (held["epoch"], held["position"]) == (5, 0)
    assert desk.read(BASE, 8, "<i8")[0] == 0
    device.close()


def test_what_the_controller_doubts_is_neither_served_nor_given_up(tmp_path: Path) -> None:
    desk = grown(tmp_path, 3)
    desk.device.abandon()
    device = desk.device = kept_device(tmp_path)
    device.assign([], 0, keep={(7, 0)})
    assert desk.ask(Instruction.READ, BASE, length=8).status == MemoryStatus.BUSY
    assert device.report()["shards"][0]["position"] == 3
    device.assign([], 0)
    assert not device.report()["shards"]
    device.close()
