# SPDX-License-Identifier: MIT
"""The parts of a lowered program: statements, the parser's states, the controls' nodes, calculations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass

from netsum_switch.lowering.values import Expression, Variable, walk


@dataclass(frozen=True, slots=True)
class Store:
    """The value, cut to the variable's width."""

    target: Variable
    value: Expression


@dataclass(frozen=True, slots=True)
class If:
    condition: Expression
    then: Statements
    otherwise: Statements = ()


@dataclass(frozen=True, slots=True)
class RegisterRead:
    """Does nothing if the index is outside, as all four of these."""

    target: Variable
    array: str
    index: Expression


@dataclass(frozen=True, slots=True)
class RegisterWrite:
    array: str
    index: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class Count:
    array: str
    index: Expression


@dataclass(frozen=True, slots=True)
class MeterRead:
    """The packet's color."""

    target: Variable
    array: str
    index: Expression


@dataclass(frozen=True, slots=True)
class Assert:
    """The packet is dropped, and that is said, if it does not hold."""

    condition: Expression


@dataclass(frozen=True, slots=True)
class Log:
    text: str
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Jumping:
    """An action with ``if`` or loops: statements, and after each where it goes on. ``steps[n]`` is (statements, condition,
    next if it holds or there is none, next if not); len(steps) is the end."""

    steps: tuple[tuple[Statements, Expression | None, int, int], ...]


# Statements of the parser. An error sets parser_error and ends it.


@dataclass(frozen=True, slots=True)
class Extract:
    """``length`` is the bits of the varbit field, if the header has one."""

    header: str
    length: Expression | None = None


@dataclass(frozen=True, slots=True)
class Peek:
    """``lookahead``: bits from an offset behind the position."""

    target: Variable
    offset: int


@dataclass(frozen=True, slots=True)
class Advance:
    """Skip this many bits."""

    bits: Expression


@dataclass(frozen=True, slots=True)
class Verify:
    """The error, if the condition does not hold; a condition that is None never does."""

    condition: Expression | None
    error: Expression


Statement = (
    Store | If | RegisterRead | RegisterWrite | Count | MeterRead | Assert | Log | Jumping | Extract | Peek | Advance | Verify
)  # fmt: skip
Statements = tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class State:
    """A state of the parser. ``next`` are conditions in order with where they lead (None: the end); the last has none."""

    name: str
    body: Statements
    next: tuple[tuple[Expression | None, str | None], ...]


@dataclass(frozen=True, slots=True)
class Action:
    """``exits``: whether it leaves the control, always or (None) when the variable ``leaving`` is set."""

    body: Statements
    exits: bool | None = False


@dataclass(frozen=True, slots=True)
class Condition:
    condition: Expression
    yes: str | None
    no: str | None


@dataclass(frozen=True, slots=True)
class Apply:
    """A table. ``widths`` are those of its key fields, as it is matched; ``meter`` runs before the action of an entry;
    ``actions`` come with where each leads."""

    table: str
    keys: tuple[Expression, ...]
    widths: tuple[int, ...]
    with_counters: bool
    meter: MeterRead | None
    profile: str | None  # an entry names a member of it, or a group that `selector` chooses from
    selector: str | None  # a calculation
    actions: tuple[tuple[Action, str | None], ...]
    hit: str | None
    miss: str | None
    by_hit: bool
    otherwise: str | None  # after an action that is none


@dataclass(frozen=True, slots=True)
class Direct:
    """An action that needs no table."""

    action: Action
    next: str | None


Node = Condition | Apply | Direct


@dataclass(frozen=True, slots=True)
class Control:
    """A graph of nodes, without a cycle."""

    name: str
    entry: str | None
    nodes: dict[str, Node]


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a calculation: a value of ``bits`` bits, present if ``valid`` holds. ``length``: the bits in a
    varbit field."""

    value: Expression
    bits: int
    valid: Expression | None
    length: Expression | None = None


@dataclass(frozen=True, slots=True)
class Calculation:
    name: str
    algorithm: str
    inputs: tuple[Input, ...]
    payload: bool


@dataclass(frozen=True, slots=True)
class Checksum:
    calculation: str
    target: Variable
    condition: Expression


@dataclass(frozen=True, slots=True)
class Digest:
    list_id: int
    values: tuple[Expression, ...]


def statements_in(statements: Statements) -> Iterator[Statement]:
    """All, those inside of others too."""
    for each in statements:
        yield each
        if isinstance(each, If):
            yield from statements_in(each.then)
            yield from statements_in(each.otherwise)
        elif isinstance(each, Jumping):
            for body, *_ in each.steps:
                yield from statements_in(body)


def written(statements: Statements) -> set[Variable]:
    """The variables that statements of a control set."""
    targets = (Store, RegisterRead, MeterRead)
    return {each.target for each in statements_in(statements) if isinstance(each, targets)}


def read(thing: object) -> set[Variable]:
    """The variables that statements, nodes or anything made of them read."""
    if isinstance(thing, Expression):
        return {each for each in walk(thing) if isinstance(each, Variable)}
    parts: list[object] = []
    if isinstance(thing, tuple | list):
        parts = list(thing)
    elif isinstance(thing, dict):
        parts = list(thing.values())
    elif is_dataclass(thing):
        parts = [getattr(thing, each.name) for each in fields(thing) if each.name != "target"]
    return set().union(*map(read, parts))
