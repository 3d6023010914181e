# SPDX-License-Identifier: MIT
"""The rules of PROTOCOL.md, and the scenarios, tests and mutations that they point at."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

from tests.model import copies, forest, late, scenarios, test_rules
from tests.model.mutations import Mutation
from tests.model.scenario import Scenario

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "PROTOCOL.md"
MODELS: Final[dict[str, ModuleType]] = {"scenarios": scenarios, "late": late, "forest": forest, "copies": copies}
"""The modules of tests/model that have scenarios and mutations."""
UNIT: Final = "test_rules"
"""The module of the mutations that a test shows, since without these rules only time is lost."""

_RULE: Final = re.compile(r"^\* \*\*([SHC]\d+)\*\* (.*?)(?=^\* |^$|^#)", re.MULTILINE | re.DOTALL)
_POINTER: Final = re.compile(r"(¬?)`((?:[a-z_]+/)+)([^`]+)`")


class SpecificationError(Exception):
    """A rule points at what does not exist."""


@dataclass(frozen=True)
class Evidence:
    """What a rule points at: a scenario or a test, or a mutation. ``place`` is a file, as the page names it."""

    place: str
    name: str
    is_mutation: bool

    def __str__(self) -> str:
        return f"{'¬' * self.is_mutation}{self.place}/{self.name}"

    @property
    def scenario(self) -> Scenario | None:
        """The scenario that explores the rule; None of a test."""
        if self.is_mutation:
            found = [each.scenario for each in mutations(self.place) if each.rule == self.name]
            return found[0] if found else None
        return _scenarios(self.place).get(self.name)

    @property
    def test(self) -> tuple[Path, str] | None:
        """The file and the function of a test."""
        if self.is_mutation or self.place in MODELS:
            return None
        folder, _, stem = self.place.rpartition("/")
        return ROOT / "tests" / (folder or "protocol") / f"{stem}.py", self.name

    def check(self) -> None:
        """Raise SpecificationError if there is no such thing."""
        if self.is_mutation and self.place == UNIT:
            there = self.name in {"address_of_this_epoch", *test_rules.OUT}
        elif self.place in MODELS:
            there = self.scenario is not None
        else:
            file, function = self.test or (ROOT, "")
            there = (
                file.is_file() and re.search(rf"^def {re.escape(function)}\(", file.read_text("utf-8"), re.MULTILINE) is not None
            )
        if not there:
            raise SpecificationError(f"there is no {self}")


@dataclass(frozen=True)
class Rule:
    """One rule: its number, its text without the pointers, and what it points at."""

    number: str
    text: str
    evidence: tuple[Evidence, ...]


def parse(page: str) -> list[Rule]:
    """The rules of a page, in its order."""
    found = []
    for number, body in _RULE.findall(page):
        joined = " ".join(body.split())
        evidence = tuple(Evidence(place.rstrip("/"), name, bool(mark)) for mark, place, name in _POINTER.findall(joined))
        found.append(Rule(number, _POINTER.sub("", joined).strip(), evidence))
    return found


@cache
def rules() -> list[Rule]:
    """The rules of PROTOCOL.md."""
    return parse(PAGE.read_text("utf-8"))


def mutations(place: str) -> Iterable[Mutation]:
    """The mutations of a module of the model; none of another file."""
    if place not in MODELS:
        return ()
    tuples = (value for value in vars(MODELS[place]).values() if isinstance(value, tuple))
    return tuple(each for value in tuples for each in value if isinstance(each, Mutation))


@cache
def _scenarios(place: str) -> dict[str, Scenario]:
    """The scenarios of a module of the model, by name."""
    values = [value for value in vars(MODELS[place]).values() if isinstance(value, tuple | Scenario)] if place in MODELS else []
    every = [each for value in values for each in (value if isinstance(value, tuple) else (value,))]
    return {each.name: each for each in every if isinstance(each, Scenario)}
