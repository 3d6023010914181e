"""The masks that `make p4` takes out of p4c's JSON change no value."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import netsum_p4
from hypothesis import given
from hypothesis import strategies as st
from masks import drop_idle_masks

WIDTHS = {"a": 1, "b": 8, "c": 32, "d": 448}
PARAMS = [16, 256]
OPERATORS: dict[str, Callable[[int, int], int]] = {
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "+": operator.add,
    "-": operator.sub,
    "<<": lambda value, by: value << (by & 63),
    ">>": lambda value, by: value >> (by & 63),
}


def expression(op: str, left: Any, right: Any) -> dict[str, Any]:
    return {"type": "expression", "value": {"op": op, "left": left, "right": right}}


def constant(number: int) -> dict[str, Any]:
    return {"type": "hexstr", "value": hex(number)}


masks = st.integers(0, 460).map(lambda bits: constant((1 << bits) - 1)) | st.integers(0, 1 << 460).map(constant)
leaves = (
    st.sampled_from(sorted(WIDTHS)).map(lambda name: {"type": "field", "value": ["h", name]})
    | st.integers(0, 1).map(lambda index: {"type": "local", "value": index})
    | masks
)
shifts = st.tuples(st.sampled_from(["<<", ">>"]), st.integers(0, 63).map(constant))
expressions = st.recursive(
    leaves,
    lambda inner: (
        st.builds(expression, st.just("&"), inner, masks)
        | st.builds(expression, st.sampled_from(["&", "|", "^", "+", "-"]), inner, inner)
        | st.builds(lambda value, shift: expression(shift[0], value, shift[1]), inner, shifts)
        | st.builds(lambda value: expression("~", None, value), inner)
    ),
    max_leaves=12,
)


def evaluate(node: dict[str, Any], fields: dict[str, int], params: list[int]) -> int:
    kind, value = node["type"], node["value"]
    if kind == "field":
        return fields[value[1]]
    if kind in ("local", "runtime_data"):
        return params[int(value)]
    if kind == "hexstr":
        return int(value, 16)
    if "op" not in value:
        return evaluate(value, fields, params)
    right = evaluate(value["right"], fields, params)
    if value["op"] == "~":
        return ~right
    left = evaluate(value["left"], fields, params)
    return OPERATORS[str(value["op"])](left, right)


def program(target: str, value: dict[str, Any]) -> dict[str, Any]:
    has_no_params = '"local"' not in json.dumps(value)  # a condition has none
    assign = {"op": "assign", "parameters": [{"type": "field", "value": ["h", target]}, value]}
    return {
        "header_types": [{"name": "h_t", "fields": [[name, bits, False] for name, bits in WIDTHS.items()]}],
        "headers": [{"name": "h", "header_type": "h_t"}],
        "actions": [{"runtime_data": [{"bitwidth": bits} for bits in PARAMS], "primitives": [assign]}],
        "pipelines": [{"conditionals": [{"expression": expression("==", value, constant(0))}] * has_no_params}],
    }


@given(st.sampled_from(sorted(WIDTHS)), expressions, st.data())
def test_values_are_the_same(target: str, value: dict[str, Any], data: st.DataObject) -> None:
    before = program(target, {"type": "expression", "value": value})
    after = deepcopy(before)
    drop_idle_masks(after)
    fields = {name: data.draw(st.integers(0, (1 << bits) - 1), name) for name, bits in WIDTHS.items()}
    params = [data.draw(st.integers(0, (1 << bits) - 1)) for bits in PARAMS]

    def stored(each: dict[str, Any]) -> int:
        source = each["actions"][0]["primitives"][0]["parameters"][1]
        return evaluate(source, fields, params) & (1 << WIDTHS[target]) - 1

    def compared(each: dict[str, Any]) -> list[int]:
        conditionals = each["pipelines"][0]["conditionals"]
        return [evaluate(one["expression"]["value"]["left"], fields, params) for one in conditionals]

    assert (stored(after), compared(after)) == (stored(before), compared(before))


def test_masks_that_change_nothing_are_gone() -> None:
    compiled = json.loads(netsum_p4.json_text())
    again = deepcopy(compiled)
    drop_idle_masks(again)
    assert again == compiled
