# SPDX-License-Identifier: MIT
"""Brings a target's jobs into the state that the fuzzer attacks, and checks afterwards that they are still in it."""

from __future__ import annotations

from typing import NamedTuple

from netsum.frames import PREFIX_BYTES
from netsum.wire.codec import parse_header
from netsum.wire.schema import EVERYONE, HEADER_BYTES, BlockState, Outcome, Status
from netsum_testbed.errors import TestbedError

from tests.system.fuzz.expect import Record
from tests.system.fuzz.site import BLOCKS, LIVE, SLOTS, STRAGGLERS, FuzzBlock
from tests.system.fuzz.targets import Packet, Target

_REPEATS = 10_000
"""Repetitions after which a block that should age in two milliseconds counts as not aging."""


class SetupError(TestbedError):
    """The jobs are not in the state that the fuzzer needs."""


class Replay(NamedTuple):
    """A finished block's result as a member fetches it."""

    block: FuzzBlock
    member: int
    answer: tuple[Packet, ...]


def make_blocks(target: Target) -> dict[int, Record]:
    """Send the contributions of every block and return the records of all slots. Raises :class:`SetupError` if one is not
    as intended: a run on other blocks would prove less than it claims."""
    for block in BLOCKS:
        for member in block.sent:
            _send(target, block, member)
        if block.aged:
            _age(target, block)
    records = target.records(SLOTS)
    for block in LIVE:
        record = records[block.slot]
        wanted = {
            "state": block.state,
            "block_id": block.block_id,
            "seen": sum(block.job.members[member].source for member in block.sent),
            "degraded": int(block.aged or bool(block.passed)),
            "no_aging": block.no_aging,
        }
        wrong = [f"{name} {record[name]}" for name, value in wanted.items() if record[name] != value]
        if wrong:
            raise SetupError(f"block {block.offset} of job {block.job_id} on the {target.name} switch: {wrong}")
    states = {record["state"] for record in records.values()}
    if states != {BlockState.EMPTY, BlockState.OPEN, BlockState.DONE}:
        raise SetupError(f"the slots of the {target.name} switch are in states {states}")
    return records


def _send(target: Target, block: FuzzBlock, member: int) -> list[Packet]:
    return target.exchange(block.job.members[member].port, block.contribution(member))


def _age(target: Target, block: FuzzBlock) -> None:
    """Repeat a contribution until the block is old enough for the switch to close it."""
    for _ in range(_REPEATS):
        _send(target, block, block.sent[0])
        if target.records([block.slot])[block.slot]["state"] == BlockState.DONE:
            return
    raise SetupError(f"block {block.offset} of job {block.job_id} does not age")


def fetch_results(target: Target) -> list[Replay]:
    """Fetch every finished block's result as every member but the stragglers, which must stay silent."""
    return [
        Replay(block, at, tuple(_send(target, block, at)))
        for block in LIVE
        if block.state == BlockState.DONE
        for at, member in enumerate(block.job.members)
        if member not in STRAGGLERS.get(block.job_id, ())
    ]


def result_differences(target: Target, before: list[Replay]) -> list[str]:
    """Results that have changed, and wrong sums."""
    found = []
    for was, now in zip(before, fetch_results(target), strict=True):
        name = f"result of block {was.block.offset} of job {was.block.job_id} for member {was.member}"
        if now.answer != was.answer:
            found.append(f"{name}: another answer than before")
        found += [f"{name}: {text}" for _, frame in now.answer for text in _wrong_result(was.block, was.member, frame)]
        if len(now.answer) != 1:
            found.append(f"{name}: {len(now.answer)} answers")
    return found


def finish_blocks(target: Target) -> list[str]:
    """Send what the open blocks wait for, and return what is wrong with their results. Nothing can be fuzzed afterwards."""
    found = []
    for block in LIVE:
        if block.state != BlockState.OPEN:
            continue
        name = f"block {block.offset} of job {block.job_id}"
        sent: list[Packet] = []
        for member in range(len(block.job.members)):
            if member not in block.sent:
                sent = _send(target, block, member)
        for up in block.job.uplinks:
            found += [f"{name}: no partial for the parent"] * ([port for port, _ in sent] != [up.port])
            sent = target.exchange(up.port, block.from_parent())
        if len(sent) != len(block.job.members):
            found.append(f"{name}: {len(sent)} results for {len(block.job.members)} members")
        for port, frame in sent:
            to = port, parse_header(frame[PREFIX_BYTES:]).receiver_id
            ranks = [at for at, member in enumerate(block.job.members) if (member.port, member.src_id) == to]
            found += [f"{name}: {text}" for at in ranks for text in _wrong_result(block, at, frame)]
            if not ranks:
                found.append(f"{name}: a result for no member on port {port}")
    return found


def _wrong_result(block: FuzzBlock, member: int, frame: bytes) -> list[str]:
    """Find what is wrong with a frame that carries a block's result to a member."""
    header = parse_header(frame[PREFIX_BYTES:])
    result = block.result()
    for_me = block.dest in (EVERYONE, block.job.members[member].rank)
    payload = frame[PREFIX_BYTES + HEADER_BYTES :]
    if header.status in (Status.STALE, Status.REFUSED):
        return [f"refused: {Outcome(header.reason).name}" if header.reason else "stale"]
    wrong = []
    if payload != (result if for_me else b""):
        wrong.append(f"{len(payload)} bytes that are not the sum of what the members sent")
    if header.block_id != block.block_id or header.job_id != block.job_id:
        wrong.append(f"says it is of block {header.block_id} of job {header.job_id}")
    return wrong
