# SPDX-License-Identifier: MIT
"""The JSON of older compilers in the form of today's p4c: BMv2 JSON of versions 2.0 to 2.18, and what has no version.

BMv2's loader takes all of these forms. Source: src/bm_sim/P4Objects.cpp there, whose defaults are the defaults here.
"""

from __future__ import annotations

from typing import Any

from netsum_switch.errors import JsonError

Json = dict[str, Any]

_OPTIONAL_SECTIONS = ("calculations", "checksums")


def upgrade(document: Json) -> None:
    """Change a program to today's form, in place. What is there already stays as it is, also if it is wrong: `Program` checks
    it."""
    for section in _OPTIONAL_SECTIONS:
        if document.get(section) is None:
            document[section] = []
    for header in document["headers"]:
        header.setdefault("metadata", False)
    for parser in document["parsers"]:
        for state in parser["parse_states"]:
            _parse_state(state)
    for action in document["actions"]:
        for key in ("runtime_data", "primitives"):
            action.setdefault(key, [])
    for pipeline in document["pipelines"]:
        _pipeline(document, pipeline)
    for checksum in document["checksums"]:
        if checksum.get("type") == "ipv4":
            _ipv4(document, checksum)


def _parse_state(state: Json) -> None:
    """Until version 2.18 a transition had no type, and the default was a value. The default is what nothing else matches,
    wherever it stands, and the last of several holds."""
    for key in ("parser_ops", "transition_key", "transitions"):
        state.setdefault(key, [])
    for operation in state["parser_ops"]:
        if operation["op"] == "verify" and isinstance(operation["parameters"][1], int):  # the number of the error
            operation["parameters"][1] = {"type": "hexstr", "value": hex(operation["parameters"][1])}
    for transition in state["transitions"]:
        kind = transition.setdefault("type", "hexstr")
        if kind == "hexstr" and transition["value"] == "default":
            transition["type"] = "default"
        for key in ("mask", "next_state"):
            transition.setdefault(key, None)
    cases = [each for each in state["transitions"] if each["type"] != "default"]
    defaults = [each for each in state["transitions"] if each["type"] == "default"]
    state["transitions"] = cases + defaults[-1:]


def _pipeline(document: Json, pipeline: Json) -> None:
    for key in ("tables", "conditionals", "action_profiles"):
        if pipeline.get(key) is None:
            pipeline[key] = []
    for conditional in pipeline["conditionals"]:
        for key in ("true_next", "false_next"):
            conditional.setdefault(key, None)
    for table in pipeline["tables"]:
        _table(document["actions"], pipeline, table)


def _table(actions: list[Json], pipeline: Json, table: Json) -> None:
    for key, value in (("with_counters", False), ("support_timeout", False), ("direct_meters", None)):
        table.setdefault(key, value)
    if "max_size" not in table and "entries" in table:
        table["max_size"] = len(table["entries"])
    for key in table["key"]:
        key.setdefault("mask", None)
        target = key["target"]
        key.setdefault("name", target if isinstance(target, str) else ".".join(map(str, target)))
    if "action_ids" not in table:
        table["action_ids"] = [_id_of(actions, table["name"], name) for name in table["actions"]]
    elif "actions" not in table:
        names = {each["id"]: each["name"] for each in actions}
        table["actions"] = [names[number] for number in table["action_ids"]]
    if "action_profile" not in table and "act_prof_name" in table:  # each table had a profile of its own
        profile = table["action_profile"] = table["act_prof_name"]
        selector = {"selector": table["selector"]} if table.get("type") == "indirect_ws" else {}
        pipeline["action_profiles"].append({"name": profile, "id": table["id"], "max_size": table["max_size"], **selector})


def _id_of(actions: list[Json], table: str, name: str) -> int:
    """The id of the action with a name, of which there must be one: tables referred to actions by name until 2.5."""
    found = [each["id"] for each in actions if each["name"] == name]
    if len(found) != 1:
        raise JsonError(f"table {table} names the action {name!r}, of which the program has {len(found)}")
    number: int = found[0]
    return number


def _ipv4(document: Json, checksum: Json) -> None:
    """A checksum of type "ipv4" is the sum of a valid header's bytes, its own taken as 0."""
    header, target = checksum["target"]
    kind = next(each["header_type"] for each in document["headers"] if each["name"] == header)
    fields = next(each["fields"] for each in document["header_types"] if each["name"] == kind)
    calculation = {"name": f"{checksum['name']}.$ipv4$", "id": -1 - len(document["calculations"]), "algo": "csum16"}
    calculation["input"] = [
        {"type": "hexstr", "value": "0x0", "bitwidth": width} if name == target else {"type": "field", "value": [header, name]}
        for name, width, *_ in fields
    ]
    document["calculations"].append(calculation)
    valid = {"op": "valid", "left": None, "right": {"type": "header", "value": header}}
    condition = {"type": "expression", "value": valid}
    if (given := checksum.get("if_cond")) is not None:
        condition = {"type": "expression", "value": {"op": "and", "left": condition, "right": given}}
    checksum |= {"calculation": calculation["name"], "type": "generic", "if_cond": condition}
