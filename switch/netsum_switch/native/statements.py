# SPDX-License-Identifier: MIT
"""Statements of controls as LLVM instructions. Every access to a register or counter is checked here."""

from __future__ import annotations

from netsum_switch.externs import GREEN, RED, YELLOW
from netsum_switch.lowering.statements import (
    Assert,
    Count,
    If,
    Jumping,
    Log,
    MeterRead,
    RegisterRead,
    RegisterWrite,
    Statement,
    Statements,
    Store,
)
from netsum_switch.lowering.values import Constant, Expression, Parameter, Variable
from netsum_switch.native import wide_integers as wire
from netsum_switch.native.big_integers import clear_above
from netsum_switch.native.layout import MAX_TURNS, WIDE, WIDEST, Context, Head, MeterWord, OutputKind, limb_count, storage
from netsum_switch.native.llvm_builder import Register
from netsum_switch.native.module import Array, Module, Scope
from netsum_switch.native.wide_integers import streams

_LOOPS = f"an action loops more than {MAX_TURNS} times; the packet is dropped"
_SECOND = 1_000_000  # microseconds


class StatementWriter(Scope):
    """Writes statements into one function."""

    def statements(self, statements: Statements) -> None:
        for each in statements:
            self.statement(each)

    def statement(self, statement: Statement) -> None:
        if isinstance(statement, Store):
            self.assign(statement.target, statement.value)
        elif isinstance(statement, If):
            self._if(statement)
        elif isinstance(statement, Jumping):
            self._jumping(statement)
        elif isinstance(statement, RegisterRead):
            self._read(statement)
        elif isinstance(statement, RegisterWrite):
            array = self.module.image.registers[statement.array]
            index = self._index(statement.index, array)
            with self.out.when(index[1]):
                self.put(self._cell(array, index[0]), array.bits, statement.value)
        elif isinstance(statement, Count):
            self._count(statement)
        elif isinstance(statement, MeterRead):
            self._meter(statement)
        elif isinstance(statement, Assert):
            wrong = self.out.negation(self.expressions.condition(statement.condition))
            self.fail(self.out, wrong, "an assertion of the program failed; the packet is dropped")
        else:
            assert isinstance(statement, Log), statement
            number = self.module.log(statement.text, statement.values)
            self.record(Context.OUT, OutputKind.LOG, str(number), statement.values)

    def assign(self, target: Variable, value: Expression) -> None:
        """Store a value in a variable."""
        if value is target:
            return
        self._touch(target)
        self.put(self.expressions.pointer(target), target.bits, value)

    def _touch(self, target: Variable) -> None:
        if target.bits > WIDE:
            self.out.store("1", self.out.offset("%s", self.module.layout.flag_of(target)), 8)

    def put(self, pointer: Register, bits: int, value: Expression) -> None:
        """Store a value, cut to this many bits."""
        held, out = storage(bits), self.out
        if bits > WIDE and self._put_wide(pointer, bits, value):
            return
        fits = not value.signed and value.bits <= bits
        inside = held if fits else bits
        out.store(out.resize(self.expressions.emit(value, inside), inside, held), pointer, held, min(held, 64) // 8)

    def _put_wide(self, pointer: Register, bits: int, value: Expression) -> bool:
        """Move bytes, or compute limb by limb, if that can be."""
        out, size = self.out, storage(bits) // 8
        if isinstance(value, Constant):
            number = value.value & (1 << bits) - 1
            if number == 0:
                out.clear(pointer, size)
            else:
                out.copy(pointer, self.module.assembly.limbs(number, size // 8), size)
            return True
        same = value.bits <= bits and storage(value.bits) == storage(bits)
        if isinstance(value, Variable | Parameter) and not value.signed and same:
            out.copy(pointer, self.expressions.place(value), size)
            return True
        if streams(value):
            self.module.wide.assign(pointer, bits, value, self.expressions)
        elif bits > WIDEST:
            out.copy(pointer, self.expressions.big.number(value, size // 8), size)
            clear_above(out, pointer, bits)
        else:
            return False
        return True

    # Bits of a frame, or of what a calculation is over

    def take(self, target: Variable, base: Register, at: int) -> None:
        """Set a variable to bits of big-endian bytes, wherever they begin."""
        self._touch(target)
        out, big, place = self.out, self.expressions.big, self.expressions.pointer(target)
        first, end = at // 8, (at + target.bits + 7) // 8
        covering, low, held = end - first, 8 * end - at - target.bits, storage(target.bits)
        if 8 * covering <= WIDEST:
            value = wire.load_big(self.module.assembly, out, out.offset(base, first), covering)
            value = out.resize(out.op("lshr", 8 * covering, value, low), 8 * covering, target.bits)
            out.store(out.resize(value, target.bits, held), place, held, min(held, 64) // 8)
            return
        number = self._reversed(out.offset(base, first), covering, limb_count(8 * covering))
        out.copy(place, big.shift("right", number, limb_count(8 * covering), low), held // 8)
        clear_above(out, place, target.bits)

    def take_varbit(self, target: Variable, base: Register, at: int, size: Register) -> None:
        """Set a varbit field to whole bytes, as many as fit it."""
        self._touch(target)
        out, place, held = self.out, self.expressions.pointer(target), storage(target.bits)
        start = out.offset(base, at // 8)
        out.clear(place, held // 8)
        if at % 8 == 0:
            wire.reverse_bytes(out, place, start, size)
            return
        limbs = limb_count(target.bits + 8)
        number = self._reversed(start, out.op("add", 64, size, 1), limbs)
        out.copy(place, self.expressions.big.shift("right", number, limbs, 8 - at % 8), size)

    def _reversed(self, of: Register, size: Register | int, limbs: int) -> Register:
        """A number of big-endian bytes."""
        number = self.out.space(8 * limbs)
        self.out.clear(number, 8 * limbs)
        wire.reverse_bytes(self.out, number, of, size)
        return number

    def append(self, data: Register, at: Register, value: Expression, bits: int, aligned: bool) -> None:
        """Write a value's bits, the highest first, behind `at` bits of big-endian bytes."""
        out, expressions = self.out, self.expressions
        size, limbs = (bits + 7) // 8, limb_count(bits + 7)
        to = out.offset(data, out.op("lshr", 64, at, 3)) if aligned else out.space(size)
        if bits > WIDE:
            if isinstance(value, Variable) and bits % 8 == 0:
                number = expressions.pointer(value)
            else:
                number = expressions.big.number(value, limbs)
            if bits % 8:
                number = expressions.big.shift("left", number, limbs, -bits % 8)
            if aligned and bits % 64 == 0:
                wire.reverse_limbs(out, to, number, bits // 64)
            else:
                wire.reverse_bytes(out, to, number, size)
        else:
            number = out.resize(expressions.emit(value, bits), bits, 8 * size)
            if bits % 8:
                number = out.op("shl", 8 * size, number, -bits % 8)
            wire.store_big(self.module.assembly, out, number, to, size)
        if not aligned:
            out.line(f"call void @append_bits(ptr {data}, i64 {at}, ptr {to}, i64 {size})")

    def append_varbit(self, data: Register, at: Register, value: Variable, size: Register, aligned: bool) -> None:
        """The same with the whole bytes of a varbit field."""
        out = self.out
        to = out.offset(data, out.op("lshr", 64, at, 3)) if aligned else out.space(storage(value.bits) // 8)
        wire.reverse_bytes(out, to, self.expressions.pointer(value), size)
        if not aligned:
            out.line(f"call void @append_bits(ptr {data}, i64 {at}, ptr {to}, i64 {size})")

    # Control flow and objects

    def _if(self, statement: If) -> None:
        out = self.out
        yes, no, after = out.label(), out.label(), out.label()
        out.branch(self.expressions.condition(statement.condition), yes, no)
        out.begin(yes)
        self.statements(statement.then)
        out.jump(after)
        out.begin(no)
        self.statements(statement.otherwise)
        out.begin(after)

    def _jumping(self, statement: Jumping) -> None:
        out = self.out
        labels = [out.label() for _ in range(len(statement.steps) + 1)]
        loops = any(to <= at for at, step in enumerate(statement.steps) for to in step[2:])
        turns = out.number() if loops else ""
        for at, (body, condition, yes, no) in enumerate(statement.steps):
            out.begin(labels[at])
            self.statements(body)
            back = {to: out.label() for to in (yes, no) if to <= at}
            if condition is None:
                out.jump(back.get(yes, labels[yes]))
            else:
                to_yes, to_no = (back.get(to, labels[to]) for to in (yes, no))
                out.branch(self.expressions.condition(condition), to_yes, to_no)
            for to, label in back.items():
                out.begin(label)
                self._turn(turns)
                out.jump(labels[to])
        out.begin(labels[-1])

    def _turn(self, turns: Register) -> None:
        """Count one more turn of a loop."""
        self.fail(self.out, self.out.compare("ugt", 64, self.out.increment(turns), MAX_TURNS), _LOOPS)

    def _index(self, index: Expression, array: Array) -> tuple[Register, Register]:
        """(index, whether there is such a cell)."""
        value = self.expressions.at_most(index)
        return value, self.out.compare("ult", 64, value, array.size)

    def _cell(self, array: Array, index: Register) -> Register:
        offset = self.out.op("mul", 64, index, array.stride)
        return self.out.offset(self.pointer(array.word), offset)

    def _read(self, statement: RegisterRead) -> None:
        array, target, out = self.module.image.registers[statement.array], statement.target, self.out
        index, inside = self._index(statement.index, array)
        with out.when(inside):
            cell, to = self._cell(array, index), self.expressions.pointer(target)
            self._touch(target)
            bits, held = min(array.bits, target.bits), storage(target.bits)
            if bits > WIDE:
                out.clear(to, held // 8)
                out.copy(to, cell, storage(bits) // 8)
                clear_above(out, to, bits)
                return
            value = out.resize(out.load(cell, storage(bits), min(array.stride, 8)), storage(bits), bits)
            out.store(out.resize(value, bits, held), to, held, min(held, 64) // 8)

    def _meter(self, statement: MeterRead) -> None:
        array, out = self.module.image.meters[statement.array], self.out
        index, inside = self._index(statement.index, array)
        with out.when(inside):
            packets = self.module.lowered.program.meters[statement.array]["type"] == "packets"
            wanted = "1" if packets else self.head(Head.RECEIVED)
            now = out.value(f"call i64 {self.pointer(Context.CLOCK)}(ptr %c)")
            arguments = f"ptr {self._cell(array, index)}, i64 {wanted}, i64 {now}"
            self.set_number(statement.target, out.value(f"call i64 @{write_meter(self.module)}({arguments})"))

    def set_number(self, target: Variable, value: Register) -> None:
        """Set a variable to an i64."""
        self._touch(target)
        held = storage(target.bits)
        cut = self.out.resize(value, 64, target.bits) if target.bits < 64 else value
        self.out.store(self.out.resize(cut, min(target.bits, 64), held), self.expressions.pointer(target), held)

    def _count(self, statement: Count) -> None:
        array = self.module.image.counters[statement.array]
        index, inside = self._index(statement.index, array)
        with self.out.when(inside):
            self.count(self._cell(array, index))

    def count(self, cell: Register) -> None:
        """Add the packet to a counter."""
        out = self.out
        for offset, more in ((0, "1"), (8, self.head(Head.RECEIVED))):
            at = out.offset(cell, offset)
            out.store(out.op("add", 64, out.load(at, 64, 8), more), at, 64, 8)


def write_meter(module: Module) -> str:
    """``execute_meter``: the color of a packet that needs this many tokens, as in BMv2's meters.cpp (after RFC 2698)."""
    name = "execute_meter"
    if not module.assembly.once(name):
        return name
    out = module.assembly.function(name, "ptr %cell, i64 %wanted, i64 %now", "i64", attributes="noinline")
    with out.when(out.compare("eq", 64, out.load("%cell", 64, 8), 0)):
        out.give(f"i64 {GREEN}")
    seconds, rest = (out.op(op, 64, "%now", _SECOND) for op in ("udiv", "urem"))
    for number, color in enumerate((RED, YELLOW)):
        bucket = out.offset("%cell", 8 * (MeterWord.BUCKETS + number * MeterWord.BUCKET_WORDS))
        rate, burst, tokens, before = (out.load(out.offset(bucket, 8 * at), 64, 8) for at in range(4))
        part = out.op("udiv", 64, out.op("mul", 64, rest, rate), _SECOND)
        earned = out.op("add", 64, out.op("mul", 64, seconds, rate), part)
        new, room = out.op("sub", 64, earned, before), out.op("sub", 64, burst, tokens)
        more = out.choose(out.compare("ult", 64, new, room), 64, new, room)
        tokens = out.op("add", 64, tokens, more)
        out.store(earned, out.offset(bucket, 24), 64, 8)
        enough = out.compare("uge", 64, tokens, "%wanted")
        left = out.choose(enough, 64, out.op("sub", 64, tokens, "%wanted"), tokens)
        out.store(left, out.offset(bucket, 16), 64, 8)
        with out.unless(enough):
            out.give(f"i64 {color}")
    out.give(f"i64 {GREEN}")
    return name
