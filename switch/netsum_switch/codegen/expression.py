"""Expressions: BMv2 computes with unbounded integers and cuts a value when it is stored; so does Python.

An expression becomes a piece of Python and a bound: the bits it can need, or None when it may be negative or unbounded.
The bound drops the masks that p4c writes around every operation and that do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from netsum_switch.codegen.source import field_var, valid_var
from netsum_switch.errors import UnsupportedError
from netsum_switch.program import FieldInfo, Program


class Code(NamedTuple):
    """Python for a value, and the bits that it needs at most (None: unknown, or it may be negative)."""

    text: str
    bits: int | None


_COMPARISONS = frozenset({"==", "!=", "<", ">", "<=", ">="})
# A constant shift distance above this is no bound worth having.
_MAX_SHIFT = 4096


def constant(value: int) -> Code:
    return Code(hex(value) if value > 0xFF else str(value), value.bit_length() if value >= 0 else None)


def _larger(left: Code, right: Code, more: int = 0) -> int | None:
    return None if left.bits is None or right.bits is None else max(left.bits, right.bits) + more


class Expressions:
    """Compiles expressions; ``args`` are the run-time parameters of the action at hand."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._operators: dict[str, Callable[[Code, Code], Code]] = {
            "and": lambda a, b: Code(f"({a.text} and {b.text})", 1),
            "or": lambda a, b: Code(f"({a.text} or {b.text})", 1),
            "|": lambda a, b: Code(f"({a.text} | {b.text})", _larger(a, b)),
            "^": lambda a, b: Code(f"({a.text} ^ {b.text})", _larger(a, b)),
            "+": lambda a, b: Code(f"({a.text} + {b.text})", _larger(a, b, 1)),
            "-": lambda a, b: Code(f"({a.text} - {b.text})", None),
            "*": lambda a, b: Code(f"({a.text} * {b.text})", None if None in (a.bits, b.bits) else a.bits + b.bits),  # type: ignore[operator]
            "two_comp_mod": lambda a, b: Code(f"two_comp_mod({a.text}, {b.text})", None),
            "usat_cast": lambda a, b: Code(f"usat_cast({a.text}, {b.text})", None),
            "sat_cast": lambda a, b: Code(f"sat_cast({a.text}, {b.text})", None),
        }

    def field(self, header: str, name: str) -> FieldInfo:
        """The field; hidden ``$valid$`` included."""
        if name == "$valid$":
            return FieldInfo(name, 1, False)
        return self._program.fields[header, name]

    def compile(self, node: dict[str, Any], args: Sequence[Code] = ()) -> Code:
        """Python for a type value object of the JSON."""
        kind, value = node["type"], node["value"]
        if kind == "expression":
            return self.compile(value, args) if "type" in value else self._operation(value, args)
        if kind == "field":
            field = self.field(*value)
            return Code(field_var(*value), None if field.signed else field.width)
        if kind == "hexstr":
            return constant(int(value, 16))
        if kind == "bool":
            return Code(str(bool(value)), 1)
        if kind in ("local", "runtime_data"):
            argument: Code = args[value]
            return argument
        if kind == "header":
            return Code(valid_var(value), 1)
        raise UnsupportedError(f"expressions of type {kind!r}")

    def condition(self, node: dict[str, Any] | None, args: Sequence[Code] = ()) -> str:
        """Python for a condition; no condition is always true."""
        return "True" if node is None else self.compile(node, args).text

    def stored(self, field: FieldInfo, code: Code) -> str:
        """The value cut to the field's width, if it can be wider."""
        if field.signed:
            return f"two_comp_mod({code.text}, {field.width})"
        if code.bits is not None and code.bits <= field.width:
            return code.text
        return f"{code.text} & {(1 << field.width) - 1:#x}"

    def _operation(self, node: dict[str, Any], args: Sequence[Code]) -> Code:
        operator = node["op"]
        if operator == "valid":
            return self.compile(node["right"], args)
        if operator == "?":
            condition = self.compile(node["cond"], args).text
            left, right = self.compile(node["left"], args), self.compile(node["right"], args)
            return Code(f"({left.text} if {condition} else {right.text})", _larger(left, right))
        right = self.compile(node["right"], args)
        if operator == "d2b":
            return right
        if operator == "b2d":
            return Code(f"int({right.text})", 1)
        if operator == "not":
            return Code(f"(not {right.text})", 1)
        if operator == "~":
            return Code(f"(~{right.text})", None)
        if node.get("left") is None:
            if operator in ("-", "+"):
                return Code(f"({operator}{right.text})", None)
            raise UnsupportedError(f"the unary operator {operator!r}")
        left = self.compile(node["left"], args)
        if operator in _COMPARISONS:
            return Code(f"({left.text} {operator} {right.text})", 1)
        if operator == "&":
            return self._and(left, right)
        if operator in ("<<", ">>"):
            return self._shift(operator, left, right)
        if operator not in self._operators:
            raise UnsupportedError(f"the operator {operator!r}")
        return self._operators[operator](left, right)

    @staticmethod
    def _and(left: Code, right: Code) -> Code:
        for value, mask in ((left, right), (right, left)):
            number = _number(mask)
            # All ones over something that fits: does nothing.
            if number is not None and number & (number + 1) == 0:
                if value.bits is not None and value.bits <= number.bit_length():
                    return value
                inner = _without_mask(value.text, number)
                if inner is not None:
                    return Code(f"({inner} & {mask.text})", mask.bits)
        bounds = [bits for bits in (left.bits, right.bits) if bits is not None]
        return Code(f"({left.text} & {right.text})", min(bounds, default=None))

    @staticmethod
    def _shift(operator: str, left: Code, right: Code) -> Code:
        distance = _number(right)
        bits = left.bits
        if bits is not None:
            if operator == ">>":
                bits = bits if distance is None else max(0, bits - distance)
            else:
                bits = bits + distance if distance is not None and distance <= _MAX_SHIFT else None
        return Code(f"({left.text} {operator} {right.text})", bits)


def _number(code: Code) -> int | None:
    try:
        return int(code.text, 0)
    except ValueError:
        return None


def _without_mask(text: str, mask: int) -> str | None:
    """The inside of ``(... & wider mask)``: a wider mask below a narrower one does nothing."""
    if not text.endswith(")") or " & 0x" not in text:
        return None
    inner, _, number = text[1:-1].rpartition(" & ")
    try:
        wide = int(number, 16)
    except ValueError:
        return None
    balanced = inner.count("(") == inner.count(")")
    return inner if balanced and wide & (wide + 1) == 0 and wide >= mask else None


def two_comp_mod(value: int, width: int) -> int:
    """``value`` as a two's complement number of ``width`` bits."""
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def usat_cast(value: int, width: int) -> int:
    """``value`` cut at the ends of the unsigned range."""
    return min(max(value, 0), (1 << width) - 1)


def sat_cast(value: int, width: int) -> int:
    """``value`` cut at the ends of the signed range."""
    return min(max(value, -(1 << (width - 1))), (1 << (width - 1)) - 1)
