# SPDX-License-Identifier: MIT
"""The state that all functions of a program's module share, and what is known of the program when it runs (`Image`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from netsum_switch.errors import JsonError
from netsum_switch.lowering.program import Lowered
from netsum_switch.lowering.statements import Apply, read, written
from netsum_switch.lowering.values import Expression
from netsum_switch.native.expressions import Expressions
from netsum_switch.native.layout import (
    METER_BITS,
    Context,
    Layout,
    ProfileWord,
    TableWord,
    control_statements,
    limb_count,
    storage,
)
from netsum_switch.native.llvm_builder import LlvmFunction, LlvmModule, Register
from netsum_switch.native.wide_integers import WideFunctions

Places = tuple[tuple[int, int], ...]
"""The places of an action's parameters in a row: (byte offset, bits) of each."""

Shape = tuple[int, bool]
"""A value in a record: its bits, and whether it may be negative."""

_OF_QUEUES = ("enq_qdepth", "deq_qdepth", "deq_timedelta")

FUNCTION = "ptr noalias %s, ptr noalias %c"
"""The parameters of most functions: the packet's state, the context."""


@dataclass(frozen=True, slots=True)
class Array:
    """An array of registers, counters or meters: the context's word that points to it, its cells, their bits and bytes."""

    word: int
    size: int
    bits: int
    stride: int


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A table in memory: the context's first word of it, each key field's bits, and by action where in a row its parameters
    are; the bytes of a row; its action profile."""

    word: int
    keys: tuple[int, ...]
    parameters: tuple[Places, ...]
    row: int
    profile: str | None = None

    @property
    def key_words(self) -> int:
        return sum(map(limb_count, self.keys))


@dataclass(frozen=True, slots=True)
class ProfilePlan:
    """An action profile in memory: the context's first word of it, and its rows as a table has them."""

    word: int
    parameters: tuple[Places, ...]
    row: int


@dataclass
class Image:
    """The description of a compiled program for the pipeline."""

    context_words: int = 0
    state_stride: int = 0
    scratch: int = 0
    registers: dict[str, Array] = field(default_factory=dict)
    counters: dict[str, Array] = field(default_factory=dict)
    meters: dict[str, Array] = field(default_factory=dict)
    tables: dict[str, TablePlan] = field(default_factory=dict)
    profiles: dict[str, ProfilePlan] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)  # by return value, from 1
    logs: list[tuple[str, list[Shape]]] = field(default_factory=list)
    digests: dict[int, list[Shape]] = field(default_factory=dict)
    queued: bool = False


class Module:
    """A program's module as it is written."""

    def __init__(self, lowered: Lowered, *, queued: bool = False) -> None:
        self.lowered = lowered
        self.layout = Layout(lowered)
        self.assembly = LlvmModule()
        self.wide = WideFunctions(self.assembly)
        self.image = Image(state_stride=self.layout.stride)
        self._words = int(Context.ARRAYS)
        document = lowered.program.json
        for each in document.get("register_arrays", []):
            self.image.registers[each["name"]] = self._array(each["size"], each["bitwidth"])
        for each in document.get("counter_arrays", []):
            if not each.get("is_direct"):
                self.image.counters[each["name"]] = self._array(each["size"], 128)
        for each in lowered.program.meters.values():
            beside_entries = bool(each.get("is_direct"))  # one more, for the default entry
            self.image.meters[each["name"]] = self._array(each["size"] + beside_entries, METER_BITS)
        for control in (lowered.ingress, lowered.egress):
            for table in lowered.program.pipelines[control.name]["tables"]:
                node = control.nodes[table["name"]]
                if not isinstance(node, Apply):
                    continue  # a table for p4c only
                actions = [lowered.program.actions[number]["runtime_data"] for number in table["action_ids"]]
                widths = [[each["bitwidth"] for each in data] for data in actions]
                self.image.tables[table["name"]] = self._table(node, widths)
        self._plan_profiles()
        self.image.context_words = self._words
        parts = (
            lowered.states,
            lowered.ingress,
            lowered.egress,
            lowered.calculations,
            lowered.verified,
            lowered.updated,
        )
        self.read = read([*parts, lowered.digests, lowered.field_lists])
        """The variables whose values matter."""
        self.queued = self.image.queued = queued or self._looks_at_queues()
        """True if packets go through their egress port's queue."""

    def _looks_at_queues(self) -> bool:
        """True if the program reads what a queue does to a packet, or sets a priority."""
        variables = self.lowered.variables
        found = [variables.standard(name) for name in _OF_QUEUES if variables.has("standard_metadata", name)]
        if self.read.intersection(found):
            return True
        if not variables.has("standard_metadata", "priority"):
            return False
        priority = variables.standard("priority")
        return any(priority in written(statements) for statements in control_statements(self.lowered.ingress))

    def _array(self, size: int, bits: int) -> Array:
        self._words += 1
        return Array(self._words - 1, size, bits, storage(bits) // 8)

    def _plan_profiles(self) -> None:
        """A profile's members have the same rows in all its tables."""
        for table in self.image.tables.values():
            if table.profile is None:
                continue
            known = self.image.profiles.get(table.profile)
            if known is None:
                self.image.profiles[table.profile] = ProfilePlan(self._words, table.parameters, table.row)
                self._words += int(ProfileWord.END)
            elif known.parameters != table.parameters:
                raise JsonError(f"the tables of the action profile {table.profile} have actions with other parameters")

    def _table(self, node: Apply, widths: list[list[int]]) -> TablePlan:
        parameters, longest = [], 16
        for action in widths:
            at, places = 8, []
            for bits in action:
                places.append((at, bits))
                at += 8 * limb_count(bits)
            parameters.append(tuple(places))
            longest = max(longest, at)
        self._words += int(TableWord.END)
        return TablePlan(self._words - int(TableWord.END), node.widths, tuple(parameters), longest, node.profile)

    def error(self, text: str) -> int:
        """The number of an error."""
        if text not in self.image.errors:
            self.image.errors.append(text)
        return self.image.errors.index(text) + 1

    def log(self, text: str, values: tuple[Expression, ...]) -> int:
        """The number of a text with values of these shapes."""
        self.image.logs.append((text, [(each.bits, each.signed) for each in values]))
        return len(self.image.logs) - 1


class Scope:
    """One function over a packet's state."""

    def __init__(self, module: Module, name: str, parameters: str = FUNCTION, attributes: str = "") -> None:
        self.module = module
        self.out: LlvmFunction = module.assembly.function(name, parameters, attributes=attributes)
        self.expressions = Expressions(module.assembly, module.layout, self.out, self)

    # What expressions call

    def calculate(self, out: LlvmFunction, name: str) -> Register:
        number = list(self.module.lowered.calculations).index(name)
        return out.value(f"call i64 @calculate{number}(ptr %s, ptr %c)")

    def fail(self, out: LlvmFunction, condition: Register, text: str) -> None:
        with out.when(condition):
            out.give(f"i32 {self.module.error(text)}")

    # The context and the state

    def word(self, word: int) -> Register:
        """A pointer to a word of the context."""
        return self.out.offset("%c", 8 * word)

    def number(self, word: int) -> Register:
        return self.out.load(self.word(word), 64, 8)

    def pointer(self, word: int) -> Register:
        return self.out.load_pointer(self.word(word))

    def head(self, offset: int) -> Register:
        """A number of the packet."""
        return self.out.load(self.out.offset("%s", offset), 64, 8)

    def set_head(self, offset: int, value: Register) -> None:
        self.out.store(value, self.out.offset("%s", offset), 64, 8)

    def call(self, name: str, *arguments: str) -> None:
        """Call a function that gives an error or 0, and give its error on."""
        out = self.out
        result = out.value(f"call i32 @{name}({', '.join(arguments or ('ptr %s', 'ptr %c'))})")
        with out.when(out.compare("ne", 32, result, 0)):
            out.give(f"i32 {result}")

    def record(self, word: int, kind: int, argument: Register, values: tuple[Expression, ...]) -> None:
        """A record of values; left out if there is no room."""
        out = self.out
        size = sum(8 * limb_count(each.bits) for each in values)
        at = out.value(f"call ptr @reserve(ptr %c, i64 {int(word)}, i64 {size})")
        with out.when(out.value(f"icmp ne ptr {at}, null")):
            offset = 0
            for each in values:
                self.expressions.store(each, out.offset(at, offset), limb_count(each.bits))
                offset += 8 * limb_count(each.bits)
            out.line(f"call void @commit(ptr %c, i64 {int(word)}, i64 {int(kind)}, i64 {argument}, i64 {size})")
