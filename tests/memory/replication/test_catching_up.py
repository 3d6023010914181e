# SPDX-License-Identifier: MIT
"""Real devices whose packets are lost, doubled and reordered: who joins gets the log, or a copy where that is too short."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from netsum.wire.memory import Instruction, LaneType, MemoryHeader, MemoryStatus
from netsum_memory.device import Device
from netsum_memory.message import MemoryMessage
from netsum_memory.region import Assignment, Keys, Peer, Region
from netsum_memory.replication.replica import KEEP
from netsum_memory.shard import PIECE, Contents, ShardCopy
from netsum_memory.store import PAGE

from tests.memory.replication.group import Group

BASE = 1 << 32
REGION = Region(7, "r", BASE, 1 << 16, 8192, 1, Keys(11, 12, 13))
CHANGES = (Instruction.WRITE, Instruction.ADD, Instruction.FETCH_ADD, Instruction.COMPARE_SWAP, Instruction.COPY)


def instructions(seed: int, count: int, client: int = 5) -> list[MemoryMessage]:
    """Changes of a few places, whose order matters."""
    rng = random.Random(seed)
    made = []
    for sequence in range(1, count + 1):
        what = rng.choice(CHANGES)
        payload = b"" if what == Instruction.COPY else rng.randbytes(16 if what == Instruction.COMPARE_SWAP else 8)
        address = BASE + 8 * rng.randrange(4) + 8192 * rng.randrange(8)
        header = MemoryHeader(int(what), address, len(payload), 12, client, sequence, lane=LaneType.INT64)
        if what == Instruction.COPY:
            header = header._replace(length=8, lane=LaneType.BYTES, argument=BASE + 8192 * rng.randrange(8))
        elif what == Instruction.WRITE:
            header = header._replace(lane=LaneType.BYTES)
        made.append(MemoryMessage(header, (), payload))
    return made


@pytest.mark.parametrize("before", [40, 2 * KEEP + 300], ids=["by the log", "by a copy"])
@pytest.mark.parametrize("folder", [False, True], ids=["RAM", "folder"])
def test_a_shard_moves_while_it_is_used(before: int, folder: bool, tmp_path: Path) -> None:
    group = Group(REGION, before, "h1", "h2", folders={"h2": tmp_path / "h2"} if folder else {})
    group.tell("h1")
    request = instructions(before, before + 120)
    for at in range(0, before, 200):
        group.complete(request[at : min(before, at + 200)])
    log = group.held("h1").ordering._replica.log
    assert (log.first > 1) == (before > KEEP)
    group.loss = 0.1
    group.tell("h1", "h2", joining=("h2",))
    for at in range(before, before + 60, 20):
        group.complete(request[at : at + 20])
    group.settle()
    assert group.held("h2").shard.position == before + 60
    assert group.contents("h2") == group.contents("h1")
    group.tell("h2")
    group.complete(request[before + 60 :])
    memory = group.contents("h2")
    group.replies.clear()
    again = request[-50:]
    group.complete(again)  # in the new primary's memory of what was done
    assert group.contents("h2") == memory
    if folder:
        group.start("h2")
        group.tell("h2")
        group.run()
        assert group.contents("h2") == memory


@pytest.mark.parametrize("folder", [False, True], ids=["RAM", "folder"])
def test_a_copy_shows_one_position_and_takes_the_ram_of_what_changes(folder: bool, tmp_path: Path) -> None:
    hosts = ("h1", "h2")
    group = Group(REGION, 1, *hosts, folders={host: tmp_path / host for host in hosts} if folder else {})
    group.tell("h1")
    request = instructions(1, 60)
    group.complete(request[:40])
    source, copied = group.held("h1").shard, group.held("h1").shard.position
    for granule in REGION.granules(0):
        source.store.write(granule + REGION.granule - PAGE, b"does not change any more")
    memory, windows, *_ = group.contents("h1")
    copy = ShardCopy(source)
    pieces = []
    for at in range(copy.pieces):
        if at < 20:
            group.complete(request[40 + at : 41 + at])
        pieces.append(copy.piece(at))
    assert all(len(piece) == PIECE for piece in pieces[:-1])
    now = group.contents("h1")[0]
    changed = {at // PAGE for at in range(len(memory)) if memory[at] != now[at]}
    assert set(copy._pages._aside) >= changed > set()
    assert len(copy._pages._aside) <= len(copy._pages) / 2
    group.tell("h2")
    shard = group.held("h2").shard
    contents = Contents(shard)
    contents.begin(copied)
    most = 0
    for piece in pieces:
        contents.piece(piece)
        most = max(most, len(contents._coming))
    contents.finish(copied)
    assert group.contents("h2")[:2] == (memory, windows)
    assert (shard.position, shard.whole) == (copied, True)
    assert most < len(windows) + 2 * PAGE, "a page at a time"
    del copy
    assert not source.store._snapshots, "no snapshot is held any more"


@pytest.mark.parametrize("seed", range(3))
def test_a_replaced_primarys_own_end_of_the_log_is_cut_off(seed: int, tmp_path: Path) -> None:
    """It has entries that it told no device of; when it returns, with its journal, it has the others' log."""
    hosts = ("h1", "h2", "h3")
    group = Group(REGION, seed, *hosts, loss=0.1, folders={host: tmp_path / host for host in hosts})
    group.tell(*hosts)
    request = instructions(seed, 60)
    group.complete(request[:20])
    lonely = instructions(seed + 1, 5, client=6)
    for each in lonely:  # come to the primary alone, whose messages are lost
        group.devices["h1"].receive([(("10.9.0.2", 4000), each.pack())], group.now)
    group.start("h1")  # killed
    assert group.held("h1").ordering.position == 25
    group.tell("h2", "h3")
    group.complete(request[20:40])
    group.tell("h2", "h3", "h1", joining=("h1",))
    group.complete(request[40:])
    group.settle()
    assert group.contents("h1") == group.contents("h2") == group.contents("h3")
    assert group.held("h1").shard.position == 60


def test_two_instructions_of_one_name_are_one_everywhere() -> None:
    """A client that sends each device another one gets no replicas that differ."""
    group = Group(REGION, 1, "h1", "h2")
    group.tell("h1", "h2")
    one = instructions(1, 1)[0]
    for host, text in (("h2", b"to two  "), ("h1", b"to one  ")):
        header = one.header._replace(instruction=Instruction.WRITE, lane=0, length=8, address=BASE, flags=2)
        sends = group.devices[host].receive([(("10.9.0.1", 4000), MemoryMessage(header, (), text).pack())], group.now)
        group._emit(host, sends)
    group.run(3)
    group.settle()
    assert group.contents("h1") == group.contents("h2")
    assert group.contents("h2")[0][:8] == b"to one  "


def test_a_shard_that_ought_to_be_there_is_not_made_of_nothing() -> None:
    device = Device("h1")
    assignment = Assignment(REGION, 0, 4, (Peer("h1", "10.0.0.1"),), expected=True)
    device.assign([assignment], 0)
    report = device.report()
    assert (report["shards"], len(report["refused"])) == ([], 1)
    device.assign([replace(assignment, expected=False)], 0)
    assert len(device.report()["shards"]) == 1


def test_reads_wait_for_a_new_primarys_log() -> None:
    group = Group(REGION, 2, "h1", "h2")
    group.tell("h1", "h2")
    request = instructions(3, 4)
    for each in request:
        group.ask(each)
    group.run()
    assert len(group.replies) == 4
    group.tell("h2", "h1")
    read = MemoryMessage(MemoryHeader(int(Instruction.READ), BASE, 8, key=12, client=8, sequence=1, region=7, epoch=2))
    has_open = [(("10.9.0.1", 4000), read.pack())]
    assert not group.devices["h2"].receive(has_open, group.now), "it does not know yet what h1 has told the client"
    group.run(3)
    assert group.replies[8, 1].header.status == MemoryStatus.OK
    assert group.replies[8, 1].payload == group.contents("h1")[0][:8]
