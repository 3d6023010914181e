# SPDX-License-Identifier: MIT
"""Today's JSON in the forms of older compilers, as BMv2's loader still takes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]

_MOVED = {
    "intrinsic_metadata": ("ingress_global_timestamp", "egress_global_timestamp", "mcast_grp", "egress_rid", "priority"),
    "queueing_metadata": ("enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth"),
}


def rewritten(text: str | bytes, *forms: Callable[[Json], None]) -> bytes:
    """A program's JSON in other forms."""
    document = json.loads(text)
    for form in forms:
        form(document)
    return json.dumps(document).encode()


def p4c_2_18(document: Json) -> None:
    """2018 to 2020: transitions without a type, "default" as a value."""
    document["__meta__"]["version"] = [2, 18]
    for state in _states(document):
        for transition in state["transitions"]:
            if transition["type"] == "default":
                transition["value"] = "default"
            if transition["type"] != "parse_vset":
                del transition["type"]


def p4c_2_7(document: Json) -> None:
    """2017: fewer attributes, also, and none that is null."""
    p4c_2_18(document)
    document["__meta__"]["version"] = [2, 7]
    for node in _objects(document):
        node.pop("source_info", None)
    for state in _states(document):
        for transition in state["transitions"]:
            _drop(transition, "mask", "next_state")
    for section in ("header_unions", "header_union_types", "header_union_stacks"):
        if not document[section]:
            del document[section]
    for kind in document["header_types"]:
        kind["fields"] = [field if field[2:] == [True] else field[:2] for field in kind["fields"]]
    for table in _tables(document):
        _drop(table, "direct_meters", "base_default_next")
        if not table["with_counters"]:
            del table["with_counters"]
        if not table["support_timeout"]:
            del table["support_timeout"]
        for key in table["key"]:
            _drop(key, "mask")
        if "entries" in table:
            del table["max_size"]


def p4c_bm(document: Json) -> None:
    """2015: the compiler of P4_14 alone. No version, actions by name, a profile for each table, primitives of P4_14."""
    p4c_2_7(document)
    del document["__meta__"]
    names = [action["name"] for action in document["actions"]]
    document.pop("errors")
    for section in ("calculations", "checksums"):
        if not document[section]:
            del document[section]
    for table in _tables(document):
        if all(names.count(name) == 1 for name in table["actions"]):
            del table["action_ids"]
        else:
            del table["actions"]
    for pipeline in document["pipelines"]:
        _profiles_of_tables(pipeline)
    p4_14_primitives(document)
    own_headers(document)


def _profiles_of_tables(pipeline: Json) -> None:
    """The old form of a profile that one table has."""
    for profile in list(pipeline["action_profiles"]):
        owners = [table for table in pipeline["tables"] if table.get("action_profile") == profile["name"]]
        if len(owners) == 1:
            owners[0]["act_prof_name"] = owners[0].pop("action_profile")
            if "selector" in profile:
                owners[0]["selector"] = profile["selector"]
            pipeline["action_profiles"].remove(profile)


_BINARY = {"+": "add", "-": "subtract", "&": "bit_and", "|": "bit_or", "^": "bit_xor", "<<": "shift_left", ">>": "shift_right"}


def p4_14_primitives(document: Json) -> None:
    """Assignments as P4_14 has them, with a primitive for each operator."""
    for action in document["actions"]:
        for primitive in action["primitives"]:
            if primitive["op"] == "assign":
                _assignment(primitive)
            elif primitive["op"] == "assign_header":
                primitive["op"] = "copy_header"
            elif primitive["op"] == "mark_to_drop":
                primitive |= {"op": "drop", "parameters": []}


def _assignment(primitive: Json) -> None:
    target, value = primitive["parameters"]
    primitive["op"] = "modify_field"
    while value["type"] == "expression" and "type" in value["value"]:
        value = value["value"]
    operation = value["value"] if value["type"] == "expression" else {}
    if operation.get("op") == "&" and operation["right"]["type"] == "hexstr":  # the cut to the field's width, which is implied
        inner = operation["left"]
        while inner["type"] == "expression" and "type" in inner["value"]:
            inner = inner["value"]
        if inner["type"] == "expression" and inner["value"]["op"] in _BINARY and target["type"] == "field":
            operation = inner["value"]
    left, right = operation.get("left"), operation.get("right")
    if operation.get("op") not in _BINARY or not all(_is_plain(each) for each in (left, right)):
        return
    if left == target and operation["op"] in "+-":
        primitive |= {"op": {"+": "add_to_field", "-": "subtract_from_field"}[operation["op"]], "parameters": [target, right]}
    else:
        primitive |= {"op": _BINARY[operation["op"]], "parameters": [target, left, right]}


def _is_plain(operand: Any) -> bool:
    return isinstance(operand, dict) and operand["type"] in ("field", "hexstr")


def own_headers(document: Json) -> None:
    """P4_14's metadata of the switch: headers of their own instead of fields of standard_metadata."""
    document["field_aliases"] = []
    standard = next(each for each in document["header_types"] if each["name"] == "standard_metadata")
    widths = {name: width for name, width, *_ in standard["fields"]}
    moved = {name: header for header, names in _MOVED.items() for name in names}
    standard["fields"] = padded([field for field in standard["fields"] if field[0] not in moved])
    for header, names in _MOVED.items():
        fields = padded([[name, widths[name]] for name in names])
        number = 1 + max(each["id"] for each in document["header_types"])
        document["header_types"].append({"name": f"{header}_t", "id": number, "fields": fields})
        number = 1 + max(each["id"] for each in document["headers"])
        document["headers"].append({"name": header, "id": number, "header_type": f"{header}_t", "metadata": True})
    for place in _lists(document):
        if len(place) == 2 and place[0] == "standard_metadata" and place[1] in moved:
            place[0] = moved[place[1]]


def padded(fields: list[list[Any]]) -> list[list[Any]]:
    """Fields that end with a whole byte."""
    fields = [field for field in fields if field[0] != "_padding"]
    padding = -sum(field[1] for field in fields) % 8
    return [*fields, ["_padding", padding]] if padding else fields


def _states(document: Json) -> list[Json]:
    return [state for parser in document["parsers"] for state in parser["parse_states"]]


def _tables(document: Json) -> list[Json]:
    return [table for pipeline in document["pipelines"] for table in pipeline["tables"]]


def _drop(node: Json, *keys: str) -> None:
    """Remove what is null."""
    for key in keys:
        if key in node and node[key] is None:
            del node[key]


def _objects(node: Any) -> Iterator[Json]:
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    if isinstance(node, dict):
        yield node
    for child in list(children):
        yield from _objects(child)


def _lists(node: Any) -> Iterator[list[Any]]:
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    if isinstance(node, list):
        yield node
    for child in children:
        yield from _lists(child)
