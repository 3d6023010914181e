# SPDX-License-Identifier: MIT
"""A whole program, lowered."""

from __future__ import annotations

from dataclasses import dataclass

from netsum_switch.errors import UnsupportedError
from netsum_switch.lowering.control import Controls
from netsum_switch.lowering.expressions import Expressions
from netsum_switch.lowering.parser import Parser, core_errors
from netsum_switch.lowering.primitives import Primitives
from netsum_switch.lowering.statements import Calculation, Checksum, Control, Digest, Input, State
from netsum_switch.lowering.values import Expression, Values, Variable, Variables
from netsum_switch.program import Json, Program

# Bits of the results of the hash and checksum algorithms that v1model programs name. The custom variants start with the
# standard parameters, which P4Runtime cannot change.
WIDTHS: dict[str, int] = {
    "csum16": 16, "cksum16": 16, "crc16": 16, "crc16_custom": 16, "crc32": 32, "crc32_custom": 32, "crcCCITT": 16, "xor16": 16,
    "identity": 64, "xxh64": 64, "bmv2_hash": 64,
}  # fmt: skip


@dataclass(frozen=True)
class Lowered:
    """A program as operations."""

    program: Program
    drop_port: int
    variables: Variables
    values: Values
    errors: dict[str, int]
    first_state: str | None
    states: dict[str, State]
    ingress: Control
    egress: Control
    calculations: dict[str, Calculation]
    verified: tuple[Checksum, ...]
    updated: tuple[Checksum, ...]
    digests: tuple[Digest, ...]
    field_lists: dict[int, tuple[Variable, ...]]
    deparsed: tuple[str, ...]


def lower(program: Program, drop_port: int = 511) -> Lowered:
    """Raises UnsupportedError, which names what this switch does not run; JsonError, or what reading JSON of another
    shape than p4c's ends in."""
    variables, values = Variables(program), Values()
    expressions = Expressions(program, variables, values)
    calculations = {each["name"]: _calculation(program, expressions, each) for each in program.calculations.values()}
    widths = {name: WIDTHS[each.algorithm] for name, each in calculations.items()}
    primitives = {egress: Primitives(program, expressions, widths, drop_port, egress=egress) for egress in (False, True)}
    first, states = Parser(program, expressions, primitives[False]).states()
    controls = {name: Controls(program, expressions, primitives[name == "egress"]).lower(name) for name in ("ingress", "egress")}
    digests = [
        Digest(number, tuple(expressions.compile(value) for value in each["elements"]))
        for number, each in program.learn_lists.items()
    ]
    field_lists = {
        number: tuple(variables.field(*each["value"]) for each in fields["elements"] if each["type"] == "field")
        for number, fields in program.field_lists.items()
    }
    return Lowered(
        program,
        drop_port,
        variables,
        values,
        core_errors(program),
        first,
        states,
        controls["ingress"],
        controls["egress"],
        calculations,
        _checksums(program, expressions, "verify"),
        _checksums(program, expressions, "update"),
        tuple(digests),
        field_lists,
        tuple(program.deparse_order),
    )


def _checksums(program: Program, expressions: Expressions, what: str) -> tuple[Checksum, ...]:
    """Those that are verified, in headers that are valid, or updated."""
    found = []
    for each in program.checksums:
        if not each.get(what, True):
            continue
        target = expressions.variables.field(*each["target"])
        condition = expressions.condition(each.get("if_cond"))
        header = each["target"][0]
        if what == "verify" and not program.headers[header].metadata:
            condition = expressions.values.all([expressions.variables.valid(header), condition])
        found.append(Checksum(program.calculations[each["calculation"]]["name"], target, condition))
    return tuple(found)


def _calculation(program: Program, expressions: Expressions, calculation: Json) -> Calculation:
    algorithm = calculation["algo"]
    if algorithm not in WIDTHS:
        raise UnsupportedError(f"the program uses the hash algorithm {algorithm!r}; this switch does not run it")
    inputs: list[Input] = []
    payload = False
    for each in calculation["input"]:
        if each["type"] == "payload":
            payload = True
        else:
            inputs += _inputs(program, expressions, calculation["name"], each)
    return Calculation(calculation["name"], algorithm, tuple(inputs), payload)


def _inputs(program: Program, expressions: Expressions, name: str, each: Json) -> list[Input]:
    values, variables = expressions.values, expressions.variables
    if each["type"] == "hexstr":
        bits = each["bitwidth"]
        return [Input(values.constant(int(each["value"], 16) & (1 << bits) - 1), bits, None)]
    if each["type"] not in ("field", "header"):
        raise UnsupportedError(f"the calculation {name} takes a {each['type']!r}")
    header = each["value"] if each["type"] == "header" else each["value"][0]
    valid: Expression | None = None if program.headers[header].metadata else variables.valid(header)
    names = [field.name for field in program.headers[header].fields] if each["type"] == "header" else [each["value"][1]]
    varbit = program.headers[header].varbit
    return [
        Input(field, field.bits, valid, variables.length(header) if name == varbit else None)
        for name, field in ((name, variables.field(header, name)) for name in names)
    ]
