# SPDX-License-Identifier: MIT
"""Expressions: integers with the bits that they can need.

A value is an unbounded integer, as in BMv2. ``bits`` and ``signed`` say where it can lie: from 0 to 2**bits - 1, or in two's
complement. Equal expressions are one object (`Values` sees to it), so a back half can tell by identity what it has computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from netsum_switch.errors import JsonError, UnsupportedError
from netsum_switch.program import HeaderInfo, Program

# What v1model's standard metadata means to simple_switch.


# simple_switch's PKT_INSTANCE_TYPE_*
NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRC, REPLICATION, RESUBMIT = 0, 1, 2, 4, 5, 6

# What is set again when a copy of a packet enters egress.
EGRESS_FIELDS = (
    "egress_port", "egress_rid", "egress_spec", "packet_length", "instance_type", "egress_global_timestamp",
    "enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth",
)  # fmt: skip


# No field is as wide: shifting further gives the same bits.
LONGEST_SHIFT = 65536


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """Base: where the value lies."""

    bits: int
    signed: bool

    @property
    def signed_bits(self) -> int:
        """Bits in two's complement."""
        return self.bits + (not self.signed)


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Expression):
    value: int


@dataclass(frozen=True, slots=True, eq=False)
class Variable(Expression):
    """A place of a packet's state; what is stored is cut to its width. Metadata, header fields, validity, lengths, marks."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Parameter(Expression):
    """A run-time parameter of the action at hand."""

    index: int


@dataclass(frozen=True, slots=True, eq=False)
class RowNumber(Expression):
    """The number of the row that was found in a table; the default entry's is 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Calculated(Expression):
    """The result of a calculation over the current state."""

    calculation: str


@dataclass(frozen=True, slots=True, eq=False)
class Random(Expression):
    """A random number from the first operand to the second, both included."""

    low: Expression
    high: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Operation(Expression):
    """``op`` is one of + - * / % & | ^ ~ neg << >> == != < <= > >= and or not ? two_comp usat sat.

    The last three cut to the width that is their second operand, a constant; and, or, not take any integer as a truth.
    """

    op: str
    operands: tuple[Expression, ...]


COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
_FOLD: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "&": lambda a, b: a & b,
    "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b), "<=": lambda a, b: int(a <= b), ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b), "and": lambda a, b: int(bool(a and b)), "or": lambda a, b: int(bool(a or b)),
}  # fmt: skip


class Values:
    """Makes expressions, each once."""

    def __init__(self) -> None:
        self._known: dict[object, Expression] = {}
        self.zero, self.one = self.constant(0), self.constant(1)
        self.row_number = RowNumber(32, False)

    def constant(self, value: int) -> Constant:
        bits = max(1, value.bit_length()) if value >= 0 else (~value).bit_length() + 1
        made = self._known.setdefault(("constant", value), Constant(bits, value < 0, value))
        assert isinstance(made, Constant)
        return made

    def parameter(self, index: int, bits: int) -> Expression:
        return self._known.setdefault(("parameter", index, bits), Parameter(bits, False, index))

    def operation(self, op: str, *operands: Expression) -> Expression:
        """The operation, folded if its operands are constants. Raises UnsupportedError if they are none that BMv2 takes."""
        if op == "&":
            whole = _unmasked(*operands)
            if whole is not None:
                return whole
        if op in _FOLD and all(isinstance(each, Constant) for each in operands):
            left, right = (each.value for each in operands if isinstance(each, Constant))
            return self.constant(_FOLD[op](left, right))
        if op in ("<<", ">>") and operands[1].signed:  # a negative distance, which ends simple_switch, is 0
            natural = self.constant(max(1, min(operands[1].bits - 1, LONGEST_SHIFT.bit_length())))
            operands = (operands[0], self.operation("usat", operands[1], natural))
        key = (op, *map(id, operands))
        found = self._known.get(key)
        if found is None:
            bits, signed = _range(op, operands)
            found = self._known[key] = Operation(bits, signed, op, operands)
        return found

    def random(self, low: Expression, high: Expression) -> Expression:
        return Random(max(low.bits, high.bits), False, low, high)  # each is drawn anew

    def all(self, terms: list[Expression]) -> Expression:
        """True if all hold."""
        result: Expression = self.one
        for term in terms:
            result = term if result is self.one else self.operation("and", result, term)
        return result

    def any(self, terms: list[Expression]) -> Expression:
        """True if one holds."""
        result: Expression = self.zero
        for term in terms:
            result = term if result is self.zero else self.operation("or", result, term)
        return result

    def negation(self, value: Expression) -> Expression:
        return self.operation("not", value)

    def chosen(self, cases: list[tuple[Expression | None, Expression]]) -> Expression:
        """The value of the first case whose condition holds, or 0."""
        if len(cases) == 1 and cases[0][0] is None:
            return cases[0][1]
        result: Expression = self.zero
        for condition, value in reversed(cases):
            assert condition is not None
            result = self.operation("?", condition, value, result)
        return result


def _unmasked(left: Expression, right: Expression) -> Expression | None:
    """The operand that a mask of ones does not change."""
    for value, mask in ((left, right), (right, left)):
        ones = isinstance(mask, Constant) and mask.value > 0 and mask.value & (mask.value + 1) == 0
        if ones and not value.signed and value.bits <= mask.bits:
            return value
    return None


def _range(op: str, operands: tuple[Expression, ...]) -> tuple[int, bool]:
    """(bits, signed) of an operation's result."""
    if op in COMPARISONS or op in ("and", "or", "not"):
        return 1, False
    if op in ("~", "neg"):
        return operands[0].signed_bits + (op == "neg"), True
    if op == "?":
        return _either(operands[1], operands[2])
    left, right = operands
    if op in ("two_comp", "usat", "sat"):
        if not isinstance(right, Constant) or right.value < 1:
            raise UnsupportedError(f"the program cuts a value to a width that is no constant ({op})")
        return right.value, op != "usat"
    if op in ("<<", ">>"):
        return _shifted(op, left, right)
    if op in ("/", "%"):
        if left.signed or right.signed:
            raise UnsupportedError(f"the program computes {op} of a number that may be negative; BMv2 does not either")
        return (left if op == "/" else right).bits, False
    return _arithmetic(op, left, right)


def _either(left: Expression, right: Expression) -> tuple[int, bool]:
    if left.signed or right.signed:
        return max(left.signed_bits, right.signed_bits), True
    return max(left.bits, right.bits), False


def _arithmetic(op: str, left: Expression, right: Expression) -> tuple[int, bool]:
    if op == "&":
        natural = [each.bits for each in (left, right) if not each.signed]
        return (min(natural), False) if natural else (max(left.bits, right.bits), True)
    if op in ("|", "^"):
        return _either(left, right)
    if op == "-":
        return max(left.signed_bits, right.signed_bits) + 1, True
    signed = left.signed or right.signed
    if op == "+":
        return _either(left, right)[0] + 1, signed
    assert op == "*", op
    return (left.signed_bits + right.signed_bits if signed else left.bits + right.bits), signed


def _shifted(op: str, left: Expression, right: Expression) -> tuple[int, bool]:
    if op == ">>":
        return (max(1, left.bits - right.value) if isinstance(right, Constant) else left.bits), left.signed
    most = right.value if isinstance(right, Constant) else (1 << min(right.bits, 17)) - 1
    return left.bits + min(most, LONGEST_SHIFT), left.signed


def operands_of(expression: Expression) -> tuple[Expression, ...]:
    """The expressions that one is made of."""
    if isinstance(expression, Operation):
        return expression.operands
    return (expression.low, expression.high) if isinstance(expression, Random) else ()


def walk(expression: Expression) -> Iterator[Expression]:
    """An expression and all that it is made of, each once."""
    seen: set[int] = set()
    waiting = [expression]
    while waiting:
        each = waiting.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting += operands_of(each)


# The variables of a program: what a packet carries from the parser to the deparser.


_LENGTH_BITS = 32
# What controls say about a packet, and the numbers that the switch keeps of it.
_MARKS = {
    "clone": 1, "clone_session": 15, "clone_list": 32, "resubmit": 32, "recirculate": 32, "digest": 32, "leaving": 1,
    "truncated": 64, "length": 64,
}  # fmt: skip


class Variables:
    """The variables of headers and fields, and those of the packet itself (`mark`)."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._fields: dict[tuple[str, str], Variable] = {}
        self._lengths: dict[str, Variable] = {}
        self._next: dict[str, Variable] = {}
        self._marks = {name: Variable(bits, name == "length", name) for name, bits in _MARKS.items()}
        self._peeks: dict[int, list[Variable]] = {}
        for header in program.headers.values():
            if not header.metadata:
                self._fields[header.name, "$valid$"] = Variable(1, False, f"{header.name}.$valid$")
            for field in header.fields:
                variable = Variable(field.width, field.signed, f"{header.name}.{field.name}")
                self._fields[header.name, field.name] = variable
                if field.varbit:
                    self._lengths[header.name] = Variable(_LENGTH_BITS, False, f"{header.name}.{field.name}.$bits$")
        for stack in program.columns:
            self._next[stack] = Variable(_LENGTH_BITS, False, f"{stack}.$next$")

    def field(self, header: str, name: str) -> Variable:
        place = (header, name)
        return self._fields[place if place in self._fields else self.program.aliases.get(place, place)]

    def has(self, header: str, name: str) -> bool:
        """True if the program has a field, of the standard metadata under any of its names."""
        return (self.program.standard(name) if header == "standard_metadata" else (header, name)) in self._fields

    def fields(self, header: str) -> list[Variable]:
        """A header's fields in order."""
        return [self._fields[header, each.name] for each in self.program.headers[header].fields]

    def valid(self, header: str) -> Variable:
        return self._fields[header, "$valid$"]

    def length(self, header: str) -> Variable | None:
        """The bits of the header's varbit field, if it has one."""
        return self._lengths.get(header)

    def next(self, stack: str) -> Variable:
        """The number of headers of a stack that were extracted."""
        return self._next[stack]

    def mark(self, name: str) -> Variable:
        return self._marks[name]

    def standard(self, name: str) -> Variable:
        """A field of the standard metadata. Raises JsonError if the program lacks it."""
        place = self.program.standard(name)
        if place not in self._fields:
            raise JsonError(f"the program has no standard_metadata.{name}: it was not compiled for v1model")
        return self._fields[place]

    def peek(self, bits: int, number: int) -> Variable:
        """A place for a lookahead that only a transition looks at."""
        known = self._peeks.setdefault(bits, [])
        while len(known) <= number:
            known.append(Variable(bits, False, f"$peek{bits}.{len(known)}"))
        return known[number]

    def metadata(self) -> list[Variable]:
        return [
            self._fields[header.name, field.name]
            for header in self.program.headers.values()
            if header.metadata
            for field in header.fields
        ]

    def of_header(self, header: HeaderInfo) -> list[Variable]:
        """Everything that belongs to a header: what moves when the header moves."""
        length = self.length(header.name)
        own = [] if header.metadata else [self.valid(header.name)]
        return [*own, *self.fields(header.name), *([length] if length is not None else [])]

    def __iter__(self) -> Iterator[Variable]:
        yield from self._marks.values()
        yield from self._next.values()
        yield from self._lengths.values()
        yield from self._fields.values()
        for known in self._peeks.values():
            yield from known
