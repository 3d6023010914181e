# SPDX-License-Identifier: MIT
"""Primitives and actions as statements. Truth: simple_switch's primitives.cpp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from netsum_switch.errors import JsonError, UnsupportedError
from netsum_switch.lowering.expressions import Arguments, Expressions
from netsum_switch.lowering.headers import Headers, Params
from netsum_switch.lowering.statements import (
    Action,
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
from netsum_switch.lowering.values import Calculated, Expression, Variable
from netsum_switch.program import Json, Program, jump_target

_JUMPS = ("_jump", "_jump_if_zero")


class Primitives:
    """Lowers actions. ``egress`` says which pipeline they run in: some primitives mean something else there."""

    def __init__(
        self, program: Program, expressions: Expressions, widths: dict[str, int], drop_port: int, *, egress: bool
    ) -> None:
        self._program = program
        self._expressions = expressions
        self._values = expressions.values
        self._variables = expressions.variables
        self._headers = headers = Headers(program, expressions)
        self._widths = widths
        self._drop_port = drop_port
        self._egress = egress
        self._lowerings: dict[str, Callable[[Params, Arguments], list[Statement]]] = {
            "assign": self._assign, "assign_VL": headers.assign_varbit, "assign_header": headers.assign,
            "assign_header_stack": headers.assign_stack, "assign_union": headers.assign_union,
            "assign_union_stack": headers.assign_union_stack,
            "add_header": headers.add, "remove_header": headers.remove, "push": headers.push, "pop": headers.pop,
            "register_read": self._register_read, "register_write": self._register_write, "count": self._count,
            "mark_to_drop": self._mark_to_drop, "drop": self._mark_to_drop,
            "modify_field_with_hash_based_offset": self._hash, "modify_field_rng_uniform": self._random,
            "generate_digest": self._digest, "clone_ingress_pkt_to_egress": self._clone,
            "clone_egress_pkt_to_egress": self._clone, "resubmit": self._resubmit, "recirculate": self._recirculate,
            "execute_meter": self._meter,
            "truncate": self._truncate, "exit": self._exit, "assert": self._assert, "assume": self._assert,
            "log_msg": self._log, "no_op": self._nothing, "noop": self._nothing,
            # P4_14's
            "modify_field": self._assign, "copy_header": headers.assign, "add_header_fast": headers.add_fast,
            "add_to_field": partial(self._change, "+"), "subtract_from_field": partial(self._change, "-"),
            "add": partial(self._compute, "+"), "subtract": partial(self._compute, "-"),
            "bit_and": partial(self._compute, "&"), "bit_or": partial(self._compute, "|"),
            "bit_xor": partial(self._compute, "^"), "shift_left": partial(self._compute, "<<"),
            "shift_right": partial(self._compute, ">>"),
        }  # fmt: skip

    def action(self, action_id: int, args: Arguments | None = None) -> Action:
        """An action; without arguments those of its table entry."""
        action = self._program.actions[action_id]
        if args is None:
            args = [self._values.parameter(at, each["bitwidth"]) for at, each in enumerate(action["runtime_data"])]
        names = [each["op"] for each in action["primitives"]]
        exits = "exit" in names
        body = self.body(action["primitives"], args)
        return Action(body, None if exits and any(name in _JUMPS for name in names) else exits)

    def body(self, primitives: Sequence[Json], args: Arguments = ()) -> Statements:
        """Primitives one after the other."""
        names = [each["op"] for each in primitives]
        for name in names:
            if name not in self._lowerings and name not in _JUMPS:
                raise UnsupportedError(f"the program uses the primitive {name!r}; this switch does not run it")
        if any(name in _JUMPS for name in names):
            return (self._jumping(primitives, args),)
        return tuple(made for each in primitives for made in self._lowerings[each["op"]](each["parameters"], args))

    def _jumping(self, primitives: Sequence[Json], args: Arguments) -> Jumping:
        """``_jump`` and ``_jump_if_zero`` are p4c's ``if`` and loops inside an action."""
        end = len(primitives)
        steps: list[tuple[Statements, Expression | None, int, int]] = []
        for at, primitive in enumerate(primitives):
            op, params = primitive["op"], primitive["parameters"]
            if op not in _JUMPS:
                steps.append((tuple(self._lowerings[op](params, args)), None, at + 1, at + 1))
            else:
                to = jump_target(primitive, end)
                if op == "_jump_if_zero":
                    steps.append(((), self._expressions.compile(params[0], args), at + 1, to))
                else:
                    steps.append(((), None, to, to))
        return Jumping(tuple(steps))

    def store(self, target: Json, value: Expression, args: Arguments) -> list[Statement]:
        """Assign to a field, or to one of the fields that a stack access can mean."""
        return self._to(target, args, lambda variable: Store(variable, value))

    def _to(self, target: Json, args: Arguments, make: Callable[[Variable], Statement]) -> list[Statement]:
        statements = []
        for case, variable in self._expressions.targets(target, args):
            made = make(variable)
            statements.append(made if case.condition is None else If(case.condition, (made,)))
        return statements

    def _value(self, node: Json, args: Arguments) -> Expression:
        return self._expressions.compile(node, args)

    def _mark(self, name: str, value: Expression) -> Statement:
        return Store(self._variables.mark(name), value)

    def _assign(self, params: Params, args: Arguments) -> list[Statement]:
        return self.store(params[0], self._value(params[1], args), args)

    def _compute(self, op: str, params: Params, args: Arguments) -> list[Statement]:
        operands = (self._value(each, args) for each in params[1:])
        return self.store(params[0], self._values.operation(op, *operands), args)

    def _change(self, op: str, params: Params, args: Arguments) -> list[Statement]:
        return self._compute(op, [params[0], *params], args)

    def _array(self, section: str, name: str) -> str:
        if name not in (each["name"] for each in self._program.json.get(section, [])):
            raise JsonError(f"{section} has nothing by the name {name!r}")
        return name

    def _register_read(self, params: Params, args: Arguments) -> list[Statement]:
        array, index = self._array("register_arrays", params[1]["value"]), self._value(params[2], args)
        return self._to(params[0], args, lambda variable: RegisterRead(variable, array, index))

    def _register_write(self, params: Params, args: Arguments) -> list[Statement]:
        array = self._array("register_arrays", params[0]["value"])
        return [RegisterWrite(array, self._value(params[1], args), self._value(params[2], args))]

    def _count(self, params: Params, args: Arguments) -> list[Statement]:
        return [Count(self._array("counter_arrays", params[0]["value"]), self._value(params[1], args))]

    def _meter(self, params: Params, args: Arguments) -> list[Statement]:
        array, index = self._array("meter_arrays", params[0]["value"]), self._value(params[1], args)
        return self._to(params[2], args, lambda variable: MeterRead(variable, array, index))

    def _mark_to_drop(self, _params: Params, _args: Arguments) -> list[Statement]:
        return [
            Store(self._variables.standard("egress_spec"), self._values.constant(self._drop_port)),
            Store(self._variables.standard("mcast_grp"), self._values.zero),
        ]

    def _hash(self, params: Params, args: Arguments) -> list[Statement]:
        base, size = self._value(params[1], args), self._value(params[3], args)
        name = params[2]["value"]
        calculated = Calculated(self._widths[name], False, name)
        at_least_one = self._values.operation("?", size, size, self._values.one)
        rest = self._values.operation("%", calculated, at_least_one)
        return self.store(params[0], self._values.operation("+", rest, base), args)

    def _random(self, params: Params, args: Arguments) -> list[Statement]:
        low, high = self._value(params[1], args), self._value(params[2], args)
        stores = self.store(params[0], self._values.random(low, high), args)
        return [If(self._values.operation("<=", low, high), tuple(stores))]

    def _digest(self, params: Params, args: Arguments) -> list[Statement]:
        return [self._mark("digest", self._value(params[1], args))]

    def _clone(self, params: Params, args: Arguments) -> list[Statement]:
        session, fields = self._value(params[0], args), self._value(params[1], args)
        return [
            self._mark("clone", self._values.one),
            self._mark("clone_session", session),
            self._mark("clone_list", fields),
        ]

    def _resubmit(self, params: Params, args: Arguments) -> list[Statement]:
        # In the other control it sets a mark that nothing reads.
        return [] if self._egress else [self._mark("resubmit", self._value(params[0], args))]

    def _recirculate(self, params: Params, args: Arguments) -> list[Statement]:
        return [self._mark("recirculate", self._value(params[0], args))]

    def _truncate(self, params: Params, args: Arguments) -> list[Statement]:
        now, given = self._variables.mark("truncated"), self._value(params[0], args)
        return [Store(now, self._values.operation("?", self._values.operation("<", given, now), given, now))]

    def _exit(self, _params: Params, _args: Arguments) -> list[Statement]:
        return [self._mark("leaving", self._values.one)]

    def _assert(self, params: Params, args: Arguments) -> list[Statement]:
        return [Assert(self._value(params[0], args))]

    def _log(self, params: Params, args: Arguments) -> list[Statement]:
        values: list[Json] = params[1]["value"] if len(params) > 1 else []
        return [Log(str(params[0]["value"]), tuple(self._value(each, args) for each in values))]

    def _nothing(self, _params: Params, _args: Arguments) -> list[Statement]:
        return []
