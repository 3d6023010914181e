"""Expressions: BMv2 computes with unbounded integers and truncates a value when it is stored; so does Python.

An expression becomes a piece of Python and a bound: the bits it can need, or None when it may be negative or unbounded.
With the bound, masks without effect, which p4c writes around every operation, are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from netsum_switch.codegen.source import bits_var, field_var, next_var, valid_var
from netsum_switch.errors import UnsupportedError
from netsum_switch.program import STACK_FIELDS, FieldInfo, Json, Program, is_header


class Code(NamedTuple):
    """Python for a value, and the bits that it needs at most (None: unknown, or it may be negative)."""

    text: str
    bits: int | None


class Case(NamedTuple):
    """One of the headers that an operand can stand for, and the Python condition for it ("" if it always does)."""

    condition: str
    header: str


_COMPARISONS = frozenset({"==", "!=", "<", ">", "<=", ">="})
# A constant shift by more than this gives no useful bound.
_MAX_SHIFT = 4096
# No field is this wide: shifting further would change no bit and only take memory.
_LONGEST_SHIFT = 65536
_DISTANCE_BITS = 13


def constant(value: int) -> Code:
    return Code(hex(value) if value > 0xFF else str(value), value.bit_length() if value >= 0 else None)


def _larger(left: Code, right: Code, more: int = 0) -> int | None:
    return None if left.bits is None or right.bits is None else max(left.bits, right.bits) + more


class Expressions:
    """Compiles expressions; ``args`` are the run-time parameters of the current action."""

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
            # Operands are not negative: BMv2 asserts it.
            "/": lambda a, b: Code(f"({a.text} // {b.text})", a.bits),
            "%": lambda a, b: Code(f"({a.text} % {b.text})", b.bits),
            "two_comp_mod": lambda a, b: Code(f"two_comp_mod({a.text}, {b.text})", None),
            "usat_cast": lambda a, b: Code(f"usat_cast({a.text}, {b.text})", _number(b)),
            "sat_cast": lambda a, b: Code(f"sat_cast({a.text}, {b.text})", None),
        }

    def field(self, header: str, name: str) -> FieldInfo:
        """A field, which may be the hidden ``$valid$``."""
        if name == "$valid$":
            return FieldInfo(name, 1, False)
        return self._program.fields[header, name]

    def compile(self, node: Json, args: Sequence[Code] = ()) -> Code:
        """Python for a type value object of the JSON."""
        kind, value = node["type"], node["value"]
        if kind == "expression":
            return self.compile(value, args) if "type" in value else self._operation(value, args)
        if kind == "field":
            return self._field_code(*value)
        if kind == "hexstr":
            return constant(int(value, 16))
        if kind == "bool":
            return Code(str(bool(value)), 1)
        if kind in ("local", "runtime_data"):
            return args[value]
        if kind == "header":
            return Code(valid_var(value), 1)
        if kind in STACK_FIELDS:
            *place, name = value
            return self._chosen([(each.condition, self._field_code(each.header, name)) for each in self.last(*place)])
        raise UnsupportedError(f"the program uses an expression of type {kind!r}; this switch does not run it")

    def _field_code(self, header: str, name: str) -> Code:
        field = self.field(header, name)
        return Code(field_var(header, name), None if field.signed else field.width)

    def last(self, stack: str, member: str | None = None) -> list[Case]:
        """The last header of a stack, or of a member of its unions, which is known at run time."""
        elements = self._program.column(stack, member)
        return [Case(f"{next_var(stack)} == {at + 1}", header) for at, header in enumerate(elements)]

    def headers(self, node: Json, args: Sequence[Code] = ()) -> list[Case]:
        """The headers that an operand of header type can stand for."""
        kind, value = node["type"], node["value"]
        if kind == "header":
            return [Case("", value)]
        if kind == "expression" and "type" in value:
            return self.headers(value, args)
        if kind == "expression" and value["op"] == "dereference_header_stack":
            elements, index = self._program.stacks[value["left"]["value"]], self.compile(value["right"], args)
            number = _number(index)
            if number is None:
                return [Case(f"{index.text} == {at}", header) for at, header in enumerate(elements)]
            return [Case("", elements[min(number, len(elements) - 1)])]
        if kind == "expression" and value["op"] == "access_union_header":
            return [Case("", self._program.unions[value["left"]["value"]][int(value["right"])])]
        raise UnsupportedError(f"the program uses a header operand of type {kind!r}; this switch does not run it")

    def fields(self, node: Json, args: Sequence[Code] = ()) -> list[tuple[Case, str]]:
        """The fields that the target of an assignment can stand for, as (case of the header, field name)."""
        kind, value = node["type"], node["value"]
        if kind == "field":
            return [(Case("", value[0]), value[1])]
        if kind in STACK_FIELDS:
            *place, name = value
            return [(each, name) for each in self.last(*place)]
        if kind == "expression" and "type" in value:
            return self.fields(value, args)
        if kind == "expression" and value["op"] == "access_field":
            cases = self.headers(value["left"], args)
            return [(each, self._program.headers[each.header].fields[int(value["right"])].name) for each in cases]
        raise UnsupportedError(f"the program assigns to {kind!r}; this switch does not run it")

    @staticmethod
    def _chosen(cases: Sequence[tuple[str, Code]]) -> Code:
        """Python that chooses by condition; 0 when none holds, where BMv2 would read out of bounds."""
        if len(cases) == 1 and not cases[0][0]:
            return cases[0][1]
        text = "".join(f"{code.text} if {condition} else " for condition, code in cases)
        bits = [code.bits for _, code in cases]
        return Code(f"({text}0)", None if None in bits else max(each for each in bits if each is not None))

    def condition(self, node: Json | None, args: Sequence[Code] = ()) -> str:
        """Python for a condition; no condition is always true. Inside an action p4c makes it a number."""
        if node is None:
            return "True"
        if node["type"] == "expression":
            inner = node["value"]
            if "type" in inner:
                return self.condition(inner, args)
            if inner["op"] == "b2d":
                return self.condition(inner["right"], args)
        return self.compile(node, args).text

    def stored(self, field: FieldInfo, code: Code) -> str:
        """The value truncated to the field's width, if it can be wider."""
        if field.signed:
            return f"two_comp_mod({code.text}, {field.width})"
        if code.bits is not None and code.bits <= field.width:
            return code.text
        return f"{code.text} & {(1 << field.width) - 1:#x}"

    def _operation(self, node: Json, args: Sequence[Code]) -> Code:
        operator = node["op"]
        if operator == "valid":
            return self._chosen(
                [(each.condition, Code(valid_var(each.header), 1)) for each in self.headers(node["right"], args)]
            )
        if operator == "valid_union":
            members = self._program.unions[node["right"]["value"]]
            return Code(f"({' or '.join(map(valid_var, members))})", 1)
        if operator == "?":
            condition = self.compile(node["cond"], args).text
            left, right = self.compile(node["left"], args), self.compile(node["right"], args)
            return Code(f"({left.text} if {condition} else {right.text})", _larger(left, right))
        if operator == "access_field":
            whole: Json = {"type": "expression", "value": node}
            return self._chosen(
                [(each.condition, self._field_code(each.header, name)) for each, name in self.fields(whole, args)]
            )
        if operator in ("last_stack_index", "size_stack"):
            name = next_var(node["right"]["value"])
            return Code(f"({name} - 1)", None) if operator == "last_stack_index" else Code(name, 32)
        if operator in ("==", "!=") and is_header(node["left"]):
            return self._same_header(operator, node, args)
        right = self.compile(node["right"], args)
        if node.get("left") is None:
            return self._unary(operator, right)
        left = self.compile(node["left"], args)
        if operator in _COMPARISONS:
            return Code(f"({left.text} {operator} {right.text})", 1)
        if operator == "&":
            return self._and(left, right)
        if operator in ("<<", ">>"):
            return self._shift(operator, left, right)
        if operator not in self._operators:
            raise UnsupportedError(f"the program uses the operator {operator!r}; this switch does not run it")
        return self._operators[operator](left, right)

    @staticmethod
    def _unary(operator: str, right: Code) -> Code:
        if operator == "d2b":
            return right if right.bits == 1 else Code(f"({right.text} != 0)", 1)
        if operator == "b2d":
            return Code(f"int({right.text})", 1)
        if operator == "not":
            return Code(f"(not {right.text})", 1)
        if operator in ("~", "-", "+"):
            return Code(f"({operator}{right.text})", None)
        raise UnsupportedError(f"the program uses the operator {operator!r}; this switch does not run it")

    def _same_header(self, operator: str, node: Json, args: Sequence[Code]) -> Code:
        """Two headers are the same when both are valid and all their fields are equal."""
        pairs = []
        for left in self.headers(node["left"], args):
            for right in self.headers(node["right"], args):
                names = [field.name for field in self._program.headers[left.header].fields]
                others = [field.name for field in self._program.headers[right.header].fields]
                terms = [each.condition for each in (left, right) if each.condition]
                terms += [valid_var(left.header), valid_var(right.header)]
                terms += [
                    f"{field_var(left.header, name)} == {field_var(right.header, other)}"
                    for name, other in zip(names, others, strict=True)
                ]
                varbit, other = (self._program.headers[each.header].varbit for each in (left, right))
                if varbit is not None and other is not None:
                    terms.append(f"{bits_var(left.header, varbit)} == {bits_var(right.header, other)}")
                pairs.append(f"({' and '.join(terms)})")
        text = f"({' or '.join(pairs)})"
        return Code(f"(not {text})" if operator == "!=" else f"bool{text}", 1)

    @staticmethod
    def _and(left: Code, right: Code) -> Code:
        for value, mask in ((left, right), (right, left)):
            number = _number(mask)
            # All ones over a value that fits have no effect.
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
        if operator == "<<" and distance is None and (right.bits is None or right.bits > _DISTANCE_BITS):
            return Code(f"({left.text} << min({right.text}, {_LONGEST_SHIFT}))", bits)
        return Code(f"({left.text} {operator} {right.text})", bits)


def _number(code: Code) -> int | None:
    try:
        return int(code.text, 0)
    except ValueError:
        return None


def _without_mask(text: str, mask: int) -> str | None:
    """The inside of ``(... & wider mask)``: a wider mask below a narrower one has no effect."""
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
    """``value`` saturated to the unsigned range."""
    return min(max(value, 0), (1 << width) - 1)


def sat_cast(value: int, width: int) -> int:
    """``value`` saturated to the signed range."""
    return min(max(value, -(1 << (width - 1))), (1 << (width - 1)) - 1)
