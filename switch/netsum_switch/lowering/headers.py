# SPDX-License-Identifier: MIT
"""Primitives on headers, header stacks and header unions, as assignments to their variables.

Truth: BMv2's core primitives, stacks.cpp and header_unions.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netsum_switch.errors import UnsupportedError
from netsum_switch.lowering.expressions import Arguments, Expressions
from netsum_switch.lowering.statements import If, Statement, Statements, Store
from netsum_switch.lowering.values import Expression, Variable
from netsum_switch.program import Json, Program, swapped

Params = list[Json]


class Headers:
    """All methods that lower a primitive take the same arguments."""

    def __init__(self, program: Program, expressions: Expressions) -> None:
        self._program = program
        self._expressions = expressions
        self._variables = expressions.variables
        self._values = expressions.values

    def mark_valid(self, header: str) -> list[Statement]:
        """Set the validity; in a union that ends the others'."""
        others = [each for each in self._program.union_of.get(header, ()) if each != header]
        marks: list[Statement] = [Store(self._variables.valid(header), self._values.one)]
        return marks + [Store(self._variables.valid(other), self._values.zero) for other in others]

    def bytes(self, header: str) -> Expression:
        """The size of a header."""
        fixed = self._values.constant(self._program.headers[header].size)
        length = self._variables.length(header)
        if length is None:
            return fixed
        return self._values.operation("+", fixed, self._values.operation(">>", length, self._values.constant(3)))

    def _each(self, node: Json, args: Arguments, make: Callable[[str], list[Statement]]) -> list[Statement]:
        """Statements for the header that an operand stands for."""
        statements: list[Statement] = []
        for case in self._expressions.headers(node, args):
            made = make(case.header)
            statements += made if case.condition is None else [If(case.condition, tuple(made))]
        return statements

    def add(self, params: Params, args: Arguments) -> list[Statement]:
        """setValid: a header that was not valid starts with all fields 0."""

        def make(name: str) -> list[Statement]:
            zeros: list[Statement] = [Store(each, self._values.zero) for each in self._variables.fields(name)]
            body = (*zeros, *self.mark_valid(name), self._grow("+", name))
            return [If(self._values.negation(self._variables.valid(name)), body)]

        return self._each(params[0], args, make)

    def add_fast(self, params: Params, args: Arguments) -> list[Statement]:
        """Set the validity, and nothing else."""
        return self._each(params[0], args, self.mark_valid)

    def remove(self, params: Params, args: Arguments) -> list[Statement]:
        """setInvalid: the fields keep their values."""

        def make(name: str) -> list[Statement]:
            valid = self._variables.valid(name)
            return [If(valid, (Store(valid, self._values.zero), self._grow("-", name)))]

        return self._each(params[0], args, make)

    def _grow(self, op: str, header: str) -> Statement:
        length = self._variables.mark("length")
        return Store(length, self._values.operation(op, length, self.bytes(header)))

    def assign(self, params: Params, args: Arguments) -> list[Statement]:
        """A header from another of its type; from an invalid one only the validity is taken."""
        return self._each(params[0], args, lambda to: self._each(params[1], args, lambda of: self._assign(to, of)))

    def _assign(self, to: str, of: str) -> list[Statement]:
        if to == of:
            return []
        pairs = zip(self._of(to)[1:], self._of(of)[1:], strict=True)
        copies: list[Statement] = [Store(left, right) for left, right in pairs]
        ends: Statements = (Store(self._variables.valid(to), self._values.zero),)
        return [If(self._variables.valid(of), (*self.mark_valid(to), *copies), ends)]

    def _of(self, header: str) -> list[Variable]:
        return self._variables.of_header(self._program.headers[header])

    def assign_varbit(self, params: Params, args: Arguments) -> list[Statement]:
        """A varbit field from another, with its length."""
        [(to, left)] = self._expressions.targets(params[0], args)
        [(of, right)] = self._expressions.targets(params[1], args)
        bits, others = self._variables.length(to.header), self._variables.length(of.header)
        if bits is None or others is None:
            raise UnsupportedError("the program assigns a varbit field from one that is none")
        return [Store(left, right), Store(bits, others)]

    def assign_stack(self, params: Params, _args: Arguments) -> list[Statement]:
        """Element by element, and how many were extracted."""
        to, of = params[0]["value"], params[1]["value"]
        statements: list[Statement] = [Store(self._variables.next(to), self._variables.next(of))]
        for left, right in zip(self._program.stacks[to], self._program.stacks[of], strict=True):
            statements += self._assign(left, right)
        return statements

    def assign_union(self, params: Params, _args: Arguments) -> list[Statement]:
        """Member by member: an invalid member must not end the validity of the one before it."""
        to, of = (self._program.unions[each["value"]] for each in params)
        return self._assign_union(to, of)

    def assign_union_stack(self, params: Params, _args: Arguments) -> list[Statement]:
        """Union by union, and how many were extracted."""
        to, of = (each["value"] for each in params)
        statements: list[Statement] = [Store(self._variables.next(to), self._variables.next(of))]
        for left, right in zip(*(zip(*self._program.columns[each], strict=True) for each in (to, of)), strict=True):
            statements += self._assign_union(left, right)
        return statements

    def _assign_union(self, to: Sequence[str], of: Sequence[str]) -> list[Statement]:
        statements: list[Statement] = []
        for left, right in zip(to, of, strict=True):
            statements.append(If(self._variables.valid(right), tuple(self._assign(left, right))))
        return statements + [
            Store(self._variables.valid(left), self._variables.valid(right)) for left, right in zip(to, of, strict=True)
        ]

    def push(self, params: Params, _args: Arguments) -> list[Statement]:
        """push_front: everything moves back, the first headers become invalid."""
        stack, count = self._shift(params)
        elements, after = self._program.columns[stack][0], self._variables.next(stack)
        room = self._values.constant(len(elements))
        more = self._values.operation("+", after, self._values.constant(count))
        least = self._values.operation("?", self._values.operation("<", more, room), more, room)
        statements: list[Statement] = [Store(after, least)]
        if params[0]["type"] == "header_union_stack":
            return statements + self._swap(stack, count, range(len(elements) - 1, count - 1, -1))
        for at in range(len(elements) - 1, count - 1, -1):
            statements += self._move(elements[at], elements[at - count])
        return statements + self._invalid(elements[:count])

    def pop(self, params: Params, _args: Arguments) -> list[Statement]:
        """pop_front: everything moves to the front, the last headers become invalid."""
        stack, count = self._shift(params)
        elements, after = self._program.columns[stack][0], self._variables.next(stack)
        fewer = self._values.operation("-", after, self._values.constant(count))
        most = self._values.operation("?", self._values.operation("<", fewer, self._values.zero), self._values.zero, fewer)
        statements: list[Statement] = [Store(after, most)]
        if params[0]["type"] == "header_union_stack":
            return statements + self._swap(stack, count, range(count, len(elements)))
        for at in range(len(elements) - count):
            statements += self._move(elements[at], elements[at + count])
        return statements + self._invalid(elements[max(0, len(elements) - count) :])

    @staticmethod
    def _shift(params: Params) -> tuple[str, int]:
        if params[0]["type"] not in ("header_stack", "header_union_stack") or params[1]["type"] != "hexstr":
            raise UnsupportedError(f"the program shifts a {params[0]['type']!r} by {params[1]['type']!r}")
        return params[0]["value"], int(params[1]["value"], 16)

    def _swap(self, stack: str, count: int, places: range) -> list[Statement]:
        """See `swapped`."""
        statements: list[Statement] = []
        for elements in self._program.columns[stack]:
            order = swapped(len(elements), count, places)
            for alike in zip(*map(self._of, elements), strict=True):
                statements += self._permute(alike, order)
        return statements

    def _permute(self, variables: Sequence[Variable], order: list[int]) -> list[Statement]:
        """Give each variable the value of the one in its place of `order`, circle by circle."""
        kept, statements = self._variables.peek(variables[0].bits, 0), list[Statement]()
        left = {place for place, of in enumerate(order) if place != of}
        while left:
            place = first = min(left)
            statements.append(Store(kept, variables[first]))
            while order[place] != first:
                statements.append(Store(variables[place], variables[order[place]]))
                left.remove(place)
                place = order[place]
            statements.append(Store(variables[place], kept))
            left.remove(place)
        return statements

    def _move(self, to: str, of: str) -> list[Statement]:
        return [Store(left, right) for left, right in zip(self._of(to), self._of(of), strict=True)]

    def _invalid(self, headers: list[str]) -> list[Statement]:
        return [Store(self._variables.valid(each), self._values.zero) for each in headers]
