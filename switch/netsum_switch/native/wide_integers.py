# SPDX-License-Identifier: MIT
"""Wide integers in loops over their limbs, of which some are computed side by side.

LLVM can add integers of 2048 bits, but it writes an expression of some of them out limb by limb, slowly, and spills most. So a
wide assignment becomes a function with a loop that computes all of its operations for one limb after the other, with the
carries of additions in registers. What is shifted is computed into memory first, by a loop of its own. Assignments of
the same form share the function: netsum's 2048-bit chunks need some twenty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from netsum_switch.lowering.values import Constant, Expression, Operation, Parameter, Variable, operands_of
from netsum_switch.native.big_integers import clear_above
from netsum_switch.native.expressions import Expressions
from netsum_switch.native.layout import WIDE, WIDEST, limb_count, storage
from netsum_switch.native.llvm_builder import LlvmFunction, LlvmModule, Register

# Header fields to and from the bytes of a frame, which are big-endian.


@dataclass(frozen=True, slots=True)
class AdjacentFields:
    """Fields that lie end to end: the first bit, the number of the first field, and their widths."""

    at: int
    first: int
    widths: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(self.widths) // 8

    @property
    def whole(self) -> bool:
        """True if the group begins and ends with whole bytes."""
        return self.at % 8 == 0 and sum(self.widths) % 8 == 0

    @property
    def is_wide(self) -> bool:
        """True if it is one field, moved limb by limb."""
        return self.whole and len(self.widths) == 1 and self.widths[0] > WIDE and self.widths[0] % 64 == 0


def groups(widths: Sequence[int], at: int = 0) -> list[AdjacentFields]:
    """The shortest groups of fields that begin and end with whole bytes and can be treated as one number; fields that are in
    none singly. ``at``: the first field's first bit."""
    found: list[AdjacentFields] = []
    first = 0
    while first < len(widths):
        end, bits = first + 1, widths[first]
        while at % 8 == 0 and bits % 8 and bits <= WIDEST and end < len(widths):
            bits += widths[end]
            end += 1
        if bits % 8 or bits > WIDEST:
            end, bits = first + 1, widths[first]
        found.append(AdjacentFields(at, first, tuple(widths[first:end])))
        at, first = at + bits, end
    return found


def load_big(assembly: LlvmModule, out: LlvmFunction, pointer: Register, size: int) -> Register:
    """An integer of ``size`` big-endian bytes."""
    if size == 1:
        return out.load(pointer, 8)
    bits, even = size * 8, (size + 1) // 2 * 16
    value = out.resize(out.load(pointer, bits), bits, even)
    reversed_value = swapped(assembly, out, value, even)
    return out.resize(out.op("lshr", even, reversed_value, even - bits), even, bits) if even > bits else reversed_value


def store_big(assembly: LlvmModule, out: LlvmFunction, value: Register, pointer: Register, size: int) -> None:
    """Store a number big-endian."""
    bits, even = size * 8, (size + 1) // 2 * 16
    if size > 1:
        wide = out.resize(value, bits, even)
        if even > bits:
            wide = out.op("shl", even, wide, even - bits)
        value = out.resize(swapped(assembly, out, wide, even), even, bits)
    out.store(value, pointer, bits)


def swapped(assembly: LlvmModule, out: LlvmFunction, value: Register, bits: int) -> Register:
    """The value with its bytes in the opposite order."""
    name = assembly.declare(f"llvm.bswap.i{bits}", f"i{bits} {{}}(i{bits})")
    return out.value(f"call i{bits} @{name}(i{bits} {value})")


def fields_of(out: LlvmFunction, value: Register, group: AdjacentFields) -> Iterator[Register]:
    """The fields of a group's number, each as wide as it is in memory."""
    low = bits = group.size * 8
    for width in group.widths:
        low -= width
        field = out.resize(out.op("lshr", bits, value, low) if low else value, bits, width)
        yield out.resize(field, width, storage(width))


def number_of(out: LlvmFunction, values: Sequence[Register], group: AdjacentFields) -> Register:
    """A group's number, of fields as they are in memory."""
    low = bits = group.size * 8
    number: Register | None = None
    for value, width in zip(values, group.widths, strict=True):
        low -= width
        wide = out.resize(value, storage(width), width) if storage(width) > bits else value
        wide = out.resize(wide, width if storage(width) > bits else storage(width), bits)
        wide = out.op("shl", bits, wide, low) if low else wide
        number = wide if number is None else out.op("or", bits, number, wide)
    assert number is not None
    return number


def reverse_limbs(out: LlvmFunction, to: Register, of: Register, count: int) -> None:
    """Limbs in the opposite order, each with its bytes in the opposite order: from the frame's to memory's, and back."""
    out.line(f"call void @reverse_limbs(ptr {to}, ptr {of}, i64 {count})")


def reverse_bytes(out: LlvmFunction, to: Register, of: Register, count: Register | int) -> None:
    """The same with any number of bytes."""
    out.line(f"call void @reverse_bytes(ptr {to}, ptr {of}, i64 {count})")


def write_reversals(assembly: LlvmModule) -> None:
    """The two functions of that."""
    for name, bits in (("reverse_limbs", 64), ("reverse_bytes", 8)):
        # Not inline: LLVM takes its time to make vectors of each loop.
        parameters = "ptr noalias %to, ptr noalias %of, i64 %count"
        out = assembly.function(name, parameters, "void", attributes="noinline")
        last = out.op("sub", 64, "%count", 1)
        with out.each("%count") as index:
            other = out.op("sub", 64, last, index)
            value = out.load(out.value(f"getelementptr i{bits}, ptr %of, i64 {other}"), bits)
            value = swapped(assembly, out, value, bits) if bits > 8 else value
            out.store(value, out.value(f"getelementptr i{bits}, ptr %to, i64 {index}"), bits)
        out.give("void")


_BITWISE = {"&": "and", "|": "or", "^": "xor"}
_CARRIES = {"+": "uadd", "-": "usub", "neg": "usub"}
_UNROLLED = 8


def streams(expression: Expression) -> bool:
    """True if a wide expression can be computed limb by limb."""
    if _is_scalar(expression):
        return True
    if isinstance(expression, Variable | Parameter | Constant):
        return not expression.signed
    if not isinstance(expression, Operation):
        return False
    op, operands = expression.op, expression.operands
    if op in _BITWISE or op in ("+", "-", "~", "neg"):
        return all(map(streams, operands))
    if op in ("<<", ">>"):
        return _is_scalar(operands[1]) and streams(operands[0]) and not operands[0].signed
    return False


def _is_scalar(expression: Expression) -> bool:
    return expression.bits <= 64 and not expression.signed


@dataclass
class Form:
    """The common part of assignments of the same form: its operations by number, operands before what uses
    them, and the places and numbers that each assignment brings."""

    lines: list[str] = field(default_factory=list)
    nodes: list[Expression] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    places: list[Variable | Parameter] = field(default_factory=list)
    scalars: list[Expression] = field(default_factory=list)

    def add(self, expression: Expression) -> int:
        if id(expression) in self.numbers:
            return self.numbers[id(expression)]
        if isinstance(expression, Constant):
            text = f"constant {expression.value}"
        elif _is_scalar(expression):
            self.scalars.append(expression)
            text = "scalar"
        elif isinstance(expression, Variable | Parameter):
            self.places.append(expression)
            text = f"place {expression.bits}"
        else:
            assert isinstance(expression, Operation)
            operands = [self.add(each) for each in expression.operands]
            text = f"{expression.op} {operands} {expression.bits}"
        number = self.numbers[id(expression)] = len(self.nodes)
        self.nodes.append(expression)
        self.lines.append(text)
        return number


class WideFunctions:
    """The functions of a module, by form."""

    def __init__(self, assembly: LlvmModule) -> None:
        self._assembly = assembly
        self._names: dict[str, str] = {}

    def assign(self, to: Register, bits: int, value: Expression, expressions: Expressions) -> None:
        """Write a call that stores an expression that `streams` at ``to``."""
        form = Form()
        form.add(value)
        key = f"{bits}: {form.lines}"
        if key not in self._names:
            self._names[key] = f"wide{len(self._names)}"
            _Writer(self._assembly, self._names[key], form, bits).write()
        arguments = [f"ptr {to}"]
        arguments += [f"ptr {expressions.place(each)}" for each in form.places]
        arguments += [f"i64 {expressions.emit(each, 64)}" for each in form.scalars]
        expressions.out.line(f"call void @{self._names[key]}({', '.join(arguments)})")


class _Writer:
    """Writes one function."""

    def __init__(self, assembly: LlvmModule, name: str, form: Form, bits: int) -> None:
        self._assembly = assembly
        self._form = form
        self._bits = bits
        parameters = ["ptr %to"]
        parameters += [f"ptr %p{at}" for at in range(len(form.places))]
        parameters += [f"i64 %n{at}" for at in range(len(form.scalars))]
        self._pointers = {id(each): f"%p{at}" for at, each in enumerate(form.places)}
        self._scalars = {id(each): f"%n{at}" for at, each in enumerate(form.scalars)}
        self._out = assembly.function(name, ", ".join(parameters), "void", attributes="noinline")
        self._cells: dict[int, Register] = {}
        self._shifted: dict[int, tuple[Register, int, Register]] = {}  # (memory, limbs, distance in bits)

    def write(self) -> None:
        operations = [each for each in self._form.nodes if isinstance(each, Operation) and not _is_scalar(each)]
        shifts = [each for each in operations if each.op in ("<<", ">>")]
        spaces = {id(each): self._out.space(24 * self._limbs_of(each)) for each in shifts}
        carried = [each for each in operations if each.op in _CARRIES]
        self._cells = {id(each): self._out.space(1) for each in carried}  # LLVM makes registers of them
        for each in shifts:  # operands come before what uses them
            self._materialize(each, spaces[id(each)])
        root = self._form.nodes[-1]
        self._loop(root, "%to", limb_count(self._bits))
        clear_above(self._out, "%to", self._bits)
        self._out.give("void")

    def _limbs_of(self, shift: Operation) -> int:
        """The limbs of what is shifted that can matter."""
        operand = shift.operands[0]
        most = limb_count(operand.bits)
        return most if shift.op == ">>" else min(most, limb_count(max(self._bits, *self._needed())))

    def _needed(self) -> Sequence[int]:
        """Bits of what is shifted to the right, which is needed whole."""
        return [
            each.operands[0].bits
            for each in self._form.nodes
            if isinstance(each, Operation) and each.op == ">>"
        ] or [0]  # fmt: skip

    def _materialize(self, shift: Operation, space: Register) -> None:
        """The number that is shifted, with zeros as wide as itself before and behind it."""
        limbs, out = self._limbs_of(shift), self._out
        out.clear(space, 24 * limbs)
        self._loop(shift.operands[0], out.offset(space, 8 * limbs), limbs)
        self._shifted[id(shift)] = space, limbs, self._scalar(shift.operands[1])

    def _scalar(self, expression: Expression) -> Register:
        return str(expression.value) if isinstance(expression, Constant) else self._scalars[id(expression)]

    def _loop(self, root: Expression, to: Register, limbs: int) -> None:
        """Compute an expression limb by limb into memory."""
        out = self._out
        order = _order(root, self._shifted)
        for each in order:
            if id(each) in self._cells:
                out.line(f"store i1 false, ptr {self._cells[id(each)]}")
        # Carries go from limb to limb in the processor's flag only where there is no loop between.
        carries = any(id(each) in self._cells for each in order)
        step = _UNROLLED if limbs % _UNROLLED == 0 and carries else 1
        with out.each(str(limbs // step)) as turn:
            first = out.op("mul", 64, turn, step) if step > 1 else turn
            after = out.label()
            if carries and step > 1 and self._is_vector(order, limbs):
                self._vector(order, limbs, first, to, after)
            for more in range(step):
                index = out.op("add", 64, first, more) if step > 1 else turn
                values: dict[int, Register] = {}
                for each in order:
                    values[id(each)] = self._limb(each, index, limbs, values)
                out.store(values[id(root)], out.value(f"getelementptr i64, ptr {to}, i64 {index}"), 64, 8)
            out.begin(after)

    def _is_vector(self, order: Sequence[Expression], limbs: int) -> bool:
        """True if some limbs of all nodes can be computed side by side."""
        return not any(id(each) in self._shifted for each in order) and all(
            limb_count(each.bits) >= limbs for each in order if id(each) in self._pointers
        )

    def _vector(self, order: Sequence[Expression], limbs: int, first: Register, to: Register, after: str) -> None:
        """Compute some limbs side by side, store them and jump, unless there is a carry from, in or behind them: then the limbs
        are computed one after the other. Carries between limbs are rare where numbers are spread evenly, and impossible in
        sums of lanes that leave room for them."""
        out, vector = self._out, f"<{_UNROLLED} x i64>"
        values: dict[int, Register] = {}
        carries: Register | None = None
        for node in order:
            values[id(node)] = self._lanes(node, limbs, first, vector, values)
            if id(node) in self._cells:
                assert isinstance(node, Operation)
                operands = ["zeroinitializer"] * (node.op == "neg") + [values[id(each)] for each in node.operands]
                more, less = (values[id(node)], operands[0]) if node.op == "+" else (operands[0], operands[1])
                carry = out.value(f"icmp ult {vector} {more}, {less}")
                carries = carry if carries is None else out.value(f"or <{_UNROLLED} x i1> {carries}, {carry}")
        found = out.compare("ne", _UNROLLED, out.value(f"bitcast <{_UNROLLED} x i1> {carries} to i{_UNROLLED}"), 0)
        for node in order:
            if id(node) in self._cells:
                found = out.op("or", 1, found, out.value(f"load i1, ptr {self._cells[id(node)]}"))
        with out.unless(found):
            place = out.value(f"getelementptr i64, ptr {to}, i64 {first}")
            out.line(f"store {vector} {values[id(order[-1])]}, ptr {place}, align 8")
            out.jump(after)

    def _lanes(self, node: Expression, limbs: int, first: Register, vector: str, values: dict[int, Register]) -> Register:
        """Some limbs of a node, without regard to carries."""
        out = self._out
        if isinstance(node, Constant):
            table = self._assembly.limbs(node.value, limbs)
            return out.value(f"load {vector}, ptr {out.value(f'getelementptr i64, ptr {table}, i64 {first}')}, align 8")
        if id(node) in self._scalars:
            limb = out.choose(out.compare("eq", 64, first, 0), 64, self._scalars[id(node)], 0)
            return out.value(f"insertelement {vector} zeroinitializer, i64 {limb}, i64 0")
        if id(node) in self._pointers:
            place = out.value(f"getelementptr i64, ptr {self._pointers[id(node)]}, i64 {first}")
            return out.value(f"load {vector}, ptr {place}, align 8")
        assert isinstance(node, Operation)
        operands = [values[id(each)] for each in node.operands]
        if node.op == "~":
            ones = ", ".join(["i64 -1"] * _UNROLLED)
            return out.value(f"xor {vector} {operands[0]}, <{ones}>")
        if node.op == "neg":
            return out.value(f"sub {vector} zeroinitializer, {operands[0]}")
        name = {**_BITWISE, "+": "add", "-": "sub"}[node.op]
        return out.value(f"{name} {vector} {operands[0]}, {operands[1]}")

    def _limb(self, node: Expression, index: Register, limbs: int, values: dict[int, Register]) -> Register:
        out = self._out
        if isinstance(node, Constant):
            return self._constant_limb(node, index, limbs)
        if id(node) in self._scalars:
            return out.choose(out.compare("eq", 64, index, 0), 64, self._scalars[id(node)], 0)
        if id(node) in self._pointers:
            return self._place_limb(self._pointers[id(node)], limb_count(node.bits), index, limbs)
        assert isinstance(node, Operation)
        if id(node) in self._shifted:
            return self._shifted_limb(node, index)
        operands = [values[id(each)] for each in node.operands]
        if node.op == "~":
            return out.op("xor", 64, operands[0], -1)
        if node.op in _BITWISE:
            return out.op(_BITWISE[node.op], 64, operands[0], operands[1])
        left, right = operands if node.op != "neg" else ("0", operands[0])
        return _with_carry(self._assembly, out, _CARRIES[node.op], left, right, self._cells[id(node)])

    def _constant_limb(self, node: Constant, index: Register, limbs: int) -> Register:
        words = {node.value >> 64 * at & (1 << 64) - 1 for at in range(limbs)}
        if len(words) == 1:
            return str(words.pop())
        table = self._assembly.limbs(node.value, limbs)
        return self._out.load(self._out.value(f"getelementptr i64, ptr {table}, i64 {index}"), 64, 8)

    def _place_limb(self, pointer: Register, has: int, index: Register, limbs: int) -> Register:
        """A limb from memory, 0 behind the last."""
        out = self._out
        if has >= limbs:
            return out.load(out.value(f"getelementptr i64, ptr {pointer}, i64 {index}"), 64, 8)
        inside = out.compare("ult", 64, index, has)
        near = out.choose(inside, 64, index, 0)
        value = out.load(out.value(f"getelementptr i64, ptr {pointer}, i64 {near}"), 64, 8)
        return out.choose(inside, 64, value, 0)

    def _shifted_limb(self, node: Operation, index: Register) -> Register:
        """A limb of a shifted number, made from two neighboring limbs of the number, which has as many limbs of zeros before and
        behind it."""
        out = self._out
        space, limbs, distance = self._shifted[id(node)]
        whole, rest = out.op("lshr", 64, distance, 6), out.op("and", 64, distance, 63)
        start, last = out.op("add", 64, index, limbs), 3 * limbs - 1
        at = out.op("add" if node.op == ">>" else "sub", 64, start, whole)
        beside = out.op("add", 64, at, 1 if node.op == ">>" else -1)
        here, there = (self._limb_at(space, out, each, last) for each in (at, beside))
        high, low, name = (there, here, "fshr") if node.op == ">>" else (here, there, "fshl")
        self._assembly.declare(f"llvm.{name}.i64", "i64 {}(i64, i64, i64)")
        return out.value(f"call i64 @llvm.{name}.i64(i64 {high}, i64 {low}, i64 {rest})")

    @staticmethod
    def _limb_at(space: Register, out: LlvmFunction, at: Register, last: int) -> Register:
        """A limb of the space; outside, also where ``at`` would be negative, all are 0."""
        inside = out.compare("ule", 64, at, last)
        near = out.choose(inside, 64, at, 0)
        value = out.load(out.value(f"getelementptr i64, ptr {space}, i64 {near}"), 64, 8)
        return out.choose(inside, 64, value, 0)


def _order(root: Expression, known: dict[int, tuple[Register, int, Register]]) -> list[Expression]:
    """The nodes that a loop computes, operands first; what is in memory already needs none of its operands."""
    order: list[Expression] = []
    seen: set[int] = set()

    def visit(node: Expression) -> None:
        if id(node) in seen:
            return
        seen.add(id(node))
        if id(node) not in known and not _is_scalar(node):
            for each in operands_of(node):
                visit(each)
        order.append(node)

    visit(root)
    return order


def _with_carry(assembly: LlvmModule, out: LlvmFunction, name: str, left: Register, right: Register, cell: Register) -> Register:
    """A limb of a sum or difference; LLVM makes add-with-carry of it."""
    function = assembly.declare(f"llvm.{name}.with.overflow.i64", "{{ i64, i1 }} {}(i64, i64)")
    call = f"call {{ i64, i1 }} @{function}"
    first = out.value(f"{call}(i64 {left}, i64 {right})")
    value, over = (out.value(f"extractvalue {{ i64, i1 }} {first}, {at}") for at in (0, 1))
    carry = out.resize(out.value(f"load i1, ptr {cell}"), 1, 64)
    second = out.value(f"{call}(i64 {value}, i64 {carry})")
    value, again = (out.value(f"extractvalue {{ i64, i1 }} {second}, {at}") for at in (0, 1))
    out.line(f"store i1 {out.op('or', 1, over, again)}, ptr {cell}")
    return value
