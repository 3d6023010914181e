"""A loaded program: its generated code and the objects that the code shares with the control plane."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

from netsum_switch.codegen.expression import sat_cast, two_comp_mod, usat_cast
from netsum_switch.codegen.module import generate
from netsum_switch.counter import CounterArray
from netsum_switch.errors import JsonError, ProgramAbortError, SwitchError, TableError
from netsum_switch.hashes import HASHES
from netsum_switch.program import Json, Program
from netsum_switch.register import RegisterArray
from netsum_switch.replication import ReplicationEngine
from netsum_switch.table import ActionInfo, Exact, KeyInfo, Lpm, Match, Range, Table, Ternary

log = logging.getLogger("netsum_switch.pipeline")

# A packet that starts over more often is dropped, since one thread runs the data plane. Programs walk through registers this
# way, in up to a thousand passes.
MAX_PASSES = 1 << 16

# What reading JSON that is not shaped like p4c's raises.
_MALFORMED = (
    KeyError, IndexError, TypeError, ValueError, AttributeError, StopIteration, AssertionError, RecursionError,
    SyntaxError, NameError, TableError,
)  # fmt: skip

_HIGHEST_PRIORITY = 2**31 - 1

Sent = list[tuple[int, bytes]]


@dataclass(frozen=True)
class DigestInfo:
    """A digest of the program: its name and the widths of its fields."""

    name: str
    widths: tuple[int, ...]


@dataclass(frozen=True)
class Compiled:
    """A program and its generated Python, shared unchanged by all pipelines that run it."""

    program: Program
    source: str
    module: CodeType


@lru_cache(maxsize=4)  # several switches in a process, or a program that is pushed again, compile once
def _compiled(json_text: str | bytes, drop_port: int) -> Compiled:
    program = Program(json_text)
    source = generate(program, drop_port)
    return Compiled(program, source, compile(source, "<p4>", "exec"))


class _Environment:
    """What ``make`` of the generated module binds."""

    def __init__(self, pipeline: Pipeline, clock: Callable[[], int]) -> None:
        self.registers = {name: array.values for name, array in pipeline.registers.items()}
        self.packets = {name: array.packets for name, array in pipeline.counters.items()}
        self.bytes = {name: array.bytes for name, array in pipeline.counters.items()}
        self.lookups = {
            name: table.exact.get if table.match_type == "exact" else table.lookup
            for name, table in pipeline.tables.items()
        }
        self.defaults = {name: table.default for name, table in pipeline.tables.items()}
        self.groups = pipeline.pre.multicast
        self.clone_sessions = pipeline.pre.clones
        self.pending = pipeline.pending
        self.hashes = HASHES
        self.now = clock
        self.from_bytes = int.from_bytes
        self.randint = random.SystemRandom().randint
        self.two_comp_mod, self.usat_cast, self.sat_cast = two_comp_mod, usat_cast, sat_cast
        self._pipeline = pipeline

    @staticmethod
    def abort() -> None:
        """A failed assert or assume."""
        raise ProgramAbortError("an assertion of the program failed; the packet is dropped")

    def learn(self, list_id: int, values: tuple[int, ...]) -> None:
        """A digest of one packet."""
        if self._pipeline.on_digest is not None:
            self._pipeline.on_digest(list_id, [values])

    @staticmethod
    def log_message(text: str, *values: int) -> None:
        """The extern log_msg."""
        pieces = text.split("{}")
        given = [*map(str, values), *[""] * len(pieces)]
        log.info("%s", "".join(piece + value for piece, value in zip(pieces, given, strict=False)))


class Pipeline:
    """A program that can be run. Not thread-safe: the caller serialises packets and changes.

    Attributes:
        tables, counters, registers, actions: by the JSON's names.
        digests: by list id.
        pre: multicast groups and clone sessions.
        on_digest: called with (list id, samples) while a packet is processed.
    """

    def __init__(self, compiled: Compiled, clock: Callable[[], int]) -> None:
        self.program = program = compiled.program
        self.pre = ReplicationEngine()
        self.pending: deque[tuple[int, bytes, int, dict[str, int]]] = deque()
        self.on_digest: Callable[[int, list[tuple[int, ...]]], None] | None = None
        self.actions = self._actions()
        self.tables = {
            each["name"]: self._table(each)
            for name in ("ingress", "egress")
            for each in program.pipelines[name]["tables"]
        }
        self.counters = {
            each["name"]: CounterArray(each["name"], each["size"])
            for each in program.json.get("counter_arrays", [])
            if not each.get("is_direct")
        }
        self.registers = {
            each["name"]: RegisterArray(each["name"], each["size"], each["bitwidth"])
            for each in program.json.get("register_arrays", [])
        }
        self.digests = {
            number: DigestInfo(each["name"], tuple(self._width(element) for element in each["elements"]))
            for number, each in program.learn_lists.items()
        }
        self.code = compiled.source
        scope: dict[str, Any] = {}
        exec(compiled.module, scope)  # our generator makes it from checked JSON
        self._ingress: Callable[[Sent, int, bytes, int, dict[str, int]], None] = scope["make"](
            _Environment(self, clock)
        )

    def process(self, port: int, frame: bytes) -> Sent:
        """Run one frame through the switch; return (egress port, frame) of all that leaves, in order."""
        result: Sent = []
        try:
            self._ingress(result, port, frame, 0, {})
            if self.pending:
                self._start_over(result)
        except BaseException:
            self.pending.clear()  # nothing that has started over may be left for the next packet
            raise
        return result

    def _start_over(self, result: Sent) -> None:
        for _ in range(MAX_PASSES):
            if not self.pending:
                return
            self._ingress(result, *self.pending.popleft())
        raise SwitchError(f"a packet started over {MAX_PASSES} times; dropped")

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
        if each.get("type", "simple") != "simple":
            raise JsonError(f"table {each['name']} is of type {each['type']!r}")
        by_id = {info.id: info for infos in self.actions.values() for info in infos}
        keys = []
        for index, key in enumerate(each["key"]):
            target = key["target"]
            width = 1 if isinstance(target, str) or target[1] == "$valid$" else self.program.fields[tuple(target)].width
            keys.append(KeyInfo(key.get("name") or str(index), key["match_type"], width))
        table = Table(
            each["name"],
            each["match_type"],
            tuple(keys),
            tuple(by_id[number] for number in each["action_ids"]),
            each["max_size"],
            bool(each["with_counters"]),
        )
        if (default := each.get("default_entry")) is not None:
            data = tuple(int(value, 16) for value in default.get("action_data", []))
            table.fix_default(
                by_id[default["action_id"]].name,
                data,
                bool(default.get("action_const")),
                bool(default.get("action_entry_const")),
            )
        self._const_entries(table, each.get("entries"), by_id)
        return table

    @staticmethod
    def _const_entries(table: Table, entries: list[Json] | None, by_id: dict[int, ActionInfo]) -> None:
        if not entries:
            return
        rows = []
        for entry in entries:
            action = entry["action_entry"]
            data = tuple(int(value, 16) for value in action["action_data"])
            match = tuple(_const_match(each) for each in entry["match_key"])
            # In the JSON a low number wins, in P4Runtime a high one; simple_switch_grpc converts like this.
            rows.append((match, by_id[action["action_id"]].name, data, _HIGHEST_PRIORITY - entry["priority"]))
        table.fix_entries(rows)


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


def load_pipeline(json_text: str | bytes, *, drop_port: int = 511, clock: Callable[[], int] | None = None) -> Pipeline:
    """Load p4c's BMv2 JSON.

    Args:
        drop_port: egress_spec of a dropped packet.
        clock: microseconds; by default since now, as simple_switch counts from its start.

    Raises:
        JsonError: not BMv2 JSON of a known version.
        UnsupportedError: names what this switch does not run.
    """
    if clock is None:
        start = time.monotonic_ns()

        def clock() -> int:
            return (time.monotonic_ns() - start) // 1000

    try:
        return Pipeline(_compiled(json_text, drop_port), clock)
    except _MALFORMED as error:
        raise JsonError(f"the program is not complete BMv2 JSON: {type(error).__name__} {error}") from error
