# SPDX-License-Identifier: MIT
"""LPM, ternary, range and optional keys: what they match, what they refuse, how they are read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from google.rpc import code_pb2
from netsum_p4runtime import p4runtime_pb2 as p4rt

from tests.switch.harness.api import SwitchUnderTest
from tests.switch.harness.controller import DELETE, INSERT, MODIFY, Controller, Program
from tests.switch.harness.frames import ether_type_of, frame

LPM, Ternary, Range, Optional = (
    p4rt.FieldMatch.LPM, p4rt.FieldMatch.Ternary, p4rt.FieldMatch.Range, p4rt.FieldMatch.Optional,
)  # fmt: skip
INVALID = code_pb2.INVALID_ARGUMENT
UNTOUCHED = 0x9000


@pytest.fixture
def forwarding(controller: Controller, program: Program) -> Controller:
    """Everything goes to port 2, so that what another table marked is seen there."""
    controller.write(MODIFY, program.entry("exact_table", {}, program.action("forward", b"\x02"), is_default_action=True))
    return controller


def mark_of(switch: SwitchUnderTest, dst: int, ether_type: int = UNTOUCHED, port: int = 1) -> int:
    """The type that a frame leaves with."""
    switch.send(port, frame(dst, ether_type))
    return ether_type_of(switch.recv(2))


def same(found: Sequence[Any], written: Sequence[Any]) -> bool:
    """True if these entries were read, in any order."""
    return sorted(map(str, found)) == sorted(map(str, written))


def test_longest_prefix_wins(forwarding: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    def entry(value: int, length: int, mark: int) -> Any:
        return program.marking("lpm_table", {1: LPM(value=value.to_bytes(6, "big"), prefix_len=length)}, mark)

    everything = program.marking("lpm_table", {}, 9)
    forwarding.write(INSERT, entry(0x0A0000000000, 8, 1), entry(0x0A0B00000000, 16, 2), entry(0x0A0B0C0D0E0F, 48, 3))
    assert mark_of(p4rt_switch, 0x0A0B0C0D0E0F) == 3
    assert mark_of(p4rt_switch, 0x0A0B0C0D0E0E) == 2
    assert mark_of(p4rt_switch, 0x0AFF00000000) == 1
    assert mark_of(p4rt_switch, 0x0B0000000000) == UNTOUCHED
    forwarding.write(INSERT, everything)
    assert mark_of(p4rt_switch, 0x0B0000000000) == 9
    forwarding.write(DELETE, entry(0x0A0B00000000, 16, 2))
    assert mark_of(p4rt_switch, 0x0A0B0C0D0E0E) == 1
    assert everything in forwarding.read(program.entry("lpm_table", {}))


def test_ternary(forwarding: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    odd = program.marking("ternary_table", {1: Ternary(value=b"\x01", mask=b"\x01")}, 1, priority=5)
    match = {1: Ternary(value=b"\x01", mask=b"\x03"), 2: Ternary(value=b"\x90\x00", mask=b"\xf0\x00")}
    both = program.marking("ternary_table", match, 2, priority=10)
    everything = program.marking("ternary_table", {}, 3, priority=1)
    forwarding.write(INSERT, odd, both, everything)
    assert mark_of(p4rt_switch, 5) == 2
    assert mark_of(p4rt_switch, 7) == 1
    assert mark_of(p4rt_switch, 5, 0x8000) == 1
    assert mark_of(p4rt_switch, 4) == 3
    assert same(forwarding.read(program.entry("ternary_table", {})), (odd, both, everything))


def test_range(forwarding: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    match = {1: Range(low=b"\x10\x00", high=b"\x1f\xff"), 2: Range(low=b"\x01", high=b"\x03")}
    entry = program.marking("range_table", match, 7, priority=1)
    forwarding.write(INSERT, entry)
    assert mark_of(p4rt_switch, 1, 0x1000) == 7
    assert mark_of(p4rt_switch, 1, 0x1FFF, port=3) == 7
    assert mark_of(p4rt_switch, 1, 0x2000) == 0x2000
    assert mark_of(p4rt_switch, 1, 0x1000, port=4) == 0x1000
    assert forwarding.read(program.entry("range_table", {})) == [entry]


def test_optional(forwarding: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    five, type_ = Optional(value=b"\x05"), Optional(value=b"\x90\x00")
    both = program.marking("optional_table", {1: five, 2: type_}, 1, priority=2)
    one = program.marking("optional_table", {1: five}, 2, priority=1)
    forwarding.write(INSERT, both, one)
    assert mark_of(p4rt_switch, 5) == 1
    assert mark_of(p4rt_switch, 5, 0x8888) == 2
    assert mark_of(p4rt_switch, 6) == UNTOUCHED
    assert same(forwarding.read(program.entry("optional_table", {})), (both, one))


def test_mixed(forwarding: Controller, program: Program, p4rt_switch: SwitchUnderTest) -> None:
    """LPM in a ternary table: the priority decides, not the length."""
    short, long = LPM(value=b"\x0a" + bytes(5), prefix_len=8), LPM(value=b"\x0a\x0b" + bytes(4), prefix_len=16)
    wide = program.marking("mixed_table", {1: b"\x01", 2: short}, 1, priority=2)
    exact_type = Ternary(value=b"\x90\x00", mask=b"\xff\xff")
    narrow = program.marking("mixed_table", {1: b"\x01", 2: long, 3: exact_type}, 2, priority=1)
    forwarding.write(INSERT, narrow)
    assert mark_of(p4rt_switch, 0x0A0B00000000) == 2
    forwarding.write(INSERT, wide)
    assert mark_of(p4rt_switch, 0x0A0B00000000) == 1
    assert mark_of(p4rt_switch, 0x0A0B00000000, port=3) == UNTOUCHED
    assert same(forwarding.read(program.entry("mixed_table", {})), (wide, narrow))


@pytest.mark.parametrize("value", [b"\x01", b"\x00\x01", b"\x00" * 5 + b"\x01", b"\x00" * 9 + b"\x01"])
def test_bytestrings_of_any_length_come_back_canonical(controller: Controller, program: Program, value: bytes) -> None:
    controller.write(INSERT, program.entry("exact_table", {1: value}, program.action("forward", b"\x00\x02")))
    canonical = program.forwarding()
    assert controller.read(program.entry("exact_table", {})) == [canonical]
    assert controller.read(program.entry("exact_table", {1: b"\x00\x01"})) == [canonical]


DONT_CARE_RANGE = (
    "Invalid representation of 'don't care' range match, omit match field instead of using low=0 and high=2**bitwidth-1"
)
REFUSED: list[tuple[str, str, dict[int, Any], int, str]] = [
    ("/0", "lpm_table", {1: LPM(value=b"\x00", prefix_len=0)}, 0,
     "Invalid reprsentation of 'don't care' LPM match, omit match field instead of using a prefix length of 0"),
    ("/-1", "lpm_table", {1: LPM(value=b"\x00", prefix_len=-1)}, 0, "Prefix length cannot be < 0"),
    ("/49", "lpm_table", {1: LPM(value=b"\x00", prefix_len=49)}, 0, "Prefix length cannot be > bitwidth"),
    ("low bits", "lpm_table", {1: LPM(value=b"\x01", prefix_len=47)}, 0,
     "Invalid LPM value, incorrect number of trailing zeros"),
    ("lpm priority", "lpm_table", {1: LPM(value=b"\x02", prefix_len=47)}, 1, "Non-zero priority for non-ternary match"),
    ("mask 0", "ternary_table", {1: Ternary(value=b"\x00", mask=b"\x00")}, 1,
     "Invalid representation of 'don't care' ternary match, omit match field instead of using 0 mask"),
    ("outside mask", "ternary_table", {1: Ternary(value=b"\x03", mask=b"\x01")}, 1,
     "Invalid ternary value, make sure value & mask == value"),
    ("no priority", "ternary_table", {1: Ternary(value=b"\x01", mask=b"\x01")}, 0, "Zero priority for ternary match"),
    ("unknown field", "ternary_table", {7: Ternary(value=b"\x01", mask=b"\x01")}, 1, "Unknown field in match key"),
    ("wide mask", "ternary_table", {2: Ternary(value=b"\x01", mask=b"\x01\xff\xff")}, 1,
     "Bytestring provided does not fit within 16 bits"),
    ("whole range", "range_table", {1: Range(low=b"\x00\x00", high=b"\xff\xff")}, 1, DONT_CARE_RANGE),
    ("low > high", "range_table", {1: Range(low=b"\x02", high=b"\x01")}, 1,
     "Invalid range value, make sure low <= high"),
    ("range priority", "range_table", {1: Range(low=b"\x01", high=b"\x02")}, 0, "Zero priority for ternary match"),
    ("optional priority", "optional_table", {1: Optional(value=b"\x01")}, 0, "Zero priority for ternary match"),
    ("exact missing", "mixed_table", {}, 1, "Missing non-ternary field in match key"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "match", "priority", "message"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
def test_refused_keys(
    controller: Controller, program: Program, table: str, match: dict[int, Any], priority: int, message: str
) -> None:
    entity = program.marking(table, match, 1, priority=priority)
    assert controller.refused(INSERT, entity) == (INVALID, message)
    assert controller.read(program.entry(table, {})) == []


def test_field_given_twice(controller: Controller, program: Program) -> None:
    entity = program.marking("ternary_table", {}, 1, priority=1)
    for _ in range(2):
        entity.table_entry.match.add(field_id=1).ternary.CopyFrom(Ternary(value=b"\x01", mask=b"\x01"))
    assert controller.refused(INSERT, entity) == (INVALID, "Unknown field in match key")
