"""Checks that make BMv2 JSON safe to generate code from.

A program may come from the network, and its numbers are written into Python source, so every place that must hold a number
is checked to hold one. Names are harmless: they are reduced to letters, digits and underscores, or quoted.
"""

from __future__ import annotations

from typing import Any

from netsum_switch.errors import JsonError, UnsupportedError

MAX_WIDTH = 65536  # bits of a field, a parameter or a register cell
MAX_CELLS = 1 << 24  # of one register or counter array

_NUMBERS = frozenset(
    {"id", "size", "bitwidth", "action_id", "max_size", "max_length", "prefix_length", "priority", "rate_count"}
)
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
        raise UnsupportedError(
            f"{array['name']} has {size} cells of {width} bits; this switch holds {MAX_CELLS} of {MAX_WIDTH}"
        )
