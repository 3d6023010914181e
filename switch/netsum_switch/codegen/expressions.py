"""Lowered expressions as Python, whose integers are unbounded, as BMv2's are. A value is cut when it is stored."""

from __future__ import annotations

from netsum_switch.codegen.source import bits_var, field_var, ident, next_var
from netsum_switch.lowering.program import Lowered
from netsum_switch.lowering.statements import Calculation, read
from netsum_switch.lowering.values import (
    COMPARISONS,
    LONGEST_SHIFT,
    Calculated,
    Constant,
    Expression,
    Operation,
    Parameter,
    Random,
    Slot,
    Variable,
)

_CASTS = {"two_comp": "two_comp_mod", "usat": "usat_cast", "sat": "sat_cast"}
_TRUTHS = frozenset({*COMPARISONS, "and", "or", "not"})
# A shift by a number of this many bits needs no limit.
_DISTANCE_BITS = 13


class Expressions:
    """Writes expressions of one program."""

    def __init__(self, lowered: Lowered) -> None:
        self._calculations = lowered.calculations
        self._names = _names(lowered)
        self._length = lowered.variables.mark("length")

    def name(self, variable: Variable) -> str:
        """The local variable."""
        found = self._names.get(variable.name)
        return ident(variable.name.lstrip("$")) if found is None else found

    def value(self, expression: Expression) -> str:
        """Python for an integer."""
        if isinstance(expression, Constant):
            number = expression.value
            return hex(number) if number > 0xFF else str(number) if number >= 0 else f"({number})"
        if isinstance(expression, Variable):
            return self.name(expression)
        if isinstance(expression, Parameter):
            return f"row[{expression.index + 2}]"
        if isinstance(expression, Slot):
            return "row[1].slot"
        if isinstance(expression, Calculated):
            return self.call(self._calculations[expression.calculation])
        if isinstance(expression, Random):
            return f"randint({self.value(expression.low)}, {self.value(expression.high)})"
        assert isinstance(expression, Operation), expression
        return self._operation(expression.op, expression)

    def condition(self, expression: Expression) -> str:
        """Python for a truth: True and False do as well as 1 and 0."""
        if not isinstance(expression, Operation) or expression.op not in _TRUTHS:
            return self.value(expression)
        op, operands = expression.op, expression.operands
        if op == "not":
            return f"(not {self.condition(operands[0])})"
        if op in COMPARISONS:
            return f"({self.value(operands[0])} {op} {self.value(operands[1])})"
        return f"({f' {op} '.join(self.condition(each) for each in _terms(op, expression))})"

    def stored(self, target: Variable, value: Expression) -> str:
        """A value cut to the width of its target, if it can be wider."""
        fits = value.signed_bits <= target.bits if target.signed else not value.signed and value.bits <= target.bits
        if target is self._length:  # it is the sum of sizes of headers, and never wide
            fits = True
        return self.value(value) if fits else cut(target, self.value(_unmasked(value, target.bits)))

    def call(self, calculation: Calculation) -> str:
        """Python that calls a calculation with the variables in scope (and ``rest``, for one with payload)."""
        return f"calculate_{ident(calculation.name)}({', '.join(self.parameters(calculation))})"

    def parameters(self, calculation: Calculation) -> list[str]:
        """Variables that a calculation reads."""
        return sorted(map(self.name, read(calculation))) + (["rest"] if calculation.payload else [])

    def _operation(self, op: str, expression: Operation) -> str:
        operands = expression.operands
        if op in _TRUTHS:
            return f"(1 if {self.condition(expression)} else 0)"
        if op == "?":
            return self._choice(expression)
        if op in ("~", "neg"):
            return f"({'~' if op == '~' else '-'}{self.value(operands[0])})"
        left, right = operands
        if op == "&":
            left, right = (_unmasked(one, _ones(other)) for one, other in ((left, right), (right, left)))
        one, other = self.value(left), self.value(right)
        if op in _CASTS:
            return f"{_CASTS[op]}({one}, {other})"
        if op == "<<" and not isinstance(right, Constant) and right.bits > _DISTANCE_BITS:
            other = f"min({other}, {LONGEST_SHIFT})"
        return f"({one} {'//' if op == '/' else op} {other})"

    def _choice(self, expression: Expression) -> str:
        text = ""
        while isinstance(expression, Operation) and expression.op == "?":
            condition, yes, expression = expression.operands
            text += f"{self.value(yes)} if {self.condition(condition)} else "
        return f"({text}{self.value(expression)})"


def cut(target: Variable, text: str) -> str:
    """Python for a value that is cut to the width of its target."""
    return f"two_comp_mod({text}, {target.bits})" if target.signed else f"{text} & {(1 << target.bits) - 1:#x}"


def _names(lowered: Lowered) -> dict[str, str]:
    """The local variables of headers, metadata and stacks by the variables' names; those of others follow from the name."""
    variables = lowered.variables
    names = {variables.next(stack).name: next_var(stack) for stack in lowered.program.columns}
    for header in lowered.program.headers.values():
        for field in (*(each.name for each in header.fields), *(() if header.metadata else ("$valid$",))):
            names[variables.field(header.name, field).name] = field_var(header.name, field)
        length = variables.length(header.name)
        if length is not None and header.varbit is not None:
            names[length.name] = bits_var(header.name, header.varbit)
    return names


def _terms(op: str, expression: Expression) -> list[Expression]:
    """The operands of nested ``and``s or ``or``s as one list: Python limits how deep parentheses nest."""
    terms: list[Expression] = []
    while isinstance(expression, Operation) and expression.op == op:
        expression, last = expression.operands
        terms.insert(0, last)
    return [expression, *terms]


def _ones(mask: Expression) -> int:
    """The bits of a mask that is nothing but ones, else 0."""
    whole = isinstance(mask, Constant) and mask.value > 0 and mask.value & (mask.value + 1) == 0
    return mask.bits if whole else 0


def _unmasked(value: Expression, bits: int) -> Expression:
    """The value without masks that change none of its lowest bits."""
    while bits and isinstance(value, Operation) and value.op == "&":
        kept = [one for one, mask in (value.operands, value.operands[::-1]) if _ones(mask) >= bits]
        if not kept:
            break
        value = kept[0]
    return value


def two_comp_mod(value: int, width: int) -> int:
    """``value`` as a two's complement number of ``width`` bits."""
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def usat_cast(value: int, width: int) -> int:
    """``value`` saturated to the unsigned range."""
    return min(max(value, 0), (1 << width) - 1)


def sat_cast(value: int, width: int) -> int:
    """``value`` saturated to the signed range."""
    return min(max(value, -(1 << (width - 1))), (1 << (width - 1)) - 1)
