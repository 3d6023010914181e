"""Primitives on headers, header stacks and header unions.

Reference: BMv2's core primitives, stacks.cpp and header_unions.cpp. All methods that write one take the same arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from netsum_switch.codegen.deparser import header_bytes
from netsum_switch.codegen.expression import Case, Code, Expressions
from netsum_switch.codegen.source import Source, bits_var, dirty_var, field_var, next_var, raw_var, valid_var
from netsum_switch.errors import UnsupportedError
from netsum_switch.program import STACK_FIELDS, Json, Program, swapped

Params = list[Json]


class HeaderOperations:
    """Writes these primitives. The caller marks headers named in the program as dirty, this class moved ones."""

    def __init__(self, program: Program, expressions: Expressions) -> None:
        self._program = program
        self._expressions = expressions

    def touched(self, target: Json, args: Sequence[Code]) -> set[str]:
        """The headers that a field or header operand can stand for."""
        while target["type"] == "expression" and "type" in target["value"]:
            target = target["value"]
        if target["type"] in ("field", *STACK_FIELDS) or target["value"]["op"] == "access_field":
            return {case.header for case, _ in self._expressions.fields(target, args)}
        return {case.header for case in self._expressions.headers(target, args)}

    def mark_valid(self, source: Source, header: str) -> None:
        """Set the validity; in a union this makes the other members invalid."""
        source.line(f"{valid_var(header)} = 1")
        for other in self._program.union_of.get(header, ()):
            if other != header:
                source.line(f"{valid_var(other)} = 0")

    def _cases(self, source: Source, node: Json, args: Sequence[Code]) -> Iterator[str]:
        """Iterate over the headers that an operand can stand for, each inside the ``if`` that chooses it."""
        cases: list[Case] = self._expressions.headers(node, args)
        head = "if"
        for case in cases:
            if not case.condition:
                yield case.header
                continue
            with source.block(f"{head} {case.condition}:"):
                yield case.header
            head = "elif"

    def add(
        self, source: Source, params: Params, args: Sequence[Code], overwritten: Collection[str] = frozenset()
    ) -> None:
        """setValid: a header that was invalid starts with all fields 0."""
        for name in self._cases(source, params[0], args):
            header = self._program.headers[name]
            with source.block(f"if not {valid_var(name)}:"):
                names = [field_var(name, field.name) for field in header.fields if field.name not in overwritten]
                if names:
                    source.line(" = ".join(names) + " = 0")
                self.mark_valid(source, name)
                source.line(f"length += {header_bytes(header)}")

    def remove(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        """setInvalid: the fields keep their values."""
        for name in self._cases(source, params[0], args):
            with source.block(f"if {valid_var(name)}:"):
                source.line(f"{valid_var(name)} = 0")
                source.line(f"length -= {header_bytes(self._program.headers[name])}")

    def assign(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        """Copy a header from another of its type; of an invalid one only the validity is copied."""
        for to in self._cases(source, params[0], args):
            for of in self._cases(source, params[1], args):
                self._assign(source, to, of)

    def _assign(self, source: Source, to: str, of: str) -> None:
        if to == of:
            return
        with source.block(f"if {valid_var(of)}:"):
            self.mark_valid(source, to)
            pairs = zip(self._program.headers[to].fields, self._program.headers[of].fields, strict=True)
            for left, right in pairs:
                source.line(f"{field_var(to, left.name)} = {field_var(of, right.name)}")
                if left.varbit:
                    source.line(f"{bits_var(to, left.name)} = {bits_var(of, right.name)}")
        with source.block("else:"):
            source.line(f"{valid_var(to)} = 0")

    def assign_varbit(self, source: Source, params: Params, args: Sequence[Code]) -> None:
        """Copy a varbit field with its length."""
        [(to, left)] = self._expressions.fields(params[0], args)
        [(of, right)] = self._expressions.fields(params[1], args)
        for variable in (field_var, bits_var):
            source.line(f"{variable(to.header, left)} = {variable(of.header, right)}")

    def assign_stack(self, source: Source, params: Params, _args: Sequence[Code]) -> None:
        """Copy the elements and how many were extracted."""
        to, of = params[0]["value"], params[1]["value"]
        source.line(f"{next_var(to)} = {next_var(of)}")
        for left, right in zip(self._program.stacks[to], self._program.stacks[of], strict=True):
            source.line(f"{dirty_var(left)} = 1")
            self._assign(source, left, right)

    def assign_union(self, source: Source, params: Params, _args: Sequence[Code]) -> None:
        to, of = (self._program.unions[each["value"]] for each in params)
        self._assign_union(source, to, of)

    def assign_union_stack(self, source: Source, params: Params, _args: Sequence[Code]) -> None:
        """Copy the unions and how many were extracted."""
        to, of = (each["value"] for each in params)
        source.line(f"{next_var(to)} = {next_var(of)}")
        for left, right in zip(*(zip(*self._program.columns[each], strict=True) for each in (to, of)), strict=True):
            self._assign_union(source, left, right)

    def _assign_union(self, source: Source, to: Sequence[str], of: Sequence[str]) -> None:
        for left, right in zip(to, of, strict=True):
            source.line(f"{dirty_var(left)} = 1")
            # Not _assign: an invalid member must not end the validity of the one before it.
            with source.block(f"if {valid_var(right)}:"):
                self._assign(source, left, right)
        source.line(f"{', '.join(map(valid_var, to))} = {', '.join(map(valid_var, of))}")

    def push(self, source: Source, params: Params, _args: Sequence[Code]) -> None:
        """push_front: all headers move back, the first become invalid."""
        stack, count = self._shift(params)
        elements = self._program.columns[stack][0]
        source.line(f"{next_var(stack)} = min({len(elements)}, {next_var(stack)} + {count})")
        if params[0]["type"] == "header_union_stack":
            self._swap(source, stack, count, range(len(elements) - 1, count - 1, -1))
            return
        for at in range(len(elements) - 1, count - 1, -1):
            self._move(source, elements[at], elements[at - count])
        for name in elements[:count]:
            source.line(f"{valid_var(name)} = 0")

    def pop(self, source: Source, params: Params, _args: Sequence[Code]) -> None:
        """pop_front: all headers move to the front, the last become invalid."""
        stack, count = self._shift(params)
        elements = self._program.columns[stack][0]
        source.line(f"{next_var(stack)} = max(0, {next_var(stack)} - {count})")
        if params[0]["type"] == "header_union_stack":
            self._swap(source, stack, count, range(count, len(elements)))
            return
        for at in range(len(elements) - count):
            self._move(source, elements[at], elements[at + count])
        for name in elements[max(0, len(elements) - count) :]:
            source.line(f"{valid_var(name)} = 0")

    @staticmethod
    def _shift(params: Params) -> tuple[str, int]:
        if params[0]["type"] not in ("header_stack", "header_union_stack") or params[1]["type"] != "hexstr":
            raise UnsupportedError(f"the program shifts a {params[0]['type']!r} by {params[1]['type']!r}")
        return params[0]["value"], int(params[1]["value"], 16)

    def _swap(self, source: Source, stack: str, count: int, places: range) -> None:
        """See `swapped`."""
        for elements in self._program.columns[stack]:
            order = swapped(len(elements), count, places)
            self._move_all(source, [(elements[to], elements[of]) for to, of in enumerate(order)])

    def _move(self, source: Source, to: str, of: str) -> None:
        self._move_all(source, [(to, of)])

    def _move_all(self, source: Source, moves: Sequence[tuple[str, str]]) -> None:
        """Move headers, all at once."""
        pairs = [pair for to, of in moves if to != of for pair in self._variables(to, of)]
        if pairs:
            source.line(f"{', '.join(left for left, _ in pairs)} = {', '.join(right for _, right in pairs)}")

    def _variables(self, to: str, of: str) -> list[tuple[str, str]]:
        """All variables of two headers of one type."""
        fields = [field.name for field in self._program.headers[to].fields]
        variables = [valid_var, raw_var, dirty_var]
        pairs = [(variable(to), variable(of)) for variable in variables]
        pairs += [(field_var(to, name), field_var(of, name)) for name in fields]
        varbit = self._program.headers[to].varbit
        if varbit is not None:
            pairs.append((bits_var(to, varbit), bits_var(of, varbit)))
        return pairs
