# SPDX-License-Identifier: MIT
"""Devices of a group whose folders were damaged, or put back from an older copy, before they are promoted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from netsum.wire.memory import Flag, Instruction, MemoryStatus
from netsum_memory.errors import DeviceError
from netsum_memory.message import MemoryMessage

from tests.memory.replication.group import CLIENT, Group
from tests.memory.replication.test_catching_up import REGION, instructions

WHOLE = 105
"""Instructions that are acknowledged."""


@pytest.fixture
def group(tmp_path: Path) -> Group:
    """A primary and a backup with everything; ``older`` has the backup's folder as it was halfway."""
    made = Group(REGION, 1, "h1", "h2", folders={"h2": tmp_path / "h2"})
    made.tell("h1", "h2")
    request = instructions(1, WHOLE)
    made.complete(request[:50])
    made.run(4)
    shutil.copytree(tmp_path / "h2", tmp_path / "older")
    made.complete(request[50:])
    made.run(4)
    return made


def read(group: Group, sequence: int, told: int) -> MemoryMessage:
    """The answer to a READ that shows a packed position."""
    header = instructions(1, 1)[0].header
    fields = {"instruction": int(Instruction.READ), "length": 8, "sequence": sequence, "argument": told, "lane": 0}
    request = MemoryMessage(header._replace(**fields))
    group.complete([request])
    return group.replies[request.name]


def test_a_backup_with_a_damaged_journal_is_never_promoted(group: Group, tmp_path: Path) -> None:
    """One bit of a length in the middle; those that are behind it have been acknowledged."""
    group.devices["h2"].abandon()
    (journal,) = (tmp_path / "h2").glob("journal.*")
    content = bytearray(journal.read_bytes())
    content[journal.stat().st_size // 2] ^= 1
    journal.write_bytes(content)
    with pytest.raises(DeviceError, match="is damaged at byte"):
        group.start("h2")


def test_a_backup_with_an_older_folder_shows_nothing_once_it_is_promoted(group: Group, tmp_path: Path) -> None:
    told = read(group, WHOLE + 1, 0).header.key
    assert group.contents("h1") == group.contents("h2")
    group.devices["h2"].abandon()
    shutil.rmtree(tmp_path / "h2")
    shutil.copytree(tmp_path / "older", tmp_path / "h2")
    group.start("h2")
    group.tell("h2")
    assert group.held("h2").shard.position == 50
    assert read(group, WHOLE + 2, told).header.status == MemoryStatus.LOST
    assert read(group, WHOLE + 3, 0).header.status == MemoryStatus.LOST
    assert group.devices["h2"].report()["shards"] == []


def test_a_backup_with_an_older_folder_says_so_while_the_primary_lives(group: Group, tmp_path: Path) -> None:
    """Writes go to all, so this device hears of the position, too."""
    told = read(group, WHOLE + 1, 0).header.key
    group.devices["h2"].abandon()
    shutil.rmtree(tmp_path / "h2")
    shutil.copytree(tmp_path / "older", tmp_path / "h2")
    group.start("h2")
    group.assign("h2")
    request = write(WHOLE + 2, told)
    header = request.header._replace(flags=int(Flag.REPLICATED), region=REGION.id, epoch=group.epoch)
    sends = group.devices["h2"].receive([(CLIENT, request._replace(header=header).pack())], group.now)
    assert not sends, "the primary answers"
    assert group.devices["h2"].report()["shards"] == []


def write(sequence: int, told: int) -> MemoryMessage:
    header = instructions(1, 1)[0].header
    fields = {"instruction": int(Instruction.WRITE), "length": 8, "sequence": sequence, "argument": told, "lane": 0}
    return MemoryMessage(header._replace(**fields), (), bytes(8))


def test_counting_devices_have_what_clients_were_told(group: Group) -> None:
    """Through losses and another primary, no client takes a device for one that has lost memory."""
    group.loss = 0.2
    request = instructions(2, 200, client=6)
    told = 0
    for at, each in enumerate(request):
        if at == 100:
            group.tell("h2", "h1")
        fields = {} if each.header.instruction == Instruction.COPY else {"argument": told}
        request[at] = each._replace(header=each.header._replace(**fields))
        if at % 10 == 9:
            group.complete(request[at - 9 : at + 1])
            told = max(reply.header.key for reply in group.replies.values())
            assert {reply.header.status for reply in group.replies.values()} <= {MemoryStatus.OK, MemoryStatus.MISMATCH}
    group.settle()
    assert {len(device.report()["shards"]) for device in group.devices.values()} == {1}
