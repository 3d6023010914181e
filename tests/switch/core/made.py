# SPDX-License-Identifier: MIT
"""Programs that tests make: a packet's operands, and what becomes of them in a result before them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from netsum_switch.pipeline import Pipeline, load_pipeline
from netsum_switch.table import Table

from tests.switch.core.switches import ethernet
from tests.switch.harness.controller import PROGRAMS

Json = dict[str, Any]
Fields = list[tuple[str, int]]
Keys = list[tuple[str, str]]

_FIRST = "arithmetic51"
_NOWHERE = {"base_default_next": None, "match_type": "exact", "type": "simple", "max_size": 100, "with_counters": False}


def field(name: str) -> Json:
    return {"type": "field", "value": ["operands", name]}


def program(operands: Fields, result: int, expression: Json | None = None, keys: Keys | None = None) -> str:
    """A program that sends a packet back with a result of ``result`` bits and its padding before the operands: an expression,
    or the parameter of action a of the entry that is found by ``keys``, operands and their kinds of match."""
    document = json.loads((PROGRAMS / "arithmetic.json").read_text())
    types = {each["name"]: each for each in document["header_types"]}
    types["operands_t"]["fields"] = [[name, width, False] for name, width in operands]
    types["results_t"]["fields"] = [["result", result, False], ["_padding", -result % 8 or 8, False]]
    target = {"type": "field", "value": ["results", "result"]}
    action = next(each for each in document["actions"] if each["name"] == _FIRST)
    standard = [{"type": "field", "value": ["standard_metadata", name]} for name in ("egress_spec", "ingress_port")]
    action["primitives"] = [
        {"op": "assign", "parameters": standard},
        {"op": "add_header", "parameters": [{"type": "header", "value": "results"}]},
    ]
    if expression is not None:
        action["primitives"].append({"op": "assign", "parameters": [target, expression]})
    ingress = document["pipelines"][0]
    ingress["conditionals"] = []
    first = next(each for each in ingress["tables"] if each["name"] == f"tbl_{_FIRST}")
    following = "lookup" if keys else None
    first |= {"next_tables": {_FIRST: following}, "base_default_next": following}
    ingress["tables"] = [first]
    if keys:
        assign = {"op": "assign", "parameters": [target, {"type": "runtime_data", "value": 0}]}
        document["actions"] += [
            {"name": "a", "id": 100, "runtime_data": [{"name": "x", "bitwidth": 8}], "primitives": [assign]},
            {"name": "b", "id": 101, "runtime_data": [], "primitives": []},
        ]
        kinds = [kind for _, kind in keys]
        ingress["tables"].append({
            **_NOWHERE, "name": "lookup", "id": 100, "action_ids": [100, 101], "actions": ["a", "b"],
            "match_type": next((kind for kind in ("range", "ternary", "lpm") if kind in kinds), "exact"),
            "key": [{"match_type": kind, "name": name, "target": ["operands", name], "mask": None} for name, kind in keys],
            "next_tables": {"a": None, "b": None}, "support_timeout": False, "direct_meters": None,
        })  # fmt: skip
    return json.dumps(document)


def packed(operands: Fields, values: dict[str, int]) -> bytes:
    bits = 0
    for name, width in operands:
        bits = bits << width | values[name]
    return bits.to_bytes(sum(width for _, width in operands) // 8, "big")


def result_of(pipeline: Pipeline, width: int, packet: bytes) -> tuple[int, bytes]:
    """The result of a packet, and what follows it."""
    [(port, out)] = pipeline.process(1, ethernet() + packet)
    assert port == 1
    padding = -width % 8 or 8
    size = (width + padding) // 8
    return int.from_bytes(out[14 : 14 + size], "big") >> padding, out[14 + size :]


class Lookup:
    """A table in a program of its own, whose keys, of 8 bits, have these kinds of match."""

    def __init__(self, *kinds: str) -> None:
        self._pipeline = _lookup(kinds)
        self.table: Table = self._pipeline.tables["lookup"]
        for entry in list(self.table.entries()):
            self.table.delete(entry.match, entry.priority)

    def find(self, *key: int) -> int:
        """The parameter of the entry that a packet finds, or 0."""
        return result_of(self._pipeline, 8, bytes(key))[0]


@cache
def _lookup(kinds: tuple[str, ...]) -> Pipeline:
    operands = [(f"k{at}", 8) for at in range(len(kinds))]
    keys = [(f"k{at}", kind) for at, kind in enumerate(kinds)]
    return load_pipeline(program(operands, 8, keys=keys))
