"""The parser as one function: a block a state. Every read of the frame is checked against its length first."""

from __future__ import annotations

from netsum_switch.lowering.control import has_loop
from netsum_switch.lowering.statements import Advance, Extract, Peek, State, Statement, Verify
from netsum_switch.lowering.values import Expression
from netsum_switch.native import wide_integers as wire
from netsum_switch.native.layout import WIDEST, Head, storage
from netsum_switch.native.llvm_builder import Register
from netsum_switch.native.module import Module, refuse
from netsum_switch.native.statements import StatementWriter

_MOST_STATES = 1 << 16  # that one packet passes through


class ParserWriter(StatementWriter):
    """Writes the function ``parse``."""

    def __init__(self, module: Module) -> None:
        super().__init__(module, "parse", attributes="noinline")
        self._lowered = module.lowered
        self._labels = {name: self.out.label() for name in self._lowered.states}
        self._end = self.out.label()
        self._error = self.expressions.pointer(self._lowered.variables.standard("parser_error"))
        self._errors = self._lowered.errors

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
        target = self._lowered.variables.standard("parser_error")
        self.put(self._error, target.bits, error)
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
        wide = max(64, bits.bits)
        value = self.expressions.emit(bits, wide)
        whole = self.out.compare("eq", wide, self.out.op("and", wide, value, 7), 0)
        self._require(whole, "ParserInvalidArgument")
        size = self.out.op("lshr", wide, value, 3)
        left = self.out.resize(self._left(), 64, wide)
        self._require(self.out.compare("ule", wide, size, left), "PacketTooShort")
        self._skip(self.out.resize(size, wide, 64))

    def _peek(self, statement: Peek) -> None:
        out, target = self.out, statement.target
        size = (statement.offset + target.bits + 7) // 8
        self._require(out.compare("uge", 64, self._left(), size), "PacketTooShort")
        first = statement.offset // 8
        covering = size - first
        if 8 * covering > WIDEST:
            raise refuse(f"the program looks {target.bits} bits ahead")
        value = wire.load_big(self.module.assembly, out, out.offset(self._here(), first), covering)
        value = out.op("lshr", 8 * covering, value, 8 * size - statement.offset - target.bits)
        held = storage(target.bits)
        value = out.resize(out.resize(value, 8 * covering, target.bits), target.bits, held)
        out.store(value, self.expressions.pointer(target), held)

    def _extract(self, statement: Extract) -> None:
        header, out = self._lowered.program.headers[statement.header], self.out
        if statement.length is not None or header.varbit is not None:
            self._extract_varbit(statement)
            return
        self._require(out.compare("uge", 64, self._left(), header.size), "PacketTooShort")
        self._fields(statement.header, 0, len(header.fields), self._here())
        self._skip(header.size)

    def _fields(self, header: str, first: int, end: int, at: Register) -> None:
        """Extract some of a header's fields."""
        out, assembly = self.out, self.module.assembly
        fields = self._lowered.variables.fields(header)[first:end]
        for group in wire.groups([each.bits for each in fields], header):
            pointer = out.offset(at, group.at)
            targets = fields[group.first : group.first + len(group.widths)]
            if wire.is_wide(group):
                wire.reverse_limbs(out, self.expressions.pointer(targets[0]), pointer, group.size // 8)
            else:
                number = wire.load_big(assembly, out, pointer, group.size)
                for target, value in zip(targets, wire.fields_of(out, number, group), strict=True):
                    held = storage(target.bits)
                    out.store(value, self.expressions.pointer(target), held, min(held, 64) // 8)
            for target in targets:
                self._touch(target)

    def _extract_varbit(self, statement: Extract) -> None:
        """``extract`` of two arguments, the second the bits of the varbit field."""
        header, variables, out = self._lowered.program.headers[statement.header], self._lowered.variables, self.out
        bits = variables.length(header.name)
        if bits is None or statement.length is None:
            raise refuse(f"the program extracts {header.name} with a length that it does not have, or without its own")
        fields = variables.fields(header.name)
        at = next(number for number, each in enumerate(header.fields) if each.varbit)
        before = sum(each.bits for each in fields[:at])
        if before % 8:
            raise refuse(f"the varbit field of {header.name} does not begin with a whole byte")
        wide = max(64, statement.length.bits)
        given = self.expressions.emit(statement.length, wide)
        whole = out.compare("eq", wide, out.op("and", wide, given, 7), 0)
        self._require(whole, "ParserInvalidArgument")
        size = out.op("lshr", wide, given, 3)
        total = out.op("add", wide, size, header.size)
        self._require(out.compare("ule", wide, total, out.resize(self._left(), 64, wide)), "PacketTooShort")
        self._require(out.compare("ule", wide, given, fields[at].bits), "HeaderTooShort")
        size = out.resize(size, wide, 64)
        out.store(out.resize(given, wide, 32), self.expressions.pointer(bits), 32, 4)
        place, start = self.expressions.pointer(fields[at]), self._here()
        self._fields(header.name, 0, at, start)
        out.clear(place, storage(fields[at].bits) // 8)
        wire.reverse_bytes(out, place, out.offset(start, before // 8), size)
        self._touch(fields[at])
        behind = out.offset(out.offset(start, before // 8), size)
        self._fields(header.name, at + 1, len(fields), behind)
        self._skip(out.resize(total, wide, 64))
