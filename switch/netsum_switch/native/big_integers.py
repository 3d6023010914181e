# SPDX-License-Identifier: MIT
"""Integers that are too wide for one LLVM value: in memory, limb by limb, an operation at a time.

LLVM writes an operation out limb by limb. Compiling a sum takes time that grows with the square of its width, a product more than
that (28 s for 8,192 bits). What is wider than `WIDEST`, `WIDEST_PRODUCT` or `WIDEST_DIVISION` is therefore computed by calls of
functions that loop over limbs. A result is a pointer to 64-bit limbs, the lowest first, that hold the value modulo their width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netsum_switch.lowering.values import Constant, Expression, Operation, Parameter, Variable
from netsum_switch.native.layout import limb_count, storage
from netsum_switch.native.llvm_builder import LlvmFunction, LlvmModule, Register

if TYPE_CHECKING:
    from netsum_switch.native.expressions import Expressions

_BITWISE = {"&": "and", "|": "or", "^": "xor"}
_SIGN = 1 << 63


class BigIntegers:
    """Computes in one function; `expressions` are those of the same function."""

    def __init__(self, expressions: Expressions) -> None:
        self._expressions = expressions
        self._assembly = expressions.assembly
        self._out = expressions.out

    def number(self, expression: Expression, limbs: int) -> Register:
        """A pointer to the value in this many limbs. What it points to must not be written to."""
        if isinstance(expression, Constant):
            return self._assembly.limbs(expression.value, limbs)
        bits = min(expression.bits, 64 * limbs)
        if isinstance(expression, Operation) and self._expressions.is_big(expression, bits):
            return self._operation(expression, limbs)
        own = min(limbs, limb_count(expression.bits))
        to = self._out.space(8 * limbs)
        if isinstance(expression, Variable | Parameter) and storage(expression.bits) > 64:
            self._out.copy(to, self._expressions.place(expression), 8 * own)
        else:
            value = self._out.resize(self._expressions.emit(expression, bits), bits, 64 * own)
            self._out.store(value, to, 64 * own, 8)
        self._widen(to, own, limbs, expression.bits, expression.signed)
        return to

    def compare(self, predicate: str, left: Expression, right: Expression) -> Register:
        """An i1: `predicate` is LLVM's without its sign."""
        signed = left.signed or right.signed
        limbs = limb_count(max(left.signed_bits, right.signed_bits) if signed else max(left.bits, right.bits))
        order = compare_limbs(self._assembly, self._out, self.number(left, limbs), self.number(right, limbs), limbs, signed)
        return self._out.compare(predicate if predicate in ("eq", "ne") else "s" + predicate, 64, order, 0)

    def shift(self, name: str, of: Register, limbs: int, distance: Register | int, fill: Register | int = 0) -> Register:
        """A copy of a number, shifted ``left`` or ``right``; `fill` comes in from above."""
        to = self._out.space(8 * limbs)
        if self._assembly.once(f"big_{name}"):
            _write_shift(self._assembly, name)
        arguments = f"ptr {to}, ptr {of}, i64 {limbs}, i64 {distance}, i64 {fill}"
        self._out.line(f"call void @big_{name}({arguments})")
        return to

    def _operation(self, node: Operation, limbs: int) -> Register:
        op, operands = node.op, node.operands
        if op in ("~", "neg"):
            first = self._assembly.limbs(-1 if op == "~" else 0, limbs)
            return self._call("-", limbs, first, self.number(operands[0], limbs))
        if op == "?":
            return self._choice(operands, limbs)
        if op == "<<":
            return self.shift("left", self.number(operands[0], limbs), limbs, self._expressions.at_most(operands[1]))
        if op == ">>":
            return self._right(operands, limbs)
        if op in ("/", "%"):
            return self._division(op, operands, limbs)
        if op in ("two_comp", "usat", "sat"):
            return self._cut(node, limbs)
        return self._call(op, limbs, *(self.number(each, limbs) for each in operands))

    def _call(self, op: str, limbs: int, left: Register, right: Register) -> Register:
        names = {"+": "add", "-": "subtract", "*": "multiply", **_BITWISE}
        name, to = f"big_{names[op]}", self._out.space(8 * limbs)
        if self._assembly.once(name):
            _write_product(self._assembly, name) if op == "*" else _write_plain(self._assembly, name, op)
        self._out.line(f"call void @{name}(ptr {to}, ptr {left}, ptr {right}, i64 {limbs})")
        return to

    def _choice(self, operands: tuple[Expression, ...], limbs: int) -> Register:
        out, to = self._out, self._out.space(8 * limbs)
        yes, no, after = out.label(), out.label(), out.label()
        out.branch(self._expressions.condition(operands[0]), yes, no)
        for label, operand in ((yes, operands[1]), (no, operands[2])):
            out.begin(label)
            out.copy(to, self.number(operand, limbs), 8 * limbs)
            out.jump(after)
        out.begin(after)
        return to

    def _right(self, operands: tuple[Expression, ...], limbs: int) -> Register:
        value, distance = operands
        whole = max(limbs, limb_count(value.signed_bits))
        number, fill = self.number(value, whole), "0"
        if value.signed:
            top = self._out.load(self._out.offset(number, 8 * (whole - 1)), 64, 8)
            fill = self._out.op("ashr", 64, top, 63)
        return self.shift("right", number, whole, self._expressions.at_most(distance), fill)

    def _division(self, op: str, operands: tuple[Expression, ...], limbs: int) -> Register:
        """Both are unsigned."""
        whole = max(limbs, limb_count(max(each.bits for each in operands)))
        left, right = (self.number(each, whole) for each in operands)
        zero = self._assembly.limbs(0, whole)
        order = compare_limbs(self._assembly, self._out, right, zero, whole)
        self._expressions.fail_division(operands[1], self._out.compare("eq", 64, order, 0))
        quotient, remainder = self._out.space(8 * whole), self._out.space(8 * whole)
        self._out.clear(remainder, 8 * whole)
        if self._assembly.once("big_divide"):
            _write_division(self._assembly)
        self._out.line(f"call void @big_divide(ptr {quotient}, ptr {remainder}, ptr {left}, ptr {right}, i64 {whole})")
        return quotient if op == "/" else remainder

    def _cut(self, node: Operation, limbs: int) -> Register:
        """The value in two's complement of a constant width, or the nearest that this width holds."""
        value, width = node.operands
        assert isinstance(width, Constant)
        out = self._out
        if node.op == "two_comp":
            to, own = out.space(8 * limbs), min(limbs, limb_count(width.value))
            out.copy(to, self.number(value, own), 8 * own)
            self._widen(to, own, limbs, width.value, signed=True)
            return to
        top = (1 << width.value) - 1 if node.op == "usat" else (1 << width.value - 1) - 1
        bottom = 0 if node.op == "usat" else -(1 << width.value - 1)
        whole = max(limbs, limb_count(max(value.signed_bits, width.value + 1)))
        to = out.space(8 * whole)
        out.copy(to, self.number(value, whole), 8 * whole)
        for bound, predicate in ((top, "sgt"), (bottom, "slt")):
            constant = self._assembly.limbs(bound, whole)
            order = compare_limbs(self._assembly, out, to, constant, whole, signed=True)
            with out.when(out.compare(predicate, 64, order, 0)):
                out.copy(to, constant, 8 * whole)
        return to

    def _widen(self, to: Register, own: int, limbs: int, bits: int, signed: bool) -> None:
        """Extend a number of `bits` bits, of which `own` limbs are there, to all limbs."""
        if limbs > own:
            self._out.clear(self._out.offset(to, 8 * own), 8 * (limbs - own))
        if signed and bits < 64 * limbs:
            if self._assembly.once("big_sign"):
                _write_sign(self._assembly)
            self._out.line(f"call void @big_sign(ptr {to}, i64 {limbs}, i64 {bits})")


def compare_limbs(
    assembly: LlvmModule, out: LlvmFunction, left: Register, right: Register, limbs: int, signed: bool = False
) -> Register:
    """An i64: below 0, 0 or above 0."""
    if assembly.once("big_compare"):
        _write_compare(assembly)
    flip = _SIGN if signed else 0
    return out.value(f"call i64 @big_compare(ptr {left}, ptr {right}, i64 {limbs}, i64 {flip})")


def clear_above(out: LlvmFunction, number: Register, bits: int) -> None:
    """Clear the bits of a number's last limb that do not belong to its width."""
    if bits % 64:
        top = out.offset(number, bits // 64 * 8)
        out.store(out.op("and", 64, out.load(top, 64, 8), (1 << bits % 64) - 1), top, 64, 8)


# The functions. A result may lie over an operand of those that go limb by limb (`_write_plain`), and of no other.


def _limb(out: LlvmFunction, base: Register, index: Register | int) -> Register:
    return out.value(f"getelementptr i64, ptr {base}, i64 {index}")


def _write_plain(assembly: LlvmModule, name: str, op: str) -> None:
    """Bitwise operations, sums and differences."""
    out = assembly.function(name, "ptr %to, ptr %left, ptr %right, i64 %limbs", "void", attributes="noinline")
    carry = out.number()
    with out.each("%limbs") as index:
        left, right = (out.load(_limb(out, each, index), 64, 8) for each in ("%left", "%right"))
        if op in _BITWISE:
            result = out.op(_BITWISE[op], 64, left, right)
        else:
            wide = out.op("add" if op == "+" else "sub", 128, *(out.resize(each, 64, 128) for each in (left, right)))
            wide = out.op("add" if op == "+" else "sub", 128, wide, out.resize(out.load(carry, 64, 8), 64, 128))
            result = out.resize(wide, 128, 64)
            high = out.resize(out.op("lshr", 128, wide, 64), 128, 64)
            out.store(out.op("and", 64, high, 1), carry, 64, 8)
        out.store(result, _limb(out, "%to", index), 64, 8)
    out.give("void")


def _write_product(assembly: LlvmModule, name: str) -> None:
    """Multiply as on paper (Knuth, The Art of Computer Programming 2, 4.3.1, algorithm M), modulo the width."""
    out = assembly.function(name, "ptr %to, ptr %left, ptr %right, i64 %limbs", "void", attributes="noinline")
    out.clear("%to", out.op("shl", 64, "%limbs", 3))
    carry = out.number()
    with out.each("%limbs") as index:
        out.store("0", carry, 64, 8)
        factor = out.resize(out.load(_limb(out, "%left", index), 64, 8), 64, 128)
        with out.each(out.op("sub", 64, "%limbs", index)) as other:
            place = _limb(out, "%to", out.op("add", 64, index, other))
            total = out.op("mul", 128, factor, out.resize(out.load(_limb(out, "%right", other), 64, 8), 64, 128))
            for more in (out.load(place, 64, 8), out.load(carry, 64, 8)):
                total = out.op("add", 128, total, out.resize(more, 64, 128))
            out.store(out.resize(total, 128, 64), place, 64, 8)
            out.store(out.resize(out.op("lshr", 128, total, 64), 128, 64), carry, 64, 8)
    out.give("void")


def _write_division(assembly: LlvmModule) -> None:
    """Divide bit by bit: the remainder, 0 at first, takes the next bit and gives up the divisor when it can."""
    if assembly.once("big_compare"):
        _write_compare(assembly)
    if assembly.once("big_subtract"):
        _write_plain(assembly, "big_subtract", "-")
    parameters = "ptr %quotient, ptr %remainder, ptr %left, ptr %right, i64 %limbs"
    out = assembly.function("big_divide", parameters, "void", attributes="noinline")
    carry = out.number()
    out.clear("%quotient", out.op("shl", 64, "%limbs", 3))
    bits = out.op("shl", 64, "%limbs", 6)
    last = out.op("sub", 64, bits, 1)
    with out.each(bits) as turn:
        at = out.op("sub", 64, last, turn)
        word, bit = out.op("lshr", 64, at, 6), out.op("and", 64, at, 63)
        following = out.op("and", 64, out.op("lshr", 64, out.load(_limb(out, "%left", word), 64, 8), bit), 1)
        out.store(following, carry, 64, 8)
        with out.each("%limbs") as index:
            place = _limb(out, "%remainder", index)
            old = out.load(place, 64, 8)
            out.store(out.op("or", 64, out.op("shl", 64, old, 1), out.load(carry, 64, 8)), place, 64, 8)
            out.store(out.op("lshr", 64, old, 63), carry, 64, 8)
        # A bit that left the remainder at the top makes it larger than any divisor.
        over = out.compare("ne", 64, out.load(carry, 64, 8), 0)
        order = out.value("call i64 @big_compare(ptr %remainder, ptr %right, i64 %limbs, i64 0)")
        with out.when(out.op("or", 1, over, out.compare("sge", 64, order, 0))):
            out.line("call void @big_subtract(ptr %remainder, ptr %remainder, ptr %right, i64 %limbs)")
            place = _limb(out, "%quotient", word)
            out.store(out.op("or", 64, out.load(place, 64, 8), out.op("shl", 64, 1, bit)), place, 64, 8)
    out.give("void")


def _write_compare(assembly: LlvmModule) -> None:
    """Compare from the highest limb down; `flip` turns the order of signed numbers into that of unsigned ones."""
    parameters = "ptr %left, ptr %right, i64 %limbs, i64 %flip"
    out = assembly.function("big_compare", parameters, "i64", attributes="noinline")
    last, flip = out.op("sub", 64, "%limbs", 1), out.number("%flip")
    with out.each("%limbs") as turn:
        index, mask = out.op("sub", 64, last, turn), out.load(flip, 64, 8)
        out.store("0", flip, 64, 8)
        left, right = (out.op("xor", 64, out.load(_limb(out, each, index), 64, 8), mask) for each in ("%left", "%right"))
        with out.when(out.compare("ne", 64, left, right)):
            out.give(f"i64 {out.choose(out.compare('ult', 64, left, right), 64, -1, 1)}")
    out.give("i64 0")


def _write_shift(assembly: LlvmModule, name: str) -> None:
    """Shift by any distance: each limb is made of two."""
    parameters = "ptr %to, ptr %of, i64 %limbs, i64 %distance, i64 %fill"
    out = assembly.function(f"big_{name}", parameters, "void", attributes="noinline")
    whole, rest = out.op("lshr", 64, "%distance", 6), out.op("and", 64, "%distance", 63)
    direction = "add" if name == "right" else "sub"
    funnel = assembly.declare(f"llvm.{'fshr' if name == 'right' else 'fshl'}.i64", "i64 {}(i64, i64, i64)")
    with out.each("%limbs") as index:
        near = out.op(direction, 64, index, whole)
        limbs = []
        for at in (near, out.op(direction, 64, near, 1)):
            inside = out.compare("ult", 64, at, "%limbs")  # no place below 0 is either
            limb = out.load(_limb(out, "%of", out.choose(inside, 64, at, 0)), 64, 8)
            limbs.append(out.choose(inside, 64, limb, "%fill"))
        low, high = limbs if name == "right" else reversed(limbs)
        result = out.value(f"call i64 @{funnel}(i64 {high}, i64 {low}, i64 {rest})")
        out.store(result, _limb(out, "%to", index), 64, 8)
    out.give("void")


def _write_sign(assembly: LlvmModule) -> None:
    """Repeat a number's highest bit in all bits above it."""
    out = assembly.function("big_sign", "ptr %to, i64 %limbs, i64 %bits", "void", attributes="noinline")
    last = out.op("sub", 64, "%bits", 1)
    word, bit = out.op("lshr", 64, last, 6), out.op("and", 64, last, 63)
    top = _limb(out, "%to", word)
    away = out.op("sub", 64, 63, bit)
    value = out.op("ashr", 64, out.op("shl", 64, out.load(top, 64, 8), away), away)
    out.store(value, top, 64, 8)
    sign, after = out.op("ashr", 64, value, 63), out.op("add", 64, word, 1)
    with out.each(out.op("sub", 64, "%limbs", after)) as index:
        out.store(sign, _limb(out, "%to", out.op("add", 64, after, index)), 64, 8)
    out.give("void")
