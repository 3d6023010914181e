# SPDX-License-Identifier: MIT
"""Tables, registers and counters, beyond the match kinds of the contract tests."""

from __future__ import annotations

from threading import Lock

import pytest
from netsum_switch.action_profile import ActionInfo
from netsum_switch.errors import BadEntryError, EntryExistsError, EntryNotFoundError, ImmutableError, TableFullError
from netsum_switch.table import Exact, KeyInfo, Lpm, Match, Range, Table, Ternary

from tests.switch.core.conftest import StartProgram
from tests.switch.core.made import Lookup
from tests.switch.core.switches import Core, ethernet, full_name, load

MISS = 0xDD
PAYLOAD = bytes(30)


def run(device: object, ether_type: int, tag: bytes = b"", src: int = 0x0303) -> tuple[str, bytes]:
    """The result header in hex (chosen, hit, run, after, held, beyond), and what follows it."""
    assert hasattr(device, "run")
    [(_, out)] = device.run(1, ethernet(ether_type, src=src) + tag + PAYLOAD)
    return out[14:26].hex(), out[26:]


@pytest.mark.parametrize(
    ("ether_type", "src", "chosen"),
    [
        (0x9000, 0x0001, 1),
        (0x9001, 0x0101, 1),  # two match: the first of the program wins
        (0x9002, 0x0101, 2),
        (0x9002, 0x0001, 3),
        (0x9003, 0x0101, 2),
        (0x9003, 0x0001, MISS),
        (0x8999, 0x0001, MISS),
    ],
)
def test_const_entries_in_the_order_of_the_program(switch: StartProgram, ether_type: int, src: int, chosen: int) -> None:
    assert run(switch("matching"), ether_type, b"\x00\x00", src)[0][:2] == f"{chosen:02x}"


def test_hit_and_miss(switch: StartProgram) -> None:
    device = switch("matching")
    device.insert("tagged", (Exact(5), Exact(1)), "choose", 0x42)
    assert run(device, 0x9005, b"\x05\x01")[0] == "42010301" + "0000000000000303"
    assert run(device, 0x9005, b"\x06\x01")[0] == "dd020301" + "0000000000000303"


def test_the_key_of_an_invalid_header_is_zero(switch: StartProgram) -> None:
    device = switch("matching")
    device.insert("tagged", (Exact(0), Exact(0)), "choose", 0x43)
    device.insert("tagged", (Exact(0), Exact(1)), "choose", 0x44)
    assert run(device, 0x0800)[0][:2] == "43"
    assert run(device, 0x9005, b"\x00\x00")[0][:2] == "44"


def test_action_run(switch: StartProgram) -> None:
    device = switch("matching")
    device.insert("run", (Exact(1),), "choose", 0x51)
    device.insert("run", (Exact(2),), "keep", 1, 1)
    device.insert("run", (Exact(3),), "leave")
    assert run(device, 0x9005, b"\x00\x01")[0][:8] == "51020101"
    assert run(device, 0x9005, b"\x00\x02")[0][:8] == "dd020201"
    assert run(device, 0x9005, b"\x00\x03")[0][:8] == "dd020000"  # exit: nothing after it
    assert run(device, 0x9005, b"\x00\x04")[0][:8] == "dd020301"


def test_if_and_exit_inside_an_action(switch: StartProgram) -> None:
    device = switch("matching")
    device.insert("tagged", (Exact(1), Exact(1)), "twice", 100)
    device.insert("tagged", (Exact(2), Exact(1)), "twice", 101)
    assert run(device, 0x9005, b"\x01\x00")[0][:8] == "64010301"
    assert run(device, 0x9005, b"\x02\x00")[0][:8] == "65009900"


def test_registers(switch: StartProgram) -> None:
    device = switch("matching")
    device.insert("run", (Exact(2),), "keep", 3, 0xFFFFFFFE)
    held = [run(device, 0x9005, b"\x00\x02")[0][8:16] for _ in range(3)]
    assert held == ["00000000", "fffffffe", "fffffffc"]


def test_registers_and_counters_as_objects() -> None:
    device = Core("matching")
    device.insert("run", (Exact(2),), "keep", 3, 5)
    device.insert("run", (Exact(3),), "stray")
    frame = ethernet(0x9005) + b"\x00\x02" + PAYLOAD
    device.run(1, frame)
    device.run(1, frame)
    assert run(device, 0x9005, b"\x00\x03")[0][16:] == "00000303"  # a read outside leaves its target as it was
    cells = device.pipeline.registers[full_name(device.pipeline.registers, "cells")]
    assert cells == [0, 0, 0, 10]
    counted = device.pipeline.counters[full_name(device.pipeline.counters, "counted")]
    assert [counted.read(index) for index in range(4)] == [(0, 0), (0, 0), (0, 0), (2, 2 * len(frame))]
    counted.write(0, 7, 9)
    assert counted.read(0) == (7, 9)
    with pytest.raises(IndexError, match="has 4 cells"):
        counted.read(4)


def table(*kinds: str, size: int = 100, match_type: str = "ternary") -> Table:
    keys = tuple(KeyInfo(f"k{at}", kind, 8) for at, kind in enumerate(kinds))
    return Table("t", match_type, keys, (ActionInfo("a", 0, (("x", 8),)), ActionInfo("b", 1, ())), size)


def test_longest_prefix_wins() -> None:
    lookup = Lookup("exact", "lpm")
    for prefix_len, value in ((0, 1), (8, 2), (4, 3)):
        lookup.table.insert((Exact(7), Lpm(0xA5, prefix_len)), "a", (value,))
    assert [lookup.find(7, key) for key in (0xA5, 0xA6, 0xB5)] == [2, 3, 1]
    assert lookup.find(8, 0xA5) == 0
    lookup.table.delete((Exact(7), Lpm(0xA5, 8)))
    assert lookup.find(7, 0xA5) == 3


def test_bits_that_a_match_does_not_look_at_do_not_make_another_entry() -> None:
    one = table("lpm", match_type="lpm")
    entry = one.insert((Lpm(0xA5, 4),), "a", (1,))
    with pytest.raises(EntryExistsError):
        one.insert((Lpm(0xA6, 4),), "a", (2,))
    assert one.find((Lpm(0xA0, 4),)) is entry
    assert entry.match == (Lpm(0xA5, 4),)  # it is read as it was written
    other = table("ternary")
    other.insert((Ternary(0xF1, 0x0F),), "a", (1,), 1)
    with pytest.raises(EntryExistsError):
        other.insert((Ternary(0xE1, 0x0F),), "a", (2,), 1)
    other.insert((Ternary(0xE1, 0x0F),), "a", (2,), 2)


def test_higher_priority_wins_and_among_equal_ones_the_older() -> None:
    lookup = Lookup("ternary", "range")
    lookup.table.insert((Ternary(0, 0), Range(0, 255)), "a", (1,), 5)
    lookup.table.insert((Ternary(0x10, 0xF0), Range(3, 4)), "a", (2,), 9)
    lookup.table.insert((Ternary(0x10, 0xF0), Range(2, 5)), "a", (3,), 9)
    assert [lookup.find(*key) for key in ((0x15, 3), (0x15, 2), (0x15, 6), (0x25, 3))] == [2, 3, 1, 1]
    lookup.table.delete((Ternary(0x10, 0xF0), Range(3, 4)), 9)
    assert lookup.find(0x15, 3) == 3


def test_an_entry_that_is_modified_keeps_its_counter_and_place() -> None:
    lookup = Lookup("ternary")
    first = lookup.table.insert((Ternary(1, 1),), "b", (), 1)
    lookup.table.insert((Ternary(1, 3),), "b", (), 1)
    first.packets = 12
    assert lookup.table.modify((Ternary(1, 1),), "a", (7,), 1) is first
    assert (first.packets, first.action) == (12, "a")
    assert lookup.find(1) == 7


@pytest.mark.parametrize(
    ("match", "action", "params", "text"),
    [
        ((Exact(1),), "c", (), "has no action c"),
        ((Exact(1),), "a", (), "takes 1 parameters, not 0"),
        ((Exact(1),), "a", (256,), "does not fit its 8 bits"),
        ((Exact(256),), "b", (), "does not fit its 8 bits"),
        ((Ternary(1, 1),), "b", (), "takes a match of type exact"),
        ((), "b", (), "has 1 key fields, the entry matches 0"),
    ],
)
def test_entries_that_do_not_fit(match: tuple[Match, ...], action: str, params: tuple[int, ...], text: str) -> None:
    one = table("exact", match_type="exact")
    with pytest.raises(BadEntryError, match=text):
        one.insert(match, action, params)
    assert list(one.entries()) == []


def test_full_twice_and_missing() -> None:
    one = table("exact", size=1, match_type="exact")
    one.insert((Exact(1),), "b", ())
    with pytest.raises(EntryExistsError):
        one.insert((Exact(1),), "a", (1,))
    with pytest.raises(TableFullError, match="room for 1 entries"):
        one.insert((Exact(2),), "b", ())
    with pytest.raises(EntryNotFoundError):
        one.delete((Exact(2),))
    one.delete((Exact(1),))
    one.insert((Exact(2),), "b", ())
    assert [entry.match for entry in one.entries()] == [(Exact(2),)]


def test_const_entries_and_const_defaults_cannot_be_written() -> None:
    pipeline = load("matching")
    ranked = pipeline.tables[full_name(pipeline.tables, "ranked")]
    entry = next(ranked.entries())
    for write in (
        lambda: ranked.insert((Ternary(9, 9), Range(0, 0)), "NoAction", (), 1),
        lambda: ranked.modify(entry.match, "NoAction", (), entry.priority),
        lambda: ranked.delete(entry.match, entry.priority),
    ):
        with pytest.raises(ImmutableError):
            write()
    dummy = next(each for name, each in pipeline.tables.items() if name.startswith("tbl_"))
    with pytest.raises(ImmutableError):
        dummy.set_default(dummy.actions[0], ())


def test_a_default_is_set_and_reset() -> None:
    device = Core("matching")
    ranked = device.pipeline.tables[full_name(device.pipeline.tables, "ranked")]
    ranked.set_default(full_name(ranked.actions, "choose"), (0x7A,))
    assert run(device, 0x8999)[0][:2] == "7a"
    ranked.reset_default()
    assert run(device, 0x8999)[0][:2] == "dd"


def test_packets_see_nothing_of_a_change_before_its_end() -> None:
    """This holds for entries, groups, counters and tables that grow meanwhile; the writer reads what it has written."""
    core = Core("contract")
    pipeline, table = core.pipeline, core.pipeline.tables["IngressImpl.exact_table"]
    core.insert("exact_table", [Exact(1)], "forward", 2)
    counters = next(iter(pipeline.counters.values()))
    old = next(table.entries())

    def run(*addresses: int) -> list[int]:
        return [port for each in addresses for port, _ in pipeline.process(1, ethernet(dst=each))]

    assert run(1) == [2]
    assert counters.read(2)[0] == 0
    with pipeline.changing(lock := Lock()):
        assert not lock.locked()  # so packets do not wait, however long it takes
        table.delete(old.match)
        for number in range(2, 9):
            core.insert("exact_table", [Exact(number)], "forward", 3)
        table.modify((Exact(5),), "IngressImpl.multicast", (1,))
        core.group(1, [(4, 0), (1, 0)])
        counters.write(2, 1000, 0)
        assert run(1, 2, 5) == [2, 0, 0]
        assert counters.read(2)[0] == 1000
        assert all(each.packets == 0 for each in table.entries())
    assert run(1, 2, 5) == [0, 3, 4, 1]
    assert [each.packets for each in table.entries() if each.packets] == [1, 1]
    assert counters.read(2)[0] == 1000
