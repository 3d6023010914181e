"""Lowered statements as lines of Python."""

from __future__ import annotations

from typing import NamedTuple

from netsum_switch.codegen.expressions import Expressions, cut
from netsum_switch.codegen.source import Source, dirty_var, ident
from netsum_switch.lowering.control import Branch, NodeName, write_structured
from netsum_switch.lowering.program import Lowered
from netsum_switch.lowering.statements import (
    Action,
    Assert,
    Count,
    Extract,
    If,
    Jumping,
    Log,
    MeterRead,
    RegisterRead,
    RegisterWrite,
    Statement,
    Statements,
    Store,
    statements_in,
)
from netsum_switch.lowering.values import Expression, Slot, Variable
from netsum_switch.pipeline import MAX_TURNS


class _Array(NamedTuple):
    name: str
    size: int
    bits: int  # of a cell


class StatementWriter:
    """Writes statements, and marks a header as dirty where they write to one of its fields."""

    def __init__(self, lowered: Lowered, expressions: Expressions) -> None:
        self.expressions = expressions
        variables, program = lowered.variables, lowered.program
        self._header_of: dict[Variable, str] = {}
        for header in program.packet_headers:
            own = [*variables.fields(header.name), variables.length(header.name)]
            self._header_of |= {each: header.name for each in own if each is not None}
        sections = (("register_arrays", "bitwidth"), ("counter_arrays", ""), ("meter_arrays", ""))
        self._arrays = {
            (section, each["name"]): _Array(ident(each["name"]), each.get("size", 0), each.get(bits, 0))
            for section, bits in sections
            for each in program.json.get(section, [])
        }

    def action(self, source: Source, action: Action) -> None:
        """Write an action. ``exit`` takes effect after its last statement, as in BMv2, and leaves the loop around the control."""
        if action.exits is None:
            source.line("leaving = 0")
        self.statements(source, action.body)
        if action.exits is not False:
            source.line("break" if action.exits else "if leaving: break")

    def statements(self, source: Source, statements: Statements, dirty: frozenset[str] = frozenset()) -> None:
        """Write statements; ``dirty`` are headers that are marked already."""
        marked = set(dirty)
        for each in statements:
            for target in (each.target,) if isinstance(each, Store | RegisterRead | MeterRead) else ():
                header = self._header_of.get(target)
                if header is not None and header not in marked:
                    source.line(f"{dirty_var(header)} = 1")
                    marked.add(header)
            self.statement(source, each, frozenset(marked))
            # Of a header that is extracted the bytes are those of the frame again.
            marked -= {inner.header for inner in statements_in((each,)) if isinstance(inner, Extract)}

    def statement(self, source: Source, statement: Statement, dirty: frozenset[str]) -> None:
        if isinstance(statement, Store):
            value = self.expressions.stored(statement.target, statement.value)
            source.line(f"{self.expressions.name(statement.target)} = {value}")
        elif isinstance(statement, If):
            self._if(source, statement, dirty)
        elif isinstance(statement, Jumping):
            self._jumping(source, statement)
        elif isinstance(statement, RegisterRead):
            array = self._arrays["register_arrays", statement.array]
            cell = f"register_{array.name}[{self.expressions.value(statement.index)}]"
            self._into(source, statement.target, cell, array, statement.index)
        elif isinstance(statement, RegisterWrite):
            array = self._arrays["register_arrays", statement.array]
            cell = f"register_{array.name}[{self.expressions.value(statement.index)}]"
            value = self.expressions.stored(Variable(array.bits, False, ""), statement.value)
            source.line(f"{self._guard(array, statement.index)}{cell} = {value}")
        elif isinstance(statement, Count):
            array, index = self._arrays["counter_arrays", statement.array], self.expressions.value(statement.index)
            counted = f"packets_{array.name}[{index}] += 1; bytes_{array.name}[{index}] += received"
            source.line(f"{self._guard(array, statement.index)}{counted}")
        elif isinstance(statement, MeterRead):
            array = self._arrays["meter_arrays", statement.array]
            color = f"meter_{array.name}({self.expressions.value(statement.index)}, received, now())"
            self._into(source, statement.target, color, array._replace(bits=2), statement.index)
        elif isinstance(statement, Assert):
            source.line(f"if not {self.expressions.condition(statement.condition)}: abort()")
        else:
            assert isinstance(statement, Log), statement
            values = map(self.expressions.value, statement.values)
            source.line(f"log_message({', '.join([repr(statement.text), *values])})")

    def _guard(self, array: _Array, index: Expression) -> str:
        """The condition under which there is such a cell; empty if there always is."""
        if isinstance(index, Slot) or (not index.signed and 1 << index.bits <= array.size):
            return ""
        return f"if {'0 <= ' if index.signed else ''}{self.expressions.value(index)} < {array.size}: "

    def _into(self, source: Source, target: Variable, text: str, array: _Array, index: Expression) -> None:
        fits = not target.signed and array.bits <= target.bits
        value = text if fits else cut(target, text)
        source.line(f"{self._guard(array, index)}{self.expressions.name(target)} = {value}")

    def _if(self, source: Source, statement: If, dirty: frozenset[str]) -> None:
        head = "if"
        while True:
            with source.block(f"{head} {self.expressions.condition(statement.condition)}:"):
                self.statements(source, statement.then, dirty)
            if len(statement.otherwise) != 1 or not isinstance(statement.otherwise[0], If):
                break
            head, statement = "elif", statement.otherwise[0]
        if statement.otherwise:
            with source.block("else:"):
                self.statements(source, statement.otherwise, dirty)

    def _jumping(self, source: Source, jumping: Jumping) -> None:
        """Steps that only jump forward become nested ``if``s."""
        steps = jumping.steps
        if any(to <= at for at, step in enumerate(steps) for to in step[2:]):
            self._with_loops(source, jumping)
            return
        graph: dict[str, list[NodeName]] = {
            str(at): [str(to) if to < len(steps) else None for to in step[2:]] for at, step in enumerate(steps)
        }

        def emit(name: str, join: NodeName, branch: Branch) -> None:
            body, condition, _, _ = steps[int(name)]
            yes, no = graph[name]
            self.statements(source, body)
            if condition is not None:
                with source.block(f"if {self.expressions.condition(condition)}:"):
                    if yes != join:
                        branch(yes, join)
                if no != join:
                    with source.block("else:"):
                        branch(no, join)

        write_structured(graph, "0", emit, "an action")

    def _with_loops(self, source: Source, jumping: Jumping) -> None:
        """Runs of steps between jumps. A jump forward is to a later ``if``, one backward needs another turn."""
        steps, end = jumping.steps, len(jumping.steps)
        jumps = [at for at, (_, condition, yes, _) in enumerate(steps) if condition is not None or yes != at + 1]
        targets = {to for at in jumps for to in steps[at][2:]}
        starts = sorted({0, *(at + 1 for at in jumps), *targets} - {end})
        source.line("step = turns = 0")
        with source.block(f"while step < {end}:"):
            source.line(f"if turns > {MAX_TURNS}: endless()")
            source.line("turns += 1")
            for start, after in zip(starts, [*starts[1:], end], strict=True):
                with source.block(f"if step == {start}:"):
                    for body, _, _, _ in steps[start:after]:
                        self.statements(source, body)
                    _, condition, yes, no = steps[after - 1]
                    choice = f"{yes} if {self.expressions.condition(condition)} else {no}" if condition else str(yes)
                    source.line(f"step = {choice}")
