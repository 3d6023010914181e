# SPDX-License-Identifier: MIT
"""The JSON's expressions ("type value objects") as `Expression`s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from netsum_switch.errors import UnsupportedError
from netsum_switch.lowering.values import COMPARISONS, Constant, Expression, Values, Variable, Variables
from netsum_switch.program import STACK_FIELDS, Json, Program, is_header


class Case(NamedTuple):
    """One of the headers that an operand can stand for, and when it does (None: always)."""

    condition: Expression | None
    header: str


Arguments = Sequence[Expression]

_BINARY = {
    **{op: op for op in (*COMPARISONS, "and", "or", "|", "^", "+", "-", "*", "/", "%", "&", "<<", ">>")},
    "two_comp_mod": "two_comp", "usat_cast": "usat", "sat_cast": "sat",
}  # fmt: skip


class Expressions:
    """``args`` are the arguments of the action at hand."""

    def __init__(self, program: Program, variables: Variables, values: Values) -> None:
        self._program = program
        self.variables = variables
        self.values = values

    def compile(self, node: Json, args: Arguments = ()) -> Expression:
        kind, value = node["type"], node["value"]
        if kind == "expression":
            return self.compile(value, args) if "type" in value else self._operation(value, args)
        if kind == "field":
            return self.variables.field(*value)
        if kind == "hexstr":
            return self.values.constant(int(value, 16))
        if kind == "bool":
            return self.values.constant(int(bool(value)))
        if kind in ("local", "runtime_data"):
            return args[value]
        if kind == "header":
            return self.variables.valid(value)
        if kind in STACK_FIELDS:
            *place, name = value
            return self.values.chosen([(each.condition, self.variables.field(each.header, name)) for each in self.last(*place)])
        raise UnsupportedError(f"the program uses an expression of type {kind!r}; this switch does not run it")

    def condition(self, node: Json | None) -> Expression:
        """No condition always holds."""
        return self.values.one if node is None else self.compile(node)

    def last(self, stack: str, member: str | None = None) -> list[Case]:
        """The last header of a stack, or of a member of its unions: which one it is shows at run time."""
        count = self.variables.next(stack)
        return [
            Case(self.values.operation("==", count, self.values.constant(at + 1)), header)
            for at, header in enumerate(self._program.column(stack, member))
        ]

    def headers(self, node: Json, args: Arguments = ()) -> list[Case]:
        """The headers that an operand of header type can stand for."""
        kind, value = node["type"], node["value"]
        if kind == "header":
            return [Case(None, value)]
        if kind == "expression" and "type" in value:
            return self.headers(value, args)
        if kind == "expression" and value["op"] == "dereference_header_stack":
            elements, index = self._program.stacks[value["left"]["value"]], self.compile(value["right"], args)
            if isinstance(index, Constant):
                return [Case(None, elements[min(index.value, len(elements) - 1)])]
            same = [self.values.operation("==", index, self.values.constant(at)) for at in range(len(elements))]
            return [Case(condition, header) for condition, header in zip(same, elements, strict=True)]
        if kind == "expression" and value["op"] == "access_union_header":
            return [Case(None, self._program.unions[value["left"]["value"]][int(value["right"])])]
        raise UnsupportedError(f"the program uses a header operand of type {kind!r}; this switch does not run it")

    def targets(self, node: Json, args: Arguments = ()) -> list[tuple[Case, Variable]]:
        """The variables that the target of an assignment can stand for."""
        kind, value = node["type"], node["value"]
        if kind == "field":
            return [(Case(None, value[0]), self.variables.field(*value))]
        if kind in STACK_FIELDS:
            *place, name = value
            return [(each, self.variables.field(each.header, name)) for each in self.last(*place)]
        if kind == "expression" and "type" in value:
            return self.targets(value, args)
        if kind == "expression" and value["op"] == "access_field":
            number = int(value["right"])
            cases = self.headers(value["left"], args)
            return [(each, self.variables.fields(each.header)[number]) for each in cases]
        raise UnsupportedError(f"the program assigns to {kind!r}; this switch does not run it")

    def _operation(self, node: Json, args: Arguments) -> Expression:
        op, values = node["op"], self.values
        if op == "valid":
            cases = self.headers(node["right"], args)
            return values.chosen([(each.condition, self.variables.valid(each.header)) for each in cases])
        if op == "valid_union":
            members = self._program.unions[node["right"]["value"]]
            return values.any([self.variables.valid(each) for each in members])
        if op == "?":
            condition = self.compile(node["cond"], args)
            return values.operation("?", condition, self.compile(node["left"], args), self.compile(node["right"], args))
        if op == "access_field":
            targets = self.targets({"type": "expression", "value": node}, args)
            return values.chosen([(case.condition, variable) for case, variable in targets])
        if op in ("last_stack_index", "size_stack"):
            count = self.variables.next(node["right"]["value"])
            return values.operation("-", count, values.one) if op == "last_stack_index" else count
        if op in ("==", "!=") and is_header(node["left"]):
            return self._same_header(op, node, args)
        right = self.compile(node["right"], args)
        if node.get("left") is None:
            return self._unary(op, right)
        left = self.compile(node["left"], args)
        if op not in _BINARY:
            raise UnsupportedError(f"the program uses the operator {op!r}; this switch does not run it")
        return values.operation(_BINARY[op], left, right)

    def _unary(self, op: str, right: Expression) -> Expression:
        if op == "+" or (op == "b2d" and right.bits == 1):
            return right
        if op in ("d2b", "b2d"):
            is_bit = right.bits == 1 and not right.signed
            return right if is_bit else self.values.operation("!=", right, self.values.zero)
        if op in ("not", "~", "-"):
            return self.values.operation("neg" if op == "-" else op, right)
        raise UnsupportedError(f"the program uses the operator {op!r}; this switch does not run it")

    def _same_header(self, op: str, node: Json, args: Arguments) -> Expression:
        """Two headers are the same when both are valid and all their fields are equal."""
        pairs = []
        for left in self.headers(node["left"], args):
            for right in self.headers(node["right"], args):
                terms = [each for each in (left.condition, right.condition) if each is not None]
                mine = self.variables.of_header(self._program.headers[left.header])
                theirs = self.variables.of_header(self._program.headers[right.header])
                terms += [self.variables.valid(left.header), self.variables.valid(right.header)]
                terms += [self.values.operation("==", *both) for both in zip(mine, theirs, strict=True)]
                pairs.append(self.values.all(terms))
        same = self.values.any(pairs)
        return self.values.negation(same) if op == "!=" else same
