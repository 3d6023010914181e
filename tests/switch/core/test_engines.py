"""With random entries and random frames, both engines do the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from threading import Lock

import pytest
from netsum_switch.errors import ProgramAbortError, SwitchError, TableError
from netsum_switch.externs import MeterConfig
from netsum_switch.pipeline import Pipeline, load_pipeline
from netsum_switch.table import REFERENCES, Exact, KeyInfo, Lpm, Match, Range, Table, Ternary

from tests.switch.core.switches import Core, ethernet
from tests.switch.harness.controller import PROGRAMS

PORTS = (1, 2, 3, 4, 510)
RANDOM_BYTE = 20
"""Where the header that `calculations` adds has a random number; it comes behind Ethernet's, if there is one."""


def number(chance: random.Random, width: int) -> int:
    """One of a few values, so that frames match keys."""
    top = (1 << width) - 1
    return chance.choice([0, 1, 2, 5, 0x0800 & top, 0x9005 & top, top, chance.getrandbits(width)])


def match(chance: random.Random, key: KeyInfo) -> Match:
    value, other = number(chance, key.width), number(chance, key.width)
    if key.match_type == "lpm":
        return Lpm(value, chance.randint(0, key.width))
    if key.match_type == "ternary":
        return Ternary(value, chance.choice([0, other, (1 << key.width) - 1]))
    if key.match_type == "range":
        return Range(min(value, other), max(value, other))
    return Exact(value & 1 if key.match_type == "valid" else value)


def change(chance: random.Random, tables: tuple[Table, ...]) -> None:
    """Write the same to the same table of every engine; all accept it, or none does."""
    table = tables[0]
    kind = chance.choice(["insert", "insert", "insert", "modify", "delete", "default"])
    refers = table.profile is not None and kind != "default"
    action = chance.choice(REFERENCES if refers else table.action_infos)
    params = tuple(chance.randrange(4) if refers else number(chance, width) for _, width in action.params)
    key, priority = tuple(match(chance, each) for each in table.keys), chance.randint(1, 3)
    answers = set()
    for each in tables:
        try:
            if kind == "default":
                each.set_default(action.name, params)
            elif kind == "delete":
                each.delete(*_existing(each, priority, key))
            elif kind == "modify":
                old, rank = _existing(each, priority, key)
                each.modify(old, action.name, params, rank)
            else:
                each.insert(key, action.name, params, priority)
            answers.add("done")
        except TableError as error:
            answers.add(str(error))
    assert len(answers) == 1


def change_objects(chance: random.Random, pipelines: tuple[Pipeline, ...]) -> None:
    """Change a meter's cell, and a member and a group of a profile, in the same way in every engine."""
    config = MeterConfig(chance.choice([0, 10]), chance.randrange(300), 20, chance.randrange(500))
    for name, meter in pipelines[0].meters.items():
        index, reset = chance.randrange(meter.size), chance.random() < 0.1
        for each in pipelines:
            each.meters[name].configure(index, None if reset else config)
    for name, profile in pipelines[0].profiles.items():
        action = chance.choice(profile.actions)
        params = tuple(number(chance, width) for _, width in action.params)
        handle, group, members = chance.randrange(4), chance.randrange(4), chance.sample(range(4), chance.randrange(4))
        for each in pipelines:
            mine = each.profiles[name]
            if handle in mine.members:
                mine.modify_member(handle, action.name, params)
            else:
                mine.add_member(action.name, params)
            if group not in mine.groups:
                group = mine.add_group()
            mine.set_group(group, {member: member != group for member in members if member in mine.members})


def _existing(table: Table, priority: int, key: tuple[Match, ...]) -> tuple[tuple[Match, ...], int]:
    entry = next(table.entries(), None)
    return (key, priority) if entry is None else (entry.match, entry.priority)


def frames(chance: random.Random, count: int) -> Iterator[tuple[int, bytes]]:
    """Random bytes, many of them small numbers, which programs take for operations, lengths and labels."""
    for _ in range(count):
        size = chance.choice([0, 1, 13, 14, 15, 20, 33, 34, 60, 200, 700])
        frame = bytearray(chance.choice([chance.randrange(256), chance.randrange(13), 0]) for _ in range(size))
        if size >= 20 and chance.random() < 0.3:
            frame[14] = chance.choice([1, 2, 3, 4, 7, 0x41, 0x42, 0x43, 0x44])  # what `constructs` is to do
        elif size >= 34 and chance.random() < 0.7:
            kind = chance.choice([0x0800, 0x9000, 0x9005, 0x1111, 0x2222, 0x3333])
            frame[12:14] = kind.to_bytes(2, "big")
            frame[14] = chance.choice([0x45, 0x46, frame[14]])
            frame[23] = chance.choice([17, 18, 19, frame[23]])
        yield chance.choice(PORTS), bytes(frame)


def outcome(pipeline: Pipeline, name: str, port: int, frame: bytes) -> object:
    """What comes out, or the kind of error."""
    try:
        sent = pipeline.process(port, frame)
    except ProgramAbortError:
        return "aborted"
    except (SwitchError, ZeroDivisionError):
        return "failed"
    if name == "calculations":
        at = RANDOM_BYTE + (14 if len(frame) >= 14 else 0)
        sent = [(to, data[:at] + data[at + 1 :]) for to, data in sent]
    return sent


def state(pipeline: Pipeline) -> object:
    """Registers, counters and entries with theirs."""
    return (
        {name: list(cells) for name, cells in pipeline.registers.items()},
        {name: [array.read(at) for at in range(array.size)] for name, array in pipeline.counters.items()},
        {
            name: [(each.match, each.priority, each.action, each.params, each.packets, each.bytes) for each in table.entries()]
            for name, table in pipeline.tables.items()
        },
    )  # fmt: skip


@pytest.mark.llvmlite
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", sorted(path.stem for path in PROGRAMS.glob("*.json")))
def test_both_engines_do_the_same(name: str, seed: int) -> None:
    chance = random.Random(f"{name} {seed}")
    text = (PROGRAMS / f"{name}.json").read_bytes()
    now = [77]
    python, native = (load_pipeline(text, engine=engine, clock=lambda: now[0]) for engine in ("python", "native"))
    learnt: dict[str, list[object]] = {"python": [], "native": []}
    for pipeline in (python, native):
        pipeline.on_digest = lambda *sample, to=learnt[pipeline.engine]: to.append(sample)
        for group in range(6):
            pipeline.pre.set_group(group, [(port, 10 * group + port) for port in range(group)])
        pipeline.pre.set_clone_session(7, [(4, 1), (3, 2)])
        pipeline.pre.set_clone_session(5, [(4, 1)])
    writable = [each for each, table in python.tables.items() if table.keys and not table.const_entries]
    for port, frame in frames(chance, 300):
        now[0] += chance.choice([0, 1, 1000, 3_000_000]) if python.meters else 0
        if chance.random() < 0.2:
            change_objects(chance, (python, native))
        if writable and chance.random() < 0.3:
            table = chance.choice(writable)
            change(chance, (python.tables[table], native.tables[table]))
        one, other = (outcome(each, name, port, frame) for each in (python, native))
        assert one == other, (port, frame.hex())
    assert state(python) == state(native)
    assert learnt["python"] == learnt["native"]


@pytest.mark.llvmlite
def test_packets_see_nothing_of_a_change_before_its_end() -> None:
    """This holds for entries, groups, counters and tables that grow meanwhile; the writer reads what it has written."""
    core = Core("contract", "native")
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
