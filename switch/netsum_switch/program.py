# SPDX-License-Identifier: MIT
"""p4c's BMv2 JSON, checked and indexed: what the code generator reads. Specification: BMv2's docs/JSON_format.md."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from netsum_switch.errors import JsonError, UnsupportedError
from netsum_switch.upgrade import upgrade

# Checks that make BMv2 JSON safe to generate code from.
#
# A program may come from the network, and its numbers are written into Python source, so every place that must hold a
# number is checked to hold one. Names are harmless: they are reduced to letters, digits and underscores, or quoted.


MAX_WIDTH = 65536  # bits of a field, a parameter or a register cell
MAX_CELLS = 1 << 24  # of one register or counter array

_NUMBERS = frozenset({"id", "size", "bitwidth", "action_id", "max_size", "max_length", "prefix_length", "priority", "rate_count"})
_LISTS_OF_NUMBERS = frozenset({"action_ids", "header_ids", "header_union_ids"})
# The operands of these type value objects are numbers.
_INDICES = frozenset({"local", "runtime_data"})


def check_numbers(program: dict[str, Any]) -> None:
    """Check the numbers of a program. Raises JsonError if something else is in a number's place, UnsupportedError if a
    field or an array is larger than this switch holds."""
    _walk(program, "program")
    for each in program.get("errors") or []:
        if not (isinstance(each, list) and len(each) == 2 and _is_number(each[1])):
            raise JsonError(f"the program's error {each!r} is not a name and a number")
    for kind in program["header_types"]:
        for field in kind["fields"]:
            _check_width(kind["name"], field[0], field[1])
    for section in ("register_arrays", "counter_arrays", "meter_arrays"):
        for array in program.get(section) or []:
            _check_array(array)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _walk(node: Any, where: str) -> None:
    if isinstance(node, list):
        for each in node:
            _walk(each, where)
        return
    if not isinstance(node, dict):
        return
    where = str(node.get("name", where))
    for key, value in node.items():
        if key == "source_info":
            continue
        if key in _NUMBERS and value is not None and not _is_number(value):
            raise JsonError(f"{key} of {where} is {value!r}, not a number")
        if key in _LISTS_OF_NUMBERS and not (isinstance(value, list) and all(map(_is_number, value))):
            raise JsonError(f"{key} of {where} is {value!r}, not a list of numbers")
        _walk(value, where)
    kind, value = node.get("type"), node.get("value")
    if kind in _INDICES and not _is_number(value):
        raise JsonError(f"a {kind} of {where} is {value!r}, not a number")
    if kind == "lookahead" and not (isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))):
        raise JsonError(f"a lookahead of {where} is {value!r}, not two numbers")
    if node.get("op") == "shift" and not all(map(_is_number, node["parameters"])):
        raise JsonError(f"a shift of {where} is {node['parameters']!r}, not a number")


def _check_width(header: str, field: str, width: Any) -> None:
    if width == "*":
        return
    if not _is_number(width) or width < 1:
        raise JsonError(f"the width of {header}.{field} is {width!r}, not a number of bits")
    if width > MAX_WIDTH:
        raise UnsupportedError(f"{header}.{field} has {width} bits; this switch holds {MAX_WIDTH}")


def _check_array(array: dict[str, Any]) -> None:
    size, width = array.get("size", 0), array.get("bitwidth", 1)
    if size < 0 or width < 1:
        raise JsonError(f"{array['name']} has {size} cells of {width} bits")
    if size > MAX_CELLS or width > MAX_WIDTH:
        raise UnsupportedError(f"{array['name']} has {size} cells of {width} bits; this switch holds {MAX_CELLS} of {MAX_WIDTH}")


MAJOR_VERSION = 2
NEWEST_MINOR = 24

Json = dict[str, Any]

_REQUIRED_SECTIONS = ("header_types", "headers", "parsers", "deparsers", "actions", "pipelines")

# Sections whose names become those of variables.
_NAMED_SECTIONS = (
    "headers", "header_stacks", "header_union_stacks", "register_arrays", "counter_arrays", "meter_arrays", "calculations",
)  # fmt: skip

# The types of a field of the last header of a stack: [stack, field], or [stack of unions, member, field].
STACK_FIELDS = ("stack_field", "union_stack_field")

# Fields of standard_metadata without which simple_switch runs no program, and others that the switch keeps in any case, with
# their widths in v1model. A program need not declare what it does not use.
_REQUIRED_FIELDS = ("ingress_port", "packet_length", "instance_type", "egress_spec", "egress_port")
_KEPT_FIELDS = {"parser_error": 32, "checksum_error": 1, "mcast_grp": 16}

# Metadata for which simple_switch has headers of its own, as P4_14. A program of P4_14 has these headers; one of P4_16 has
# aliases by these names.
_OWN_HEADERS = {
    "intrinsic_metadata": ("ingress_global_timestamp", "egress_global_timestamp", "mcast_grp", "egress_rid", "priority"),
    "queueing_metadata": ("enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth"),
}


@dataclass(frozen=True)
class FieldInfo:
    """A field of a header instance. ``signed`` fields hold negative ints, as BMv2's do.

    ``width`` of a varbit field is its maximum; the number of bits is known at run time.
    """

    name: str
    width: int
    signed: bool
    varbit: bool = False


@dataclass(frozen=True)
class HeaderInfo:
    """A header instance, metadata included.

    ``length_exp``: P4_14's expression of the varbit field's bits, with the header's own fields by number, or None.
    """

    name: str
    fields: tuple[FieldInfo, ...]
    metadata: bool
    length_exp: Json | None = None

    @property
    def size(self) -> int:
        """Bytes, excluding a varbit field's. Raises UnsupportedError if the header does not end with a whole byte."""
        bits = sum(field.width for field in self.fields if not field.varbit)
        if bits % 8:
            raise UnsupportedError(f"{self.name} does not end with a whole byte")
        return bits // 8

    @property
    def varbit(self) -> str | None:
        """The name of the varbit field, if there is one."""
        return next((field.name for field in self.fields if field.varbit), None)


class Program:
    """The parsed JSON. Raises JsonError, or UnsupportedError, which names what this switch does not run."""

    def __init__(self, text: str | bytes) -> None:
        self.json = self._parse(text)
        self._refuse_externs()
        self._forget_value_sets()
        self.profiles = self._profiles()
        self.headers = self._headers()
        self.aliases = self._aliases()
        self.fields = {(header.name, field.name): field for header in self.headers.values() for field in header.fields}
        self._check_names()
        self.stacks = self._groups("header_stacks")
        self.unions = self._groups("header_unions")
        self.union_of = {name: members for members in self.unions.values() for name in members}
        self.union_stacks = self._union_stacks()
        self.actions: dict[int, Json] = {action["id"]: action for action in self.json["actions"]}
        self.pipelines: dict[str, Json] = {pipeline["name"]: pipeline for pipeline in self.json["pipelines"]}
        self.calculations: dict[str, Json] = {each["name"]: each for each in self.json["calculations"]}
        self.checksums: list[Json] = self.json["checksums"]
        self.field_lists: dict[int, Json] = {each["id"]: each for each in self.json.get("field_lists", [])}
        self.learn_lists: dict[int, Json] = {each["id"]: each for each in self.json.get("learn_lists", [])}
        self.errors: dict[str, int] = dict(self.json.get("errors", []))
        self.meters = self._meters()
        self.deparse_order: list[str] = self._one("deparsers")["order"]
        self.parser: Json = self._one("parsers")
        for name in ("ingress", "egress"):
            if name not in self.pipelines:
                raise JsonError(f"the program has no pipeline {name!r}: it was not compiled for v1model")
        for name in _REQUIRED_FIELDS:
            if ("standard_metadata", name) not in self.fields:
                raise JsonError(f"the program has no standard_metadata.{name}: it was not compiled for v1model")

    @staticmethod
    def _parse(text: str | bytes) -> Json:
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise JsonError(f"the program is not JSON: {error}") from None
        if not isinstance(parsed, dict):
            raise JsonError("the program is not a BMv2 JSON object")
        version = (parsed.get("__meta__") or {}).get("version", [MAJOR_VERSION, 0])  # the oldest compilers wrote none
        if not (isinstance(version, list) and len(version) == 2 and all(map(_is_number, version))):
            raise JsonError(f"the program's __meta__.version is {version!r}, not two numbers: it is not BMv2 JSON")
        if version[0] != MAJOR_VERSION or version[1] > NEWEST_MINOR:
            found = ".".join(map(str, version))
            raise JsonError(f"BMv2 JSON version {found}; this switch reads {MAJOR_VERSION}.0 to {MAJOR_VERSION}.{NEWEST_MINOR}")
        for section in _REQUIRED_SECTIONS:
            if not isinstance(parsed.get(section), list):
                raise JsonError(f"the program has no section {section!r}: it is not complete BMv2 JSON")
        upgrade(parsed)
        check_numbers(parsed)
        return parsed

    def _one(self, section: str) -> Json:
        """The only parser or deparser or, as in simple_switch, the one by the name that v1model's has."""
        found: list[Json] = self.json[section]
        if len(found) != 1:
            found = [each for each in found if each["name"] == section.removesuffix("s")]
        if len(found) != 1:
            raise UnsupportedError(f"{len(self.json[section])} {section}; v1model has one")
        return found[0]

    def _refuse_externs(self) -> None:
        for extern in self.json.get("extern_instances", []):
            name = extern.get("name", "?")
            raise UnsupportedError(f"the program uses extern instances ({name}); this switch does not run them")

    def _profiles(self) -> dict[str, Json]:
        """Action profiles by name. All tables of one get the same actions, in the same order, so that a name has one place in
        all of them, though p4c gives each table a copy of an action. A selector's hash becomes a calculation."""
        profiles: dict[str, Json] = {}
        for pipeline in self.json["pipelines"]:
            tables: list[Json] = [each for each in pipeline["tables"] if each.get("type", "simple") != "simple"]
            for profile in pipeline.get("action_profiles", []):
                profiles[profile["name"]] = profile
                alike = [each for each in tables if each.get("action_profile") == profile["name"]]
                own = [dict(zip(each["actions"], each["action_ids"], strict=True)) for each in alike]
                shared = {name: number for numbers in reversed(own) for name, number in numbers.items()}
                profile["action_ids"] = list(shared.values())
                for table, numbers in zip(alike, own, strict=True):
                    table["action_ids"] = [numbers.get(name, number) for name, number in shared.items()]
                    table["actions"] = list(shared)
                if selector := profile.get("selector"):
                    self.json["calculations"].append({"name": selector_of(profile["name"]), **selector})
            for table in tables:
                selects = "selector" in profiles.get(table.get("action_profile", ""), {})
                if table["type"] != ("indirect_ws" if selects else "indirect"):
                    raise JsonError(f"table {table['name']} is of type {table['type']!r}, which its profile is not")
        return profiles

    def _forget_value_sets(self) -> None:
        """Remove transitions on value sets. Nothing fills one, here as in simple_switch_grpc, so they never match."""
        for parser in self.json["parsers"]:
            for state in parser["parse_states"]:
                state["transitions"] = [each for each in state["transitions"] if each["type"] != "parse_vset"]

    def _meters(self) -> dict[str, Json]:
        """Meters by name; a table's has a cell for each entry."""
        meters: dict[str, Json] = {each["name"]: each for each in self.json.get("meter_arrays", [])}
        for meter in meters.values():
            if meter["type"] not in ("packets", "bytes"):
                raise JsonError(f"the meter {meter['name']} counts {meter['type']!r}")
            if meter["rate_count"] != 2:
                raise UnsupportedError(f"the meter {meter['name']} has {meter['rate_count']} rates; this switch has two")
        for pipeline in self.json["pipelines"]:
            for table in pipeline["tables"]:
                name = table.get("direct_meters")
                if name is not None and (not meters[name].get("is_direct") or meters[name]["size"] < table["max_size"]):
                    raise JsonError(f"the meter {name} is not one of table {table['name']}'s entries")
        return meters

    def _headers(self) -> dict[str, HeaderInfo]:
        types = {each["name"]: each for each in self.json["header_types"]}
        headers = {}
        for each in self.json["headers"]:
            fields = []
            kind = types[each["header_type"]]
            for name, width, *signed in kind["fields"]:
                if width == "*":
                    fixed = sum(size for _, size, *_ in kind["fields"] if size != "*")
                    fields.append(FieldInfo(name, max(1, kind["max_length"] * 8 - fixed), False, varbit=True))
                    continue
                fields.append(FieldInfo(name, width, bool(signed and signed[0])))
                if len(signed) > 1 and signed[1]:
                    raise UnsupportedError(f"{each['name']}.{name} is a saturating field; this switch does not run them")
            if each["name"] == "standard_metadata":
                declared = {field.name for field in fields}
                fields += [FieldInfo(name, width, False) for name, width in _KEPT_FIELDS.items() if name not in declared]
            length = kind.get("length_exp")
            headers[each["name"]] = HeaderInfo(each["name"], tuple(fields), bool(each["metadata"]), length)
        return headers

    def _aliases(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Fields by their other names, (header, field)."""
        aliases = {}
        for name, (header, field) in self.json.get("field_aliases") or []:
            before, _, after = name.rpartition(".")
            aliases[before, after] = (header, field)
        return aliases

    def standard(self, name: str) -> tuple[str, str]:
        """The place, (header, field), of a field of v1model's standard metadata."""
        for header, names in _OWN_HEADERS.items():
            if name in names:
                place = self.aliases.get((header, name), (header, name))
                if place in self.fields:
                    return place
        return "standard_metadata", name

    def _groups(self, section: str) -> dict[str, list[str]]:
        """Header names by the name of their stack or union."""
        names = {each["id"]: each["name"] for each in self.json["headers"]}
        return {each["name"]: [names[number] for number in each["header_ids"]] for each in self.json.get(section, [])}

    def _union_stacks(self) -> dict[str, dict[str, list[str]]]:
        """For each stack of unions, by member: the headers with that name, one from each union."""
        kinds = {kind["name"]: [name for name, _ in kind["headers"]] for kind in self.json.get("header_union_types", [])}
        unions = {each["id"]: each for each in self.json.get("header_unions", [])}
        stacks = {}
        for stack in self.json.get("header_union_stacks", []):
            elements = [self.unions[unions[number]["name"]] for number in stack["header_union_ids"]]
            columns = map(list, zip(*elements, strict=True))
            stacks[stack["name"]] = dict(zip(kinds[stack["union_type"]], columns, strict=True))
        return stacks

    def column(self, stack: str, member: str | None = None) -> list[str]:
        """The headers of a stack; of a stack of unions those of one member."""
        return self.stacks[stack] if member is None else self.union_stacks[stack][member]

    @property
    def columns(self) -> dict[str, list[list[str]]]:
        """For each stack, of headers or of unions, the lists within which push and pop move headers."""
        return {name: [elements] for name, elements in self.stacks.items()} | {
            name: list(members.values()) for name, members in self.union_stacks.items()
        }

    def _check_names(self) -> None:
        """Refuse names that differ in punctuation only and would become the same variable."""
        self._check_alike([f"{header}__{field}" for header, field in self.fields], "fields")
        tables = [table["name"] for pipeline in self.json["pipelines"] for table in pipeline["tables"]]
        self._check_alike(tables, "tables")
        for section in _NAMED_SECTIONS:
            self._check_alike([each["name"] for each in self.json.get(section, [])], section)

    @staticmethod
    def _check_alike(names: list[str], what: str) -> None:
        seen: dict[str, str] = {}
        for name in names:
            other = seen.setdefault(re.sub(r"\W", "_", name), name)
            if other != name:
                raise UnsupportedError(f"two {what} have names too much alike, {other} and {name}: rename one")


def jump_target(primitive: Json, end: int) -> int:
    """The target of ``_jump`` or ``_jump_if_zero`` in an action with ``end`` primitives."""
    target = int(primitive["parameters"][-1]["value"], 16)
    if target < 0:
        raise JsonError(f"an action jumps to its primitive {target}")
    return min(target, end)


def selector_of(profile: str) -> str:
    """The name of the calculation that chooses from a profile's groups."""
    return f"{profile}.$selector$"


def swapped(size: int, count: int, places: range) -> list[int]:
    """The result of push and pop by `count` on a stack of unions: where each place's union was before.

    BMv2 swaps each of `places` with the place `count` before it. Of a stack of headers it then makes the pushed or popped ones
    invalid, but not of unions: these stay valid in another place.
    """
    order = list(range(size))
    for place in places:
        order[place], order[place - count] = order[place - count], order[place]
    return order


def is_header(node: Json) -> bool:
    """True if an operand of a comparison is a whole header. Raises :class:`UnsupportedError` for stacks and unions."""
    while node["type"] == "expression" and "type" in node["value"]:
        node = node["value"]
    if node["type"] in ("header_stack", "header_union"):
        raise UnsupportedError("the program compares header stacks or unions; this switch does not run it")
    return node["type"] == "header" or (
        node["type"] == "expression" and node["value"]["op"] in ("dereference_header_stack", "access_union_header")
    )
