"""Takes masks that change nothing out of a compiled program.

p4c follows every cast, shift and sum with a mask, also where no higher bit can be set, and BMv2 computes each of them on
numbers of any width. These were 3 % of what a contribution costs on simple_switch_grpc.
"""

from __future__ import annotations

from typing import Any

Node = dict[str, Any]
"""A value of the JSON: ``type`` and ``value``; of an expression, the value has ``op``, ``left`` and ``right``."""

_AS_PARAMETER = {"field": "field", "hexstr": "hexstr", "local": "runtime_data"}
"""What these are called where they are a primitive's parameter by themselves."""


def drop_idle_masks(program: dict[str, Any]) -> None:
    """Change the program in place."""
    types = {
        each["name"]: {name: bits for name, bits, *signed in each["fields"] if not any(signed)}
        for each in program["header_types"]
    }
    fields = {each["name"]: types[each["header_type"]] for each in program["headers"]}
    for action in program["actions"]:
        masks = _Masks(fields, [each["bitwidth"] for each in action["runtime_data"]])
        for primitive in action["primitives"]:
            masks.drop_in(primitive)
    masks = _Masks(fields, [])
    for pipeline in program["pipelines"]:
        for each in pipeline["conditionals"]:
            each["expression"] = masks.without(each["expression"])


class _Masks:
    """Where fields and an action's parameters have these widths."""

    def __init__(self, fields: dict[str, dict[str, Any]], params: list[int]) -> None:
        self._fields = fields
        self._params = params

    def drop_in(self, primitive: Node) -> None:
        """From a primitive's parameters. What is assigned to a field is cut to the field's width anyway."""
        params = primitive["parameters"]
        for index, param in enumerate(params):
            if param["type"] == "expression":
                value = self.without(param["value"])
                if primitive["op"] == "assign" and index == 1 and params[0]["type"] == "field":
                    value = self._unmasked(value, self.bits(params[0]))
                kind = _AS_PARAMETER.get(value["type"])
                params[index] = {**value, "type": kind} if kind else {"type": "expression", "value": value}

    def without(self, node: Any) -> Any:
        """The same value."""
        if node is None or node["type"] != "expression":
            return node
        if "op" not in node["value"]:
            return self.without(node["value"])
        operands = {key: self.without(node["value"][key]) for key in ("cond", "left", "right") if key in node["value"]}
        same = {"type": "expression", "value": {**node["value"], **operands}}
        return self._unmasked(same, self.bits(operands["left"])) if node["value"]["op"] == "&" else same

    @staticmethod
    def _unmasked(node: Node, bits: int | None) -> Node:
        """The value itself if that is what a mask leaves of so many bits."""
        if bits is None or node["type"] != "expression" or node["value"]["op"] != "&":
            return node
        value, mask = node["value"]["left"], node["value"]["right"]
        every_bit = (1 << bits) - 1
        return value if mask["type"] == "hexstr" and int(mask["value"], 16) & every_bit == every_bit else node

    def bits(self, node: Node) -> int | None:
        """How many bits a value has at most; None when it may be negative, or is not known."""
        kind, value = node["type"], node["value"]
        if kind == "field":
            width = self._fields[value[0]].get(value[1])
            return width if isinstance(width, int) else None
        if kind == "hexstr":
            number = int(value, 16)
            return number.bit_length() if number >= 0 else None
        if kind == "local":
            return self._params[value]
        return self._bits_of(value["op"], value["left"], value["right"]) if kind == "expression" else None

    def _bits_of(self, operator: str, left: Node | None, right: Node) -> int | None:
        if left is None:
            return None
        ours, theirs = self.bits(left), self.bits(right)
        if operator == "&":
            return min((each for each in (ours, theirs) if each is not None), default=None)
        if ours is None or theirs is None:
            return None
        if operator in ("|", "^"):
            return max(ours, theirs)
        if operator == "+":
            return max(ours, theirs) + 1
        if operator in ("<<", ">>") and right["type"] == "hexstr":
            by = int(right["value"], 16)
            return ours + by if operator == "<<" else max(ours - by, 0)
        return None
