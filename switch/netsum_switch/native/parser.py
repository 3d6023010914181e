# SPDX-License-Identifier: MIT
"""The parser as one function: a block a state. Every read of the frame is checked against its length first."""

from __future__ import annotations

from netsum_switch.errors import JsonError
from netsum_switch.lowering.control import has_loop
from netsum_switch.lowering.statements import Advance, Extract, Peek, State, Statement, Verify
from netsum_switch.lowering.values import Expression
from netsum_switch.native import wide_integers as wire
from netsum_switch.native.layout import WIDEST, Head, storage
from netsum_switch.native.llvm_builder import Register
from netsum_switch.native.module import Module
from netsum_switch.native.statements import StatementWriter

_MOST_STATES = 1 << 16  # that one packet passes through


class ParserWriter(StatementWriter):
    """Writes the function ``parse``."""

    def __init__(self, module: Module) -> None:
        super().__init__(module, "parse", attributes="noinline")
        self._lowered = module.lowered
        self._labels = {name: self.out.label() for name in self._lowered.states}
        self._end = self.out.label()
        self._errors = self._lowered.errors
        # As in BMv2 the program sees the error behind the parser only, also if that is "no error".
        self._error = self.out.number(str(self._errors["NoError"]))
        self._seven = self._lowered.values.constant(7)

    def write(self) -> None:
        lowered, out = self._lowered, self.out
        graph = {name: [to for _, to in state.next] for name, state in lowered.states.items()}
        loops = has_loop(graph, lowered.first_state)
        passed = out.number() if loops else ""
        out.jump(self._label(lowered.first_state))
        waiting, done = [lowered.first_state], set()
        while waiting:
            name = waiting.pop()
            if name is None or name in done:
                continue
            done.add(name)
            out.begin(self._labels[name])
            if loops:
                too_many = out.compare("ugt", 64, out.increment(passed), _MOST_STATES)
                self.fail(out, too_many, "the parser does not end; the packet is dropped")
            self._state(lowered.states[name])
            waiting += reversed(graph[name])
        out.begin(self._end)
        self.set_number(lowered.variables.standard("parser_error"), out.load(self._error, 64, 8))
        out.give("i32 0")

    def _label(self, name: str | None) -> str:
        return self._end if name is None else self._labels[name]

    def _state(self, state: State) -> None:
        self.expressions.where = f"state {state.name} of the parser"
        self.statements(state.body)
        for condition, to in state.next:
            if condition is None:
                self.out.jump(self._label(to))
                return
            otherwise = self.out.label()
            self.out.branch(self.expressions.condition(condition), self._label(to), otherwise)
            self.out.begin(otherwise)

    def statement(self, statement: Statement) -> None:
        if isinstance(statement, Extract):
            self._extract(statement)
        elif isinstance(statement, Peek):
            self._peek(statement)
        elif isinstance(statement, Advance):
            self._advance(statement.bits)
        elif isinstance(statement, Verify):
            if statement.condition is None:
                self._leave(statement.error)
                return
            with self.out.unless(self.expressions.condition(statement.condition)):
                self._leave(statement.error)
        else:
            super().statement(statement)

    def _leave(self, error: Expression) -> None:
        self.out.store(self.expressions.emit(error, 64), self._error, 64, 8)
        self.out.jump(self._end)

    def _require(self, good: Register, error: str) -> None:
        """End the parser with an error unless a condition holds."""
        with self.out.unless(good):
            self._leave(self._lowered.values.constant(self._errors[error]))

    def _left(self) -> Register:
        """The bytes that are not parsed yet."""
        return self.out.op("sub", 64, self.head(Head.RECEIVED), self.head(Head.AT))

    def _here(self) -> Register:
        """The parser's place in the frame."""
        return self.out.offset(self.out.load_pointer("%s"), self.head(Head.AT))

    def _skip(self, size: Register | int) -> None:
        self.set_head(Head.AT, self.out.op("add", 64, self.head(Head.AT), size))

    def _advance(self, bits: Expression) -> None:
        out = self.out
        whole = out.compare("eq", 8, self.expressions.emit(self._lowered.values.operation("&", bits, self._seven), 8), 0)
        self._require(whole, "ParserInvalidArgument")
        size = out.op("lshr", 64, self.expressions.at_most(bits), 3)
        self._require(out.compare("ule", 64, size, self._left()), "PacketTooShort")
        self._skip(size)

    def _peek(self, statement: Peek) -> None:
        size = (statement.offset + statement.target.bits + 7) // 8
        self._require(self.out.compare("uge", 64, self._left(), size), "PacketTooShort")
        self.take(statement.target, self._here(), statement.offset)

    def _extract(self, statement: Extract) -> None:
        header, out = self._lowered.program.headers[statement.header], self.out
        if statement.length is not None or header.varbit is not None:
            self._extract_varbit(statement)
            return
        self._require(out.compare("uge", 64, self._left(), header.size), "PacketTooShort")
        self._fields(statement.header, 0, len(header.fields), self._here())
        self._skip(header.size)

    def _fields(self, header: str, first: int, end: int, base: Register, at: int = 0) -> None:
        """Extract some of a header's fields, which begin ``at`` bits behind a place in the frame."""
        out, assembly = self.out, self.module.assembly
        fields = self._lowered.variables.fields(header)[first:end]
        for group in wire.groups([each.bits for each in fields], at):
            targets = fields[group.first : group.first + len(group.widths)]
            if group.is_wide:
                self._touch(targets[0])
                wire.reverse_limbs(out, self.expressions.pointer(targets[0]), out.offset(base, group.at // 8), group.size // 8)
            elif group.whole and 8 * group.size <= WIDEST:
                number = wire.load_big(assembly, out, out.offset(base, group.at // 8), group.size)
                for target, value in zip(targets, wire.fields_of(out, number, group), strict=True):
                    held = storage(target.bits)
                    out.store(value, self.expressions.pointer(target), held, min(held, 64) // 8)
                    self._touch(target)
            else:
                self.take(targets[0], base, group.at)

    def _extract_varbit(self, statement: Extract) -> None:
        """``extract`` of two arguments, the second the bits of the varbit field."""
        header, variables, out = self._lowered.program.headers[statement.header], self._lowered.variables, self.out
        bits = variables.length(header.name)
        if bits is None or statement.length is None:
            raise JsonError(f"the program extracts {header.name} with a length that it does not have, or without its own")
        fields = variables.fields(header.name)
        varbit = next(number for number, each in enumerate(header.fields) if each.varbit)
        at = sum(each.bits for each in fields[:varbit])
        given = self.expressions.at_most(statement.length)
        whole = out.compare("eq", 64, out.op("and", 64, given, 7), 0)
        self._require(whole, "ParserInvalidArgument")
        size = out.op("lshr", 64, given, 3)
        total = out.op("add", 64, size, header.size)
        self._require(out.compare("ule", 64, total, self._left()), "PacketTooShort")
        self._require(out.compare("ule", 64, given, fields[varbit].bits), "HeaderTooShort")
        out.store(out.resize(given, 64, 32), self.expressions.pointer(bits), 32, 4)
        start = self._here()
        self._fields(header.name, 0, varbit, start)
        self.take_varbit(fields[varbit], start, at, size)
        self._fields(header.name, varbit + 1, len(fields), out.offset(start, size), at)
        self._skip(total)
