# SPDX-License-Identifier: MIT
"""Expressions as LLVM integers.

``emit(expression, bits)`` gives the value modulo 2**bits: additions, products and bitwise operations need no more of their
operands, so the masks that p4c writes around everything say how wide to compute. Shifts to the right, comparisons and divisions
need their operands whole, as wide as these can be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from netsum_switch.errors import UnsupportedError
from netsum_switch.lowering.values import (
    COMPARISONS,
    Calculated,
    Constant,
    Expression,
    Operation,
    Parameter,
    Random,
    RowNumber,
    Variable,
    walk,
)
from netsum_switch.native.big_integers import BigIntegers
from netsum_switch.native.layout import WIDEST, WIDEST_DIVISION, WIDEST_PRODUCT, Layout, limb_count, storage
from netsum_switch.native.llvm_builder import LlvmFunction, LlvmModule, Register

_PLAIN = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor"}
_ZERO = Constant(1, False, 0)
_TOO_LARGE = 1 << 62
_PREDICATES = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


class Surroundings(Protocol):
    """The parts of a function that expressions need beside themselves."""

    def calculate(self, out: LlvmFunction, name: str) -> Register:
        """A call of a calculation; an i64."""

    def fail(self, out: LlvmFunction, condition: Register, text: str) -> None:
        """End the packet with an error if the condition holds."""


class Expressions:
    """Writes into one function. ``row`` is the table row with the action's parameters, while an action is written,
    ``row_number`` that row's number, while what comes before it is."""

    def __init__(self, assembly: LlvmModule, layout: Layout, out: LlvmFunction, around: Surroundings) -> None:
        self.assembly = assembly
        self.layout = layout
        self.out = out
        self._around = around
        self.row: Register = ""
        self.row_number: Register = ""
        self.places: tuple[int, ...] = ()  # byte offsets of the parameters in the row
        self.where = ""  # the P4 construct, for errors
        self.big = BigIntegers(self)

    def pointer(self, variable: Variable) -> Register:
        return self.out.offset("%s", self.layout.offsets[variable])

    def place(self, value: Variable | Parameter) -> Register:
        """A pointer to a variable, or to the parameter in the row."""
        return self.pointer(value) if isinstance(value, Variable) else self.out.offset(self.row, self.places[value.index])

    def condition(self, expression: Expression) -> Register:
        """True if a value is not 0; an i1."""
        if expression.bits > WIDEST:
            return self.big.compare("ne", expression, _ZERO)
        value = self.whole(expression)
        return value if expression.bits == 1 else self.out.compare("ne", expression.bits, value, 0)

    def whole(self, expression: Expression) -> Register:
        """The value in as many bits as it can need."""
        return self.emit(expression, expression.bits)

    def emit(self, expression: Expression, bits: int) -> Register:
        """The value modulo 2**bits."""
        if isinstance(expression, Constant):
            return literal(expression.value, bits)
        if isinstance(expression, Variable | Parameter):
            return self._loaded(self.place(expression), expression, bits)
        if isinstance(expression, RowNumber):
            return self.out.resize(self.row_number, 64, bits)
        if isinstance(expression, Calculated):
            return self.out.resize(self._around.calculate(self.out, expression.calculation), 64, bits)
        if isinstance(expression, Random):
            return self._random(expression, bits)
        assert isinstance(expression, Operation)
        if self.is_big(expression, bits):
            return self.out.load(self.big.number(expression, limb_count(bits)), bits, 8)
        return self._operation(expression, bits)

    def is_big(self, node: Operation, bits: int) -> bool:
        """True if the operation, modulo 2**bits, is not computed in one piece."""
        op, operands = node.op, node.operands
        if op in COMPARISONS or op in ("and", "or", "not"):
            return False
        widest = WIDEST
        if op == "&" and not node.signed:
            bits = min(bits, node.bits)
        elif op == "*":
            widest = WIDEST_PRODUCT
        elif op == ">>":
            distance = operands[1]
            needed = bits + distance.value if isinstance(distance, Constant) else operands[0].bits
            bits = max(bits, min(needed, operands[0].bits))
        elif op in ("/", "%"):
            widest, bits = WIDEST_DIVISION, max(each.bits for each in operands)
        elif op in ("two_comp", "usat", "sat"):
            assert isinstance(operands[1], Constant)
            bits = max(bits, operands[1].value + 1, 0 if op == "two_comp" else operands[0].signed_bits)
        return bits > widest

    def store(self, expression: Expression, to: Register, limbs: int) -> None:
        """Write the value to this many limbs."""
        if 64 * limbs > WIDEST:
            self.out.copy(to, self.big.number(expression, limbs), 8 * limbs)
        else:
            self.out.store(self.emit(expression, 64 * limbs), to, 64 * limbs, 8)

    def at_most(self, expression: Expression) -> Register:
        """The value, which is not negative, as an i64, or a number that is too large for all that takes one."""
        if expression.bits <= 63:
            return self.emit(expression, 64)
        inside = self._comparison("<", expression, Constant(_TOO_LARGE.bit_length(), False, _TOO_LARGE))
        return self.out.choose(inside, 64, self.emit(expression, 64), _TOO_LARGE)

    def _loaded(self, pointer: Register, place: Expression, bits: int) -> Register:
        held = storage(place.bits)
        value = self.out.load(pointer, held, min(held, 64) // 8)
        if place.signed:
            value = self.out.resize(value, held, place.bits)
            return self.out.resize(value, place.bits, bits, signed=True)
        return self.out.resize(value, held, bits)

    def fitted(self, value: Register, of: Expression, bits: int) -> Register:
        """A whole value modulo 2**bits."""
        return self.out.resize(value, of.bits, bits, of.signed)

    def _operation(self, node: Operation, bits: int) -> Register:
        op, operands = node.op, node.operands
        if op in COMPARISONS:
            return self.out.resize(self._comparison(op, *operands), 1, bits)
        if op in ("and", "or", "not"):
            return self.out.resize(self._logic(op, operands), 1, bits)
        if op == "&":
            return self._and(node, bits)
        if op in _PLAIN:
            left, right = (self.emit(each, bits) for each in operands)
            return self.out.op(_PLAIN[op], bits, left, right)
        if op == "~":
            return self.out.op("xor", bits, self.emit(operands[0], bits), "-1" if bits > 1 else "true")
        if op == "neg":
            return self.out.op("sub", bits, literal(0, bits), self.emit(operands[0], bits))
        if op == "?":
            return self._choice(operands, bits)
        if op == "<<":
            return self._left(operands, bits)
        if op == ">>":
            return self._right(node, bits)
        if op in ("/", "%"):
            return self.fitted(self._division(op, operands), node, bits)
        return self._cut(node, bits)

    def _and(self, node: Operation, bits: int) -> Register:
        inside = min(bits, node.bits) if not node.signed else bits
        mask = next((each.value for each in node.operands if isinstance(each, Constant)), None)
        if mask is not None and mask & (1 << inside) - 1 == (1 << inside) - 1:
            value = next(each for each in node.operands if not isinstance(each, Constant) or each.value != mask)
            return self.out.resize(self.emit(value, inside), inside, bits)
        left, right = (self.emit(each, inside) for each in node.operands)
        return self.out.resize(self.out.op("and", inside, left, right), inside, bits)

    def _comparison(self, op: str, left: Expression, right: Expression) -> Register:
        signed = left.signed or right.signed
        bits = max(left.signed_bits, right.signed_bits) if signed else max(left.bits, right.bits)
        predicate = _PREDICATES[op]
        if bits > WIDEST:
            return self.big.compare(predicate, left, right)
        if predicate not in ("eq", "ne"):
            predicate = ("s" if signed else "u") + predicate
        return self.out.compare(predicate, bits, self.emit(left, bits), self.emit(right, bits))

    def _logic(self, op: str, operands: tuple[Expression, ...]) -> Register:
        first = self.condition(operands[0])
        if op == "not":
            return self.out.negation(first)
        if not can_fail(operands[1]):
            return self.out.op(op, 1, first, self.condition(operands[1]))
        if op == "and":
            return self._branched(first, 1, lambda: self.condition(operands[1]), lambda: "false")
        return self._branched(first, 1, lambda: "true", lambda: self.condition(operands[1]))

    def _choice(self, operands: tuple[Expression, ...], bits: int) -> Register:
        condition = self.condition(operands[0])
        if not any(map(can_fail, operands[1:])):
            return self.out.choose(condition, bits, *(self.emit(each, bits) for each in operands[1:]))
        yes, no = operands[1:]
        return self._branched(condition, bits, lambda: self.emit(yes, bits), lambda: self.emit(no, bits))

    def _branched(self, condition: Register, bits: int, yes: Callable[[], Register], no: Callable[[], Register]) -> Register:
        """One of two values, of which only that one is computed."""
        out = self.out
        first, second, after = out.label(), out.label(), out.label()
        out.branch(condition, first, second)
        cases = []
        for label, make in ((first, yes), (second, no)):
            out.begin(label)
            value = make()
            cases.append(f"[ {value}, %{out.block} ]")
            out.jump(after)
        out.begin(after)
        return out.value(f"phi i{bits} {', '.join(cases)}")

    def _left(self, operands: tuple[Expression, ...], bits: int) -> Register:
        value, distance = operands
        if isinstance(distance, Constant):
            if distance.value >= bits:
                return literal(0, bits)
            inside = bits - distance.value
            moved = self.out.resize(self.emit(value, inside), inside, bits)
            return self.out.op("shl", bits, moved, distance.value)
        return self._shifted("shl", value, distance, bits)

    def _shifted(self, name: str, value: Expression, distance: Expression, bits: int) -> Register:
        """A shift by a distance of which LLVM must not know that it may be too far."""
        wide = max(bits, distance.bits, 18)
        by = self.emit(distance, wide)
        inside = self.out.compare("ult", wide, by, bits)
        near = self.out.resize(self.out.choose(inside, wide, by, 0), wide, bits)
        if bits == 1:
            near = "false"
        shifted = self.out.op(name, bits, self.emit(value, bits), near)
        if name == "ashr":
            last = self.out.op("ashr", bits, self.emit(value, bits), bits - 1)
            return self.out.choose(inside, bits, shifted, last)
        return self.out.choose(inside, bits, shifted, literal(0, bits))

    def _right(self, node: Operation, bits: int) -> Register:
        value, distance = node.operands
        name = "ashr" if value.signed else "lshr"
        if not isinstance(distance, Constant):
            return self.fitted(self._shifted(name, value, distance, value.bits), value, bits)
        by = distance.value
        if by >= value.bits:
            if not value.signed:
                return literal(0, bits)
            by = value.bits - 1
        inside = min(value.bits, bits + by)
        moved = self.out.op(name, inside, self.emit(value, inside), by)
        return self.out.resize(moved, inside, bits, value.signed)

    def _division(self, op: str, operands: tuple[Expression, ...]) -> Register:
        """A quotient or remainder, in as many bits as it can need."""
        left, right = operands
        bits = max(left.bits, right.bits)
        by = self.emit(right, bits)
        self.fail_division(right, self.out.compare("eq", bits, by, literal(0, bits)))
        result = self.out.op("udiv" if op == "/" else "urem", bits, self.emit(left, bits), by)
        return self.out.resize(result, bits, (left if op == "/" else right).bits)

    def fail_division(self, divisor: Expression, is_zero: Register) -> None:
        """End the packet if its divisor is 0 and can be."""
        never = isinstance(divisor, Constant) and divisor.value != 0
        if isinstance(divisor, Operation) and divisor.op == "?":  # what `hash` divides by: size ? size : 1
            first, second, third = divisor.operands
            never = first is second and isinstance(third, Constant) and third.value != 0
        if not never:
            self._around.fail(self.out, is_zero, f"a division by 0 in {self.where}; the packet is dropped")

    def _cut(self, node: Operation, bits: int) -> Register:
        value, width = node.operands
        assert isinstance(width, Constant)
        if node.op == "two_comp":
            return self.out.resize(self.emit(value, width.value), width.value, bits, signed=True)
        top = (1 << width.value) - 1 if node.op == "usat" else (1 << width.value - 1) - 1
        bottom = 0 if node.op == "usat" else -(1 << width.value - 1)
        inside = max(value.signed_bits, width.value + 1)
        result = self.emit(value, inside)
        for bound, predicate in ((top, "sgt"), (bottom, "slt")):
            beyond = self.out.compare(predicate, inside, result, bound)
            result = self.out.choose(beyond, inside, bound, result)
        return self.out.resize(result, inside, bits, signed=True)

    def _random(self, node: Random, bits: int) -> Register:
        """A random number from low to high; the caller has made sure that low is not above high."""
        if node.bits > 64:
            raise UnsupportedError(f"{self.where} takes a random number of {node.bits} bits; this switch has 64")
        low, high = self.emit(node.low, 64), self.emit(node.high, 64)
        drawn = self.out.value("call i64 @random(ptr %c)")
        count = self.out.op("add", 64, self.out.op("sub", 64, high, low), 1)
        wide = self.out.op("mul", 128, self.out.resize(drawn, 64, 128), self.out.resize(count, 64, 128))
        inside = self.out.resize(self.out.op("lshr", 128, wide, 64), 128, 64)
        any_will_do = self.out.compare("eq", 64, count, 0)
        offset = self.out.choose(any_will_do, 64, drawn, inside)
        return self.out.resize(self.out.op("add", 64, low, offset), 64, bits)


def literal(value: int, bits: int) -> Register:
    """A number modulo 2**bits, as LLVM writes it: an i1 is true or false."""
    return str(value & (1 << bits) - 1) if bits > 1 else ("true" if value & 1 else "false")


def can_fail(expression: Expression) -> bool:
    """True if computing it can end the packet."""
    return any(isinstance(each, Operation) and each.op in ("/", "%") for each in walk(expression))
