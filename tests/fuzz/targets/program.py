# SPDX-License-Identifier: MIT
"""Programs that p4c did not write: BMv2 JSON with anything changed is refused by name, or becomes code
of which nothing is the program's own text."""

from __future__ import annotations

import json
from typing import Any

from netsum_switch.errors import SwitchError
from netsum_switch.pipeline import dump

from tests.fuzz.targets.api import FuzzTarget
from tests.switch.harness.controller import PROGRAMS

_MARK = "netsum_was_here"
_CODE = f"import sys; sys.modules['{_MARK}'] = sys"
_VALUES: tuple[Any, ...] = (
    None, True, 0, 1, -1, 2, 7, 2049, 1 << 33, 1.5, "", "x", "0x1", "0x", "-0x1", "$valid$", "standard_metadata", [], {},
    ["x", "y"], [[]], {"type": "field"}, "a b", "a.b", "é", f"x'; {_CODE} #", f'x"; {_CODE} #', f"x\n{_CODE}\n",
    f"__import__('sys').modules.__setitem__('{_MARK}', 1)",
)  # fmt: skip
_OPERATION = 4


def target() -> FuzzTarget:
    """An input is a byte for the program, and four bytes for each change: which value of the JSON, what is done, with what."""
    programs = [(PROGRAMS / f"{name}.json").read_bytes() for name in ("reports", "matching", "stacks", "constructs")]

    def take(data: bytes) -> None:
        program = json.loads(programs[data[0] % len(programs)] if data else programs[0])
        for at in range(1, len(data) - _OPERATION + 1, _OPERATION):
            _change(program, data[at : at + _OPERATION])
        try:
            words = dump(json.dumps(program))
        except SwitchError as error:
            words = str(error).replace(_MARK, "?")
        assert words, "refused without a word"
        assert _MARK not in words, "a text of the program became code"

    seeds = [bytes((program,)) for program in range(len(programs))]
    seeds += [bytes((0, place, at, 0, value)) for place in range(4) for at in range(0, 256, 37) for value in range(25, 29)]
    return FuzzTarget(take, seeds, 1 + 6 * _OPERATION)


def _change(program: Any, operation: bytes) -> None:
    """Replace, remove, repeat or move one value, names' keys included."""
    places = list(_places(program))
    holder, key = places[int.from_bytes(operation[:2], "big") % len(places)]
    value = _VALUES[operation[3] % len(_VALUES)]
    kind = operation[2] % 5
    if kind == 0:
        holder[key] = value
    elif kind == 1:
        del holder[key]
    elif kind == 2 and isinstance(holder, list):
        holder.append(holder[key])
    elif kind == 3 and isinstance(holder, dict) and isinstance(value, str):
        holder[value] = holder.pop(key)
    else:
        other, at = places[int.from_bytes(operation[1:3], "big") % len(places)]
        if not isinstance(other[at], dict | list):  # a tree stays a tree
            holder[key] = other[at]


def _places(value: Any) -> Any:
    """(holder, key) of every value."""
    for key, each in list(value.items() if isinstance(value, dict) else enumerate(value)):
        if key != "source_info":
            yield value, key
            if isinstance(each, dict | list):
                yield from _places(each)
