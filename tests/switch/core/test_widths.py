# SPDX-License-Identifier: MIT
"""Integers and headers beyond what LLVM computes in one piece, against Python's integers: fields of up to 20,000 bits that
begin anywhere, and every operator on them."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum_switch.errors import SwitchError
from netsum_switch.pipeline import Pipeline, load_pipeline

from tests.switch.core.made import Fields, Json, field, packed, program, result_of
from tests.switch.core.switches import ethernet

WIDTHS = (1, 7, 13, 64, 100, 600, 2049, 8192, 8193, 12_345, 16_384, 20_000)
MOST = 60_000
"""Bits of what an expression may need."""


def constant(value: int) -> Json:
    return {"type": "hexstr", "value": hex(value)}


def operation(op: str, left: Json | None, right: Json, condition: Json | None = None) -> Json:
    value = {"op": op, "left": left, "right": right}
    return {"type": "expression", "value": value if condition is None else {**value, "cond": condition}}


Operator = Callable[[int, int], int]
OPERATORS: dict[str, Operator] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "&": lambda a, b: a & b,
    "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "/": lambda a, b: a // b, "%": lambda a, b: a % b,
    "<<": lambda a, b: a << b, ">>": lambda a, b: a >> b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "two_comp_mod": lambda a, width: (a + (1 << width - 1) & (1 << width) - 1) - (1 << width - 1),
    "usat_cast": lambda a, width: min(max(a, 0), (1 << width) - 1),
    "sat_cast": lambda a, width: min(max(a, -1 << width - 1), (1 << width - 1) - 1),
}  # fmt: skip
UNSIGNED = ("/", "%", "<<")
TO_WIDTH = ("two_comp_mod", "usat_cast", "sat_cast")

Evaluated = tuple[Json, Callable[[dict[str, int]], int], int, bool]
"""An expression, its value, the bits that it can need and whether it can be negative."""


def leaf(chance: random.Random, operands: Fields) -> Evaluated:
    if chance.random() < 0.2:
        value = chance.getrandbits(chance.choice(WIDTHS)) + 1
        return constant(value), lambda _: value, value.bit_length(), False
    name, width = chance.choice(operands)
    return field(name), lambda values: values[name], width, False


def tree(chance: random.Random, operands: Fields, depth: int) -> Evaluated:
    """A random expression."""
    if depth == 0:
        return leaf(chance, operands)
    left, of_left, bits, signed = tree(chance, operands, depth - 1)
    right, of_right, other_bits, other_signed = tree(chance, operands, chance.randrange(depth))
    if chance.random() < 0.15:
        made = operation("?", left, right, operation(">", left, right))
        both = max(bits, other_bits) + 1, signed or other_signed
        return made, lambda values: max(of_left(values), of_right(values)), *both
    if chance.random() < 0.1:
        return operation("~", None, left), lambda values: ~of_left(values), bits + 1, True
    op = chance.choice(list(OPERATORS))
    apply = OPERATORS[op]
    if op in TO_WIDTH:
        width = chance.choice(WIDTHS[2:])
        made = operation(op, left, constant(width))
        return made, lambda values: apply(of_left(values), width), width, op != "usat_cast"
    if op in (">>", "<<"):
        right, of_right, other_bits, other_signed = constant(0), lambda _: 0, 1, False
        distance = chance.choice((0, 1, 63, 64, 65, 5000, 9001))
        right, of_right = constant(distance), lambda _: distance
        bits += distance if op == "<<" else 0
    elif op == "*":
        bits += other_bits
    if (op in UNSIGNED and (signed or other_signed)) or max(bits, other_bits) > MOST:
        return left, of_left, bits, signed
    if op in ("/", "%"):  # never by 0
        right, divisor = operation("|", right, constant(1)), of_right
        of_right = lambda values: divisor(values) | 1  # noqa: E731
    narrow = op in ("==", "!=", "<", "<=", ">", ">=")
    made = operation(op, left, right)
    value = lambda values: int(apply(of_left(values), of_right(values)))  # noqa: E731
    if narrow:
        return made, value, 1, False
    return made, value, max(bits, other_bits) + 1, signed or other_signed or op == "-"


def fields(chance: random.Random) -> Fields:
    """Fields that end with a whole byte, and seldom begin with one."""
    widths = [chance.choice(WIDTHS) for _ in range(5)]
    widths.append(-sum(widths) % 8 or 8)
    return [(f"f{at}", width) for at, width in enumerate(widths)]


def edge(chance: random.Random, width: int) -> int:
    top = (1 << width) - 1
    return chance.choice([0, 1, top, 1 << width - 1, chance.getrandbits(width), chance.getrandbits(width) & 0xFFFF & top])


@pytest.mark.parametrize("seed", range(16))
def test_operators_on_fields_of_any_width(seed: int) -> None:
    chance = random.Random(seed)
    operands, width = fields(chance), chance.choice(WIDTHS)
    expression, value, _, _ = tree(chance, operands, 3)
    pipeline = load_pipeline(program(operands, width, expression))
    for _ in range(6):
        values = {name: edge(chance, bits) for name, bits in operands}
        packet = packed(operands, values) + b"rest"
        assert result_of(pipeline, width, packet) == (value(values) & (1 << width) - 1, packet)


SIDE_BY_SIDE: dict[str, tuple[Json, Callable[[int, int, int], int]]] = {
    "a + b": (operation("+", field("a"), field("b")), lambda a, b, _: a + b),
    "a - b": (operation("-", field("a"), field("b")), lambda a, b, _: a - b),
    "a + b - c": (operation("-", operation("+", field("a"), field("b")), field("c")), lambda a, b, c: a + b - c),
    "(a & b) + (b ^ ~c)": (
        operation(
            "+",
            operation("&", field("a"), field("b")),
            operation("^", field("b"), operation("~", None, field("c"))),
        ),
        lambda a, b, c: (a & b) + (b ^ ~c),
    ),
    "a + constant": (operation("+", field("a"), constant((1 << 1000) - 3)), lambda a, _b, _c: a + (1 << 1000) - 3),
    "a + (b | 5)": (
        operation("+", field("a"), operation("|", field("b"), constant(5))),
        lambda a, b, _: a + (b | 5),
    ),
}
LIMBS = st.sampled_from([0, 1, (1 << 64) - 1, (1 << 64) - 2, 1 << 63]) | st.integers(0, (1 << 64) - 1)


@cache
def side_by_side(name: str, width: int) -> Pipeline:
    return load_pipeline(program([(each, width) for each in "abc"], width, SIDE_BY_SIDE[name][0]))


@pytest.mark.parametrize("width", [1024, 2048, 2112, 4096])
@pytest.mark.parametrize("name", SIDE_BY_SIDE)
@given(st.data())
def test_limbs_side_by_side_are_limbs_one_after_the_other(name: str, width: int, data: st.DataObject) -> None:
    """With a carry between any two limbs, or none."""
    values = {
        each: sum(limb << 64 * at for at, limb in enumerate(data.draw(st.lists(LIMBS, min_size=1, max_size=width // 64))))
        for each in "abc"
    }
    packet = packed([(each, width) for each in "abc"], values)
    expected = SIDE_BY_SIDE[name][1](values["a"], values["b"], values["c"]) & (1 << width) - 1
    assert result_of(side_by_side(name, width), width, packet)[0] == expected


def test_a_group_of_fields_longer_than_one_number() -> None:
    """1,200 fields of 7 to 9 bits, of which none but the first and the last is at the edge of a byte."""
    chance = random.Random(1)
    operands = [("first", 1)] + [(f"f{at}", 8) for at in range(1200)] + [("last", 7)]
    pipeline = load_pipeline(program(operands, 8, operation("^", field("f3"), field("f1199"))))
    values = {name: chance.getrandbits(width) for name, width in operands}
    packet = packed(operands, values)
    assert result_of(pipeline, 8, packet) == (values["f3"] ^ values["f1199"], packet)


def test_division_by_0_ends_the_packet_at_any_width() -> None:
    for width in (8, 64, 100, 600, 9000):
        operands = [("a", width), ("b", width)]
        pipeline = load_pipeline(program(operands, width, operation("/", field("a"), field("b"))))
        packet = packed(operands, {"a": 7, "b": 2})
        assert result_of(pipeline, width, packet)[0] == 3
        with pytest.raises(SwitchError, match="a division by 0"):
            pipeline.process(1, ethernet() + packed(operands, {"a": 7, "b": 0}))


@pytest.mark.parametrize("op", ["<<", ">>"])
@pytest.mark.parametrize("width", [8, 64, 600])
def test_a_shift_by_a_difference(op: str, width: int) -> None:
    """A negative distance, which ends simple_switch, is 0."""
    operands = [("a", width), ("b", 8)]
    pipeline = load_pipeline(program(operands, width, operation(op, field("a"), operation("-", field("b"), constant(3)))))
    chance = random.Random(width)
    for distance in (0, 2, 3, 4, 10, 255):
        value = chance.getrandbits(width)
        packet = packed(operands, {"a": value, "b": distance})
        expected = OPERATORS[op](value, max(0, distance - 3)) & (1 << width) - 1
        assert result_of(pipeline, width, packet)[0] == expected
