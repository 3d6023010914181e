# SPDX-License-Identifier: MIT
"""The parser's states. An error sets ``parser_error`` and ends the parser, as BMv2 goes on to the ingress control."""

from __future__ import annotations

from netsum_switch.errors import JsonError, UnsupportedError
from netsum_switch.lowering.expressions import Expressions
from netsum_switch.lowering.headers import Headers
from netsum_switch.lowering.primitives import Primitives
from netsum_switch.lowering.statements import Advance, Extract, If, Peek, State, Statement, Store, Verify
from netsum_switch.lowering.values import Expression, Values
from netsum_switch.program import STACK_FIELDS, Json, Program

CORE_ERRORS = (
    "NoError", "PacketTooShort", "NoMatch", "StackOutOfBounds",
    "HeaderTooShort", "ParserTimeout", "ParserInvalidArgument",
)  # fmt: skip


def core_errors(program: Program) -> dict[str, int]:
    """The numbers of the core errors. The program need not name them; then they get some behind those that it names."""
    errors = dict(program.errors)
    for each in CORE_ERRORS:
        errors.setdefault(each, max(errors.values(), default=-1) + 1)
    return {each: errors[each] for each in CORE_ERRORS}


class Parser:
    """Lowers the parser."""

    def __init__(self, program: Program, expressions: Expressions, primitives: Primitives) -> None:
        self._program = program
        self._expressions = expressions
        self._primitives = primitives
        self._headers = Headers(program, expressions)
        self._errors = core_errors(program)

    def states(self) -> tuple[str | None, dict[str, State]]:
        """The first state, and all by name."""
        states = {each["name"]: self._state(each) for each in self._program.parser["parse_states"]}
        entry = self._program.parser["init_state"]
        for name in [entry, *(to for state in states.values() for _, to in state.next)]:
            if name is not None and name not in states:
                raise JsonError(f"the parser has no state {name!r}")
        return entry, states

    def _state(self, state: Json) -> State:
        body: list[Statement] = []
        for operation in state["parser_ops"]:
            body += self._operation(operation)
        keys: list[tuple[Expression, int]] = []
        for key in state["transition_key"]:
            keys.append(self._key(body, key, len(keys)))
        following: list[tuple[Expression | None, str | None]] = []
        for transition in state["transitions"]:
            condition = self._matches(transition, keys)
            following.append((condition, transition["next_state"]))
            if condition is None:
                break
        else:
            following.append((None, None))  # what matches nothing ends the parser, without an error
        return State(state["name"], tuple(body), tuple(following))

    def _operation(self, operation: Json) -> list[Statement]:
        kind, params = operation["op"], operation["parameters"]
        if kind in ("extract", "extract_VL") and params[0]["type"] in ("regular", "stack", "union_stack"):
            length, where = self._expressions.compile(params[1]) if kind == "extract_VL" else None, params[0]["value"]
            if params[0]["type"] == "regular":
                return self._extract(where, length)
            return self._extract_next(where if params[0]["type"] == "union_stack" else [where], length)
        if kind == "set":
            return self._set(params)
        if kind == "verify":
            return [Verify(self._expressions.compile(params[0]), self._expressions.compile(params[1]))]
        if kind == "advance":
            return [Advance(self._expressions.compile(params[0]))]
        if kind == "shift":
            return [Advance(self._expressions.values.constant(8 * params[0]))]  # a bare number, of bytes
        if kind == "primitive":
            return list(self._primitives.body(params))
        detail = params[0].get("type", "") if params else ""
        raise UnsupportedError(f"the program uses the parser operation {kind!r} {detail}".rstrip())

    def _set(self, params: list[Json]) -> list[Statement]:
        if params[1]["type"] != "lookahead":
            return self._primitives.store(params[0], self._expressions.compile(params[1]), ())
        offset, width = params[1]["value"]
        ahead = self._expressions.variables.peek(width, 0)
        return [Peek(ahead, offset), *self._primitives.store(params[0], ahead, ())]

    def _extract(self, name: str, length: Expression | None) -> list[Statement]:
        header, ahead = self._program.headers[name], list[Statement]()
        if length is None and header.varbit is not None and header.length_exp is not None:
            # The fields that its length is computed of lie before the varbit field.
            fields, at = self._expressions.variables.fields(name), 0
            for field, info in zip(fields, header.fields, strict=True):
                if info.varbit:
                    break
                ahead.append(Peek(field, at))
                at += field.bits
            length = self._expressions.compile(header.length_exp, fields)
        return [*ahead, Extract(name, length), *self._headers.mark_valid(name)]

    def _extract_next(self, place: list[str], length: Expression | None) -> list[Statement]:
        """``place``: a stack, and the member if it is one of unions."""
        values, following = self._expressions.values, self._expressions.variables.next(place[0])
        error = values.constant(self._errors["StackOutOfBounds"])
        statement: Statement = Verify(None, error)
        for at, name in reversed(list(enumerate(self._program.column(*place)))):
            here = values.operation("==", following, values.constant(at))
            statement = If(here, tuple(self._extract(name, length)), (statement,))
        return [statement, Store(following, values.operation("+", following, values.one))]

    def _key(self, body: list[Statement], key: Json, number: int) -> tuple[Expression, int]:
        """(value, width) of a key of the transition."""
        values, variables = self._expressions.values, self._expressions.variables
        if key["type"] == "lookahead":
            offset, width = key["value"]
            ahead = variables.peek(width, number)
            body.append(Peek(ahead, offset))
            return ahead, width
        if key["type"] == "field":
            field = variables.field(*key["value"])
            return _unsigned(values, field, field.bits), field.bits
        if key["type"] in STACK_FIELDS:
            *place, name = key["value"]
            width = variables.field(self._program.column(*place)[0], name).bits
            return _unsigned(values, self._expressions.compile(key), width), width
        raise UnsupportedError(f"the program has a parser transition key of type {key['type']!r}")

    def _matches(self, transition: Json, keys: list[tuple[Expression, int]]) -> Expression | None:
        """The transition's condition. Values and masks are padded to whole bytes, key by key."""
        if transition["type"] == "default":
            return None
        if transition["type"] != "hexstr":
            raise UnsupportedError(f"the program has parser transitions of type {transition['type']!r}")
        values = self._expressions.values
        padded = [(width + 7) // 8 * 8 for _, width in keys]
        value = int(transition["value"], 16)
        mask = int(transition["mask"], 16) if transition["mask"] is not None else (1 << sum(padded)) - 1
        terms, low = [], sum(padded)
        for (key, width), bits in zip(keys, padded, strict=True):
            low -= bits
            wanted, cared = value >> low & ((1 << bits) - 1), mask >> low & ((1 << width) - 1)
            if cared == (1 << width) - 1:
                terms.append(values.operation("==", key, values.constant(wanted)))
            elif cared:
                masked = values.operation("&", key, values.constant(cared))
                terms.append(values.operation("==", masked, values.constant(wanted & cared)))
        return values.all(terms) if terms else None


def _unsigned(values: Values, value: Expression, width: int) -> Expression:
    """The bits of a value that may be negative."""
    return values.operation("&", value, values.constant((1 << width) - 1)) if value.signed else value
