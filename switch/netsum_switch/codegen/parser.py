"""The parser: states as nested ``if``s, headers as slices of the frame.

It is written inside a loop that runs once. An error sets ``parser_error`` and leaves the loop: like BMv2, the switch goes on
to the ingress control with what was parsed so far.
"""

from __future__ import annotations

from netsum_switch.codegen.deparser import header_bytes
from netsum_switch.codegen.expressions import Expressions, cut
from netsum_switch.codegen.source import Source, bits_var, dirty_var, raw_var
from netsum_switch.codegen.statements import StatementWriter
from netsum_switch.lowering.control import Branch, NodeName, has_loop, write_structured
from netsum_switch.lowering.program import Lowered
from netsum_switch.lowering.statements import Advance, Extract, Peek, State, Statement, Verify
from netsum_switch.lowering.values import Constant, Expression

_ERROR = "standard_metadata__parser_error"

# Headers of whole-byte fields that are larger than this are sliced field by field; smaller ones are shifted out of one number.
_SHIFT_LIMIT = 64


class ParserWriter(StatementWriter):
    """Writes the program's parser. Variables: ``frame``, ``size`` (its length) and ``at`` (the position)."""

    def __init__(self, lowered: Lowered, expressions: Expressions) -> None:
        super().__init__(lowered, expressions)
        self._lowered = lowered

    def write(self, source: Source) -> None:
        """Write all states and the loop around them.

        States without loops between them are nested; with loops (header stacks), a Python loop goes from state to state.
        """
        states, entry = self._lowered.states, self._lowered.first_state
        graph: dict[str, list[NodeName]] = {name: [to for _, to in state.next] for name, state in states.items()}
        if has_loop(graph, entry):
            self._write_automaton(source, entry)
            return

        def emit(node: str, join: NodeName, branch: Branch) -> None:
            self._state(source, states[node], join, branch)

        with source.block("while True:"):
            write_structured(graph, entry, emit, "the parser")
            source.line("break")

    def _write_automaton(self, source: Source, entry: NodeName) -> None:
        numbers = {name: number for number, name in enumerate(self._lowered.states)}
        if entry is None:
            return

        def branch(first: NodeName, _join: NodeName) -> None:
            source.line("break" if first is None else f"state = {numbers[first]}; continue")

        source.line(f"state = {numbers[entry]}")
        with source.block("while True:"):
            for name, number in numbers.items():
                with source.block(f"if state == {number}:"):
                    self._state(source, self._lowered.states[name], "", branch)
                    source.line("break")

    def _state(self, source: Source, state: State, join: NodeName, branch: Branch) -> None:
        self.statements(source, state.body)
        head = "if"
        for condition, to in state.next:
            if condition is not None:
                with source.block(f"{head} {self.expressions.condition(condition)}:"):
                    if to != join:
                        branch(to, join)
                head = "elif"
            elif to != join and head == "if":
                branch(to, join)
            elif to != join:
                with source.block("else:"):
                    branch(to, join)

    def statement(self, source: Source, statement: Statement, dirty: frozenset[str]) -> None:
        if isinstance(statement, Extract):
            if statement.length is None:
                self._extract(source, statement.header)
            else:
                self._extract_varbit(source, statement.header, statement.length)
        elif isinstance(statement, Peek):
            width = statement.target.bits
            end = (statement.offset + width + 7) // 8
            source.line(f"if size < at + {end}: {self._leave('PacketTooShort')}")
            ahead = f"from_bytes(frame[at:at + {end}], 'big') >> {end * 8 - statement.offset - width}"
            source.line(f"{self.expressions.name(statement.target)} = {cut(statement.target, ahead)}")
        elif isinstance(statement, Advance):
            self._advance(source, statement.bits)
        elif isinstance(statement, Verify):
            leave = f"{_ERROR} = {self.expressions.value(statement.error)}; break"
            unless = statement.condition
            source.line(leave if unless is None else f"if not {self.expressions.condition(unless)}: {leave}")
        else:
            super().statement(source, statement, dirty)

    def _leave(self, error: str) -> str:
        return f"{_ERROR} = {self._lowered.errors[error]}; break"

    def _advance(self, source: Source, bits: Expression) -> None:
        skipped = str(bits.value >> 3) if isinstance(bits, Constant) and not bits.value & 7 else "skipped >> 3"
        if skipped == "skipped >> 3":
            source.line(f"skipped = {self.expressions.value(bits)}")
            source.line(f"if skipped & 7: {self._leave('ParserInvalidArgument')}")
        source.line(f"if size - at < {skipped}: {self._leave('PacketTooShort')}")
        source.line(f"at += {skipped}")

    def _extract(self, source: Source, name: str) -> None:
        header, raw = self._lowered.program.headers[name], raw_var(name)
        fields = self._lowered.variables.fields(name)
        size = header.size
        source.line(f"if size < at + {size}: {self._leave('PacketTooShort')}")
        source.line(f"{raw} = frame[at:at + {size}]; at += {size}")
        source.line(f"{dirty_var(name)} = 0")
        if size > _SHIFT_LIMIT and all(field.bits % 8 == 0 and not field.signed for field in fields):
            start = 0
            for field in fields:
                end = start + field.bits // 8
                source.line(f"{self.expressions.name(field)} = from_bytes({raw}[{start}:{end}], 'big')")
                start = end
            return
        source.line(f"bits = from_bytes({raw}, 'big')")
        low = size * 8
        for field in fields:
            low -= field.bits
            value = f"(bits >> {low})" if low else "bits"
            whole = low + field.bits == size * 8 and not field.signed  # nothing is above the first field
            source.line(f"{self.expressions.name(field)} = {value if whole else cut(field, value)}")

    def _extract_varbit(self, source: Source, name: str, length: Expression) -> None:
        """``extract`` with two arguments, the second the bits of the varbit field."""
        header = self._lowered.program.headers[name]
        assert header.varbit is not None
        bits, limit = bits_var(name, header.varbit), self._lowered.variables.field(name, header.varbit).bits
        source.line(f"length_given = {self.expressions.value(length)}")
        source.line(f"if length_given & 7: {self._leave('ParserInvalidArgument')}")
        source.line(f"if size - at < {header.size} + (length_given >> 3): {self._leave('PacketTooShort')}")
        source.line(f"if length_given > {limit}: {self._leave('HeaderTooShort')}")
        source.line(f"{bits} = length_given")
        source.line(f"{raw_var(name)} = frame[at:at + {header_bytes(header)}]; at += {header_bytes(header)}")
        source.line(f"{dirty_var(name)} = 0")
        source.line(f"bits = from_bytes({raw_var(name)}, 'big')")
        low, behind = header.size * 8, f" + {bits}"
        for field, info in zip(self._lowered.variables.fields(name), header.fields, strict=True):
            if info.varbit:
                behind = ""
                source.line(f"{self.expressions.name(field)} = bits >> {low} & (1 << {bits}) - 1")
                continue
            low -= field.bits
            source.line(f"{self.expressions.name(field)} = {cut(field, f'(bits >> ({low}{behind}))')}")
