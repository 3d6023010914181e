# SPDX-License-Identifier: MIT
"""State on the disk survives the machine; a device that may have lost the rest is another one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from netsum.wire.memory import Instruction
from netsum_memory.device import Device
from netsum_memory.message import MemoryMessage
from netsum_memory.storage import Storage

from tests.memory.device.desk import BASE, CLIENT, HOST, Desk, assignments, kept_device


@pytest.mark.parametrize(
    ("runs", "kept"),
    [
        (["killed"], False),
        (["killed", "ended"], True),
        (["ended", "killed"], False),
        (["killed with fsync"], True),
        (["killed", "killed with fsync"], True),
    ],
)
def test_who_may_have_lost_something_with_the_machine_is_another_device(
    runs: list[str], kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(kept_device(tmp_path))
    desk.write(BASE, b"12345678")
    desk.device.abandon()
    incarnation = ""
    for each in runs:
        vault = Storage(tmp_path, fsync="fsync" in each)
        assert vault.incarnation == incarnation or not incarnation
        incarnation = vault.incarnation
        desk.device = Device(HOST, vault=vault)
        desk.device.assign(assignments(desk.region), 0)
        assert desk.read(BASE, 8).tobytes() == b"12345678"
        if each == "ended":
            desk.device.close()
        else:
            desk.device.abandon()
    monkeypatch.setattr("netsum_memory.storage._boot", lambda: "the next")
    vault = Storage(tmp_path)
    device = Device(HOST, vault=vault)
    assert (vault.incarnation == incarnation) == kept
    assert len(device.report()["shards"]) == (2 if kept else 0)
    assert any((tmp_path / "set-aside").glob("journal.*")) != kept
    desk.device = device
    device.assign(assignments(desk.region), 0)
    assert desk.read(BASE, 8).tobytes() == (b"12345678" if kept else bytes(8))
    device.abandon()


def test_with_fsync_the_disk_has_it_before_the_answer_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packets: list[MemoryMessage] = []
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda _: synced.append(len(packets)))
    desk = Desk(Device(HOST, vault=Storage(tmp_path, fsync=True)))
    packets = [desk.packet(Instruction.WRITE, BASE, b"12345678") for _ in range(20)]
    before = len(synced)
    assert len(desk.device.receive([(CLIENT, each.pack()) for each in packets], 0)) == 20
    assert synced[before:] == [20]  # once for all of them
    desk.device.close()
