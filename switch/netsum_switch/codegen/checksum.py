"""Calculations and checksums. A calculation becomes a function of its fields and of the validity of their headers.

"Payload" is what the parser left, as in BMv2's code; its documentation also counts the headers in between.
"""

from __future__ import annotations

from itertools import groupby

from netsum_switch.codegen.expressions import Expressions
from netsum_switch.codegen.source import Source, ident
from netsum_switch.codegen.statements import StatementWriter
from netsum_switch.hashes import WIDTHS
from netsum_switch.lowering.program import Lowered
from netsum_switch.lowering.statements import Calculation, Input, Store
from netsum_switch.lowering.values import Calculated


def write_calculations(source: Source, lowered: Lowered, expressions: Expressions, used: set[str]) -> None:
    """Write ``calculate_NAME`` for the calculations that the other code calls."""
    for calculation in lowered.calculations.values():
        name = f"calculate_{ident(calculation.name)}"
        if name in used:
            with source.block(f"def {name}({', '.join(expressions.parameters(calculation))}):"):
                _body(source, expressions, calculation)


def _body(source: Source, expressions: Expressions, calculation: Calculation) -> None:
    # Consecutive inputs that are present together are one number; a varbit field is one of its own.
    runs = [list(run) for _, run in groupby(calculation.inputs, _together)]
    if calculation.algorithm == "csum16" and len(runs) == 1 and not calculation.payload and runs[0][0].length is None:
        _csum16(source, expressions, runs[0])
        return
    source.line("data = size = 0")
    for run in runs:
        width = str(_width(run)) if run[0].length is None else expressions.value(run[0].length)
        line = f"data = data << {width} | {_number(expressions, run)}; size += {width}"
        source.line(line if run[0].valid is None else f"if {expressions.condition(run[0].valid)}: {line}")
    rest = " + rest" if calculation.payload else ""
    source.line(f"return hash_{calculation.algorithm}((data << (-size & 7)).to_bytes(size + 7 >> 3, 'big'){rest})")


def _together(given: Input) -> object:
    return given.valid if given.length is None else id(given)


def _csum16(source: Source, expressions: Expressions, run: list[Input]) -> None:
    """The common case, IPv4's, without making bytes first: see hashes.csum16."""
    words, valid = _number(expressions, run, -_width(run) % 16), run[0].valid
    source.line(f"words = {words}" if valid is None else f"words = {words} if {expressions.condition(valid)} else 0")
    source.line("return -words % 65535 if words else 65535")


def _width(run: list[Input]) -> int:
    return sum(each.bits for each in run)


def _number(expressions: Expressions, run: list[Input], padding: int = 0) -> str:
    """Python for the concatenated bits as one number, with zero bits behind them."""
    low = (0 if run[0].length is not None else _width(run)) + padding
    terms = []
    for each in run:
        low -= each.bits if each.length is None else 0
        value = expressions.value(each.value)
        text = f"({value} & {(1 << each.bits) - 1:#x})" if each.value.signed else value
        terms.append(f"{text} << {low}" if low else text)
    return f"({' | '.join(terms)})"


def write_verification(source: Source, lowered: Lowered, expressions: Expressions) -> None:
    """Write the verification, which sets ``checksum_error``. A checksum in an invalid header counts as right."""
    for each in lowered.verified:
        calculation = lowered.calculations[each.calculation]
        with source.block(f"if {expressions.condition(each.condition)}:"):
            if calculation.payload:
                source.line("rest = frame[at:]")
            wrong = f"{expressions.call(calculation)} != {expressions.name(each.target)}"
            source.line(f"if {wrong}: standard_metadata__checksum_error = 1")


def write_update(source: Source, lowered: Lowered, writer: StatementWriter) -> None:
    """Write the update of checksum fields, before the headers are packed."""
    for each in lowered.updated:
        calculation = lowered.calculations[each.calculation]
        with source.block(f"if {writer.expressions.condition(each.condition)}:"):
            if calculation.payload:
                source.line("rest = payload")
            value = Calculated(WIDTHS[calculation.algorithm], False, each.calculation)
            writer.statements(source, (Store(each.target, value),))
