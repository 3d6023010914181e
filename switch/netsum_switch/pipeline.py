"""A loaded program: its tables, counters, registers and copies, and the engine that runs packets through it.

There are two engines. The native one (`netsum_switch.native`) compiles the program to machine code with llvmlite. The other
(`netsum_switch.codegen`) compiles it to Python, for where llvmlite is not installed and for what the native one does not run.
"""

from __future__ import annotations

import ctypes
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, MutableSequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from netsum_switch.action_profile import ActionInfo, ActionProfile
from netsum_switch.errors import JsonError, SwitchError, TableError, UnsupportedError
from netsum_switch.externs import CounterArray, MeterArray
from netsum_switch.ports import Port
from netsum_switch.program import Json, Program
from netsum_switch.replication import ReplicationEngine
from netsum_switch.table import Exact, KeyInfo, Lpm, Match, Range, Table, Ternary

log = logging.getLogger("netsum_switch.engine")

# A packet that starts over more often is dropped, since one thread runs the data plane. Programs walk through registers this
# way, in up to a thousand passes.
MAX_PASSES = 1 << 16

# An action that loops more often is given up, and its packet with it: BMv2 would loop for ever.
MAX_TURNS = 1 << 20
LOOPS = f"an action loops more than {MAX_TURNS} times; the packet is dropped"

# What reading JSON that is not shaped like p4c's raises.
_MALFORMED = (
    KeyError, IndexError, TypeError, ValueError, AttributeError, StopIteration, AssertionError, RecursionError,
    SyntaxError, NameError, TableError,
)  # fmt: skip

_HIGHEST_PRIORITY = 2**31 - 1

ENGINE_VARIABLE = "NETSUM_SWITCH_ENGINE"
ENGINES = ("auto", "native", "python")

Sent = list[tuple[int, bytes]]
Clock = Callable[[], int]


@dataclass(frozen=True)
class DigestInfo:
    """A digest of the program: its name and the widths of its fields."""

    name: str
    widths: tuple[int, ...]


@dataclass(frozen=True)
class Failure:
    """A frame on which the program failed: its port, its length, its first bytes, and why."""

    port: int
    size: int
    head: bytes
    reason: str


class PacketLoop:
    """An engine's own loop, which serves the ports instead of the data plane's."""

    def watch(self, wake: int, wanted: ctypes.c_uint64) -> None:
        """Come back when the descriptor `wake` is readable, and while `wanted` is not 0."""
        raise NotImplementedError

    def run(self) -> tuple[int, Sent, list[Failure]]:
        """Serve the ports until the caller has something to do, under its lock: a descriptor that only it can read (or -1),
        what it must send, and on which frames the program failed."""
        raise NotImplementedError


class Pipeline:
    """A program that can be run; `engine` names what runs it. Not thread-safe: the caller serializes packets and changes.

    Attributes:
        tables, profiles, counters, meters, registers, actions: by the JSON's names.
        registers: their cells, which packets read and write in place.
        digests: by list id.
        pre: multicast groups and clone sessions.
        on_digest: called with (list id, samples) while a packet is processed.
    """

    engine: str

    def __init__(self, program: Program) -> None:
        self.program = program
        self.pre = self._new_replication()
        self.on_digest: Callable[[int, list[tuple[int, ...]]], None] | None = None
        self.actions = self._actions()
        self.meters = {
            name: self._new_meters(name, each["size"], each["type"] == "bytes") for name, each in program.meters.items()
        }
        self._by_id = {info.id: info for infos in self.actions.values() for info in infos}
        self.profiles = {
            name: self._new_profile(name, tuple(self._by_id[at] for at in each["action_ids"]), "selector" in each)
            for name, each in program.profiles.items()
        }
        self.tables = {
            each["name"]: self._table(each)
            for name in ("ingress", "egress")
            for each in program.pipelines[name]["tables"]
        }
        self.counters = {
            each["name"]: self._new_counter(each["name"], each["size"])
            for each in program.json.get("counter_arrays", [])
            if not each.get("is_direct")
        }
        self.registers = {
            each["name"]: self._new_register(each["name"], each["size"])
            for each in program.json.get("register_arrays", [])
        }
        self.digests = {
            number: DigestInfo(each["name"], tuple(self._width(element) for element in each["elements"]))
            for number, each in program.learn_lists.items()
        }

    def process(self, port: int, frame: bytes) -> Sent:
        """Run one frame through the switch; return (egress port, frame) of all that leaves, in order."""
        raise NotImplementedError

    @contextmanager
    def changing(self, lock: AbstractContextManager[object]) -> Iterator[None]:
        """Make changes to tables, groups and sessions take effect together: packets see all or none of them. `lock` is the data
        plane's, held for as long as the engine needs."""
        with lock:
            yield

    def packet_loop(self, ports: Iterable[Port], cpu_port: int) -> PacketLoop | None:  # noqa: ARG002 - an engine's
        """The engine's own loop over the ports, if it has one."""
        return None

    @property
    def in_flight(self) -> list[object]:
        """Packets that started over and are not done. Between two calls there are none, unless the engine is broken."""
        return []

    # What an engine may keep elsewhere

    def _new_replication(self) -> ReplicationEngine:
        return ReplicationEngine()

    def _new_counter(self, name: str, size: int) -> CounterArray:
        return CounterArray(name, size)

    def _new_profile(self, name: str, actions: tuple[ActionInfo, ...], with_selection: bool) -> ActionProfile:
        return ActionProfile(name, actions, with_selection=with_selection)

    def _new_meters(self, name: str, size: int, counts_bytes: bool) -> MeterArray:
        return MeterArray(name, size, counts_bytes=counts_bytes)

    def _new_register(self, name: str, size: int) -> MutableSequence[int]:  # noqa: ARG002 - an engine's
        return [0] * size

    def _new_table(self, name: str, *args: Any) -> Table:
        return Table(name, *args)

    def _width(self, element: Json) -> int:
        return self.program.fields[tuple(element["value"])].width if element["type"] == "field" else element["bitwidth"]

    def _actions(self) -> dict[str, list[ActionInfo]]:
        actions: dict[str, list[ActionInfo]] = {}
        for each in self.program.actions.values():
            params = tuple((data["name"], data["bitwidth"]) for data in each["runtime_data"])
            info = ActionInfo(each["name"], each["id"], params)
            actions.setdefault(info.name, []).append(info)
        return actions

    def _table(self, each: Json) -> Table:
        keys = []
        for index, key in enumerate(each["key"]):
            target = key["target"]
            width = 1 if isinstance(target, str) or target[1] == "$valid$" else self.program.fields[tuple(target)].width
            keys.append(KeyInfo(key.get("name") or str(index), key["match_type"], width))
        table = self._new_table(
            each["name"],
            each["match_type"],
            tuple(keys),
            tuple(self._by_id[number] for number in each["action_ids"]),
            each["max_size"],
            bool(each["with_counters"]),
            self.profiles[each["action_profile"]] if each.get("type", "simple") != "simple" else None,
        )
        if each.get("direct_meters") is not None:
            table.meters = self.meters[each["direct_meters"]]
        if (default := each.get("default_entry")) is not None:
            const_action, const_entry = bool(default.get("action_const")), bool(default.get("action_entry_const"))
            table.fix_default(*self._call(default), const_action, const_entry)
        if entries := each.get("entries"):
            # In the JSON a low number wins, in P4Runtime a high one; simple_switch_grpc converts like this.
            table.fix_entries(
                [
                    (
                        tuple(_const_match(key) for key in entry["match_key"]),
                        *self._call(entry["action_entry"]),
                        _HIGHEST_PRIORITY - entry["priority"],
                    )
                    for entry in entries
                ]
            )
        return table

    def _call(self, entry: Json) -> tuple[str, tuple[int, ...]]:
        """An entry's action and its arguments."""
        data = tuple(int(value, 16) for value in entry.get("action_data", []))
        return self._by_id[entry["action_id"]].name, data


def _const_match(key: Json) -> Match:
    kind = key["match_type"]
    if kind == "range":
        return Range(int(key["start"], 16), int(key["end"], 16))
    if kind == "valid":
        return Exact(int(key["key"]))
    value = int(key["key"], 16)
    if kind == "lpm":
        return Lpm(value, key["prefix_length"])
    return Exact(value) if kind == "exact" else Ternary(value, int(key["mask"], 16))


def load_pipeline(
    json_text: str | bytes, *, drop_port: int = 511, clock: Clock | None = None, engine: str | None = None
) -> Pipeline:
    """Load p4c's BMv2 JSON.

    Args:
        drop_port: egress_spec of a dropped packet.
        clock: microseconds; by default since now, as simple_switch counts from its start.
        engine: "native", "python", or "auto": the native one if it is there and runs the program. By default what the
            environment variable NETSUM_SWITCH_ENGINE says, else "auto".

    Raises:
        JsonError: not BMv2 JSON of a known version.
        UnsupportedError: names what this switch does not run.
        SwitchError: there is no such engine.
    """
    wanted = engine or os.environ.get(ENGINE_VARIABLE) or "auto"
    if wanted not in ENGINES:
        raise SwitchError(f"there is no engine {wanted!r}; there are {', '.join(ENGINES)}")
    if wanted == "auto":
        return _load_auto(json_text, drop_port, clock)
    return _load(wanted, json_text, drop_port, clock)


def _load_auto(json_text: str | bytes, drop_port: int, clock: Clock | None) -> Pipeline:
    """Load the program into the fastest engine that runs it."""
    try:
        return _load("native", json_text, drop_port, clock)
    except UnsupportedError as error:
        program = _load("python", json_text, drop_port, clock)
        log.warning("the program runs as Python, several times slower than as machine code: %s", error)
        return program


def _load(engine: str, json_text: str | bytes, drop_port: int, clock: Clock | None) -> Pipeline:
    try:
        if engine == "native":
            from netsum_switch.native.engine import NativePipeline  # noqa: PLC0415 - llvmlite is an extra

            return NativePipeline(json_text, drop_port, clock)
        from netsum_switch.codegen.engine import PythonPipeline  # noqa: PLC0415 - an engine builds on this module

        return PythonPipeline(json_text, drop_port, clock)
    except (ImportError, OSError) as error:  # the latter if its library cannot be loaded
        advice = "the native engine needs llvmlite: pip install llvmlite"
        raise UnsupportedError(f"{advice} ({error})") from error
    except _MALFORMED as error:
        raise JsonError(f"the program is not complete BMv2 JSON: {type(error).__name__} {error}") from error


def monotonic_clock() -> Clock:
    """Microseconds since now."""
    start = time.monotonic_ns()
    return lambda: (time.monotonic_ns() - start) // 1000
