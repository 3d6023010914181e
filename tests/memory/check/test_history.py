# SPDX-License-Identifier: MIT
"""Findings about short histories."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from math import inf

import pytest
from netsum.wire.memory import Instruction, LaneType

from tests.full.commands import invoke
from tests.system.memory.command import memory_check
from tests.system.memory.model import Finding, HistoryEntry, MemoryRequest, Refuted
from tests.system.memory.oracle import check, check_loss, in_memory


def number(value: int) -> bytes:
    return struct.pack("<q", value)


def add(value: int) -> MemoryRequest:
    return MemoryRequest(Instruction.ADD, 0, 8, number(value), LaneType.INT64)


def write(value: int) -> MemoryRequest:
    return MemoryRequest(Instruction.WRITE, 0, 8, number(value))


READ = MemoryRequest(Instruction.READ, 0, 8)
COPY = MemoryRequest(Instruction.COPY, 8, 8, source=0)
READ_COPY = MemoryRequest(Instruction.READ, 8, 8)


def one_by_one(*request: tuple[MemoryRequest, int | None]) -> list[HistoryEntry]:
    """Instructions with what they found, none beginning before the last one had its reply."""
    return [
        HistoryEntry(0, each, at, at + 0.5, b"" if found is None else number(found)) for at, (each, found) in enumerate(request)
    ]


def finding(entries: Iterable[HistoryEntry], *, atomic: bool = True) -> tuple[Finding, MemoryRequest | None] | None:
    try:
        check(list(entries), in_memory(bytes(16), lambda _: atomic))
    except Refuted as refuted:
        return refuted.finding, None if refuted.entry is None else refuted.entry.request
    return None


def test_what_is_wrong_is_named() -> None:
    assert finding(one_by_one((add(1), None), (READ, 1), (write(7), None), (COPY, None), (READ_COPY, 7))) is None
    assert finding(one_by_one((add(1), None), (add(2), None), (READ, 1))) == (Finding.LOST, add(2))
    assert finding(one_by_one((add(1), None), (add(2), None), (READ, 5))) == (Finding.DOUBLED, add(2))
    assert finding(one_by_one((add(1), None), (READ, 99))) == (Finding.WRONG, None)


def test_what_has_no_reply_may_be_done_or_not() -> None:
    for found in (0, 1):
        assert finding([HistoryEntry(1, add(1), 0.0), *one_by_one((READ, found))]) is None
    assert finding([HistoryEntry(1, add(1), 0.0), *one_by_one((READ, 1), (READ, 0))]) is not None


@pytest.mark.parametrize(("atomic", "expected"), [(True, (Finding.LOST, write(2))), (False, None)])
def test_a_copy_between_devices_may_be_overtaken(atomic: bool, expected: tuple[Finding, MemoryRequest] | None) -> None:
    """It has read 1 before a client wrote 2 there and 3 to where it writes: at once, it could not have."""
    copy = HistoryEntry(1, COPY, 1.0, 10.0, b"")
    others = [
        HistoryEntry(0, write(1), 0.0, 0.5, b""),
        HistoryEntry(0, write(2), 2.0, 2.5, b""),
        HistoryEntry(0, MemoryRequest(Instruction.WRITE, 8, 8, number(3)), 3.0, 3.5, b""),
        HistoryEntry(0, READ_COPY, 4.0, 4.5, number(3)),
        HistoryEntry(0, READ_COPY, 11.0, 11.5, number(1)),
    ]
    assert finding([copy, *others], atomic=atomic) == expected


SUM = MemoryRequest(Instruction.SUM_FORWARD, 0, 8, number(5), LaneType.INT64, path=(8,))


def test_a_chain_adds_what_it_passes_to_where_it_ends() -> None:
    before = one_by_one((add(1), None), (SUM, None), (READ, 1), (READ_COPY, 6), (SUM, None), (READ_COPY, 12))
    assert finding(before) is None
    assert finding(one_by_one((add(1), None), (SUM, None), (READ_COPY, 5))) == (Finding.LOST, add(1))
    assert finding(one_by_one((SUM, None), (READ_COPY, 10))) == (Finding.DOUBLED, SUM)


def test_a_chain_may_be_overtaken_on_its_way() -> None:
    chain = HistoryEntry(1, SUM, 0.0, 10.0, b"")
    others = [HistoryEntry(0, add(1), 1.0, 1.5, b""), HistoryEntry(0, READ_COPY, 2.0, 2.5, number(0))]
    for found in (5, 6):
        assert finding([chain, *others, HistoryEntry(0, READ_COPY, 11.0, 11.5, number(found))]) is None


def test_memory_that_is_gone_must_say_so_and_not_before() -> None:
    early, late = HistoryEntry(0, add(1), 0.0, 4.0, lost=True), HistoryEntry(0, READ, 5.0, 5.5, lost=True)
    [kept] = check_loss([early, late], 3.0)
    assert (kept.request, kept.answered) == (add(1), inf)  # it may have been done before
    for wrong in (HistoryEntry(0, READ, 5.0, 5.5, number(0)), HistoryEntry(0, READ, 1.0, 2.0, lost=True)):
        with pytest.raises(Refuted):
            check_loss([early, late, wrong], 3.0)


def test_the_last_line_is_the_totals() -> None:
    _, told = invoke(memory_check, "--rootless --stage in-process --only 11 --instructions 4")
    assert list(told)[:4] == ["operations", "wrong", "lost", "doubled"]
    assert told["operations"] >= 8 * 4
    assert told["instructions"]["read"] > 0
