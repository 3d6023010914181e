"""Statements of controls as LLVM instructions. Every access to a register or counter is checked here."""

from __future__ import annotations

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
from netsum_switch.native.layout import WIDE, WIDEST, Context, Head, Record, storage
from netsum_switch.native.llvm_builder import Register
from netsum_switch.native.memory import write_meter
from netsum_switch.native.module import Array, Scope, refuse
from netsum_switch.native.wide_integers import streams
from netsum_switch.pipeline import LOOPS, MAX_TURNS


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
            self.record(Context.OUT, Record.LOG, str(number), statement.values)

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
        if not streams(value):
            return False
        self.module.wide.assign(pointer, bits, value, self.expressions)
        return True

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
        self.fail(self.out, self.out.compare("ugt", 64, self.out.increment(turns), MAX_TURNS), LOOPS)

    def _index(self, index: Expression, array: Array) -> tuple[Register, Register]:
        """(index, whether there is such a cell)."""
        bits = max(64, index.bits)
        value = self.expressions.emit(index, bits)
        inside = self.out.compare("ult", bits, value, array.size)
        return self.out.resize(value, bits, 64), inside

    def _cell(self, array: Array, index: Register) -> Register:
        offset = self.out.op("mul", 64, index, array.stride)
        return self.out.offset(self.pointer(array.word), offset)

    def _read(self, statement: RegisterRead) -> None:
        array, target, out = self.module.image.registers[statement.array], statement.target, self.out
        index, inside = self._index(statement.index, array)
        with out.when(inside):
            cell, to = self._cell(array, index), self.expressions.pointer(target)
            self._touch(target)
            if array.bits == target.bits and target.bits > WIDE:
                out.copy(to, cell, array.stride)
                return
            if max(array.bits, target.bits) > WIDEST:
                raise refuse(f"{statement.array} has {array.bits} bits and {target.name} has {target.bits}")
            value = out.load(cell, array.stride * 8, min(array.stride, 8))
            value = out.resize(value, array.stride * 8, min(array.bits, target.bits))
            held = storage(target.bits)
            out.store(out.resize(value, min(array.bits, target.bits), held), to, held, min(held, 64) // 8)

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
