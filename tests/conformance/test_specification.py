# SPDX-License-Identifier: MIT
"""PROTOCOL.md: its rules are numbered, and point at what exists; every mutation of the model is some rule's."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields

import pytest
from netsum.wire import schema
from netsum.wire.schema import Outcome
from netsum.wire.to_docs import page_text

from tests.conformance.specification import MODELS, PAGE, UNIT, Rule, SpecificationError, mutations, parse, rules
from tests.model import test_explore
from tests.model.flags import Rules

RULES = rules()
TEXT = PAGE.read_text("utf-8")
POINTED = {(each.place, each.name) for rule in RULES for each in rule.evidence if each.is_mutation}
KEY_WORDS = re.compile(r"\b(?:MUST|SHOULD|MAY)\b")


def test_every_number_is_given_once_and_in_order() -> None:
    numbers = [rule.number for rule in RULES]
    assert [number for number, count in Counter(numbers).items() if count > 1] == []
    assert numbers == sorted(numbers, key=lambda number: ("SHC".index(number[0]), int(number[1:])))
    assert set(re.findall(r"\b[SHC]\d+\b", TEXT)) == set(numbers)  # and what the text refers to is there
    assert len(numbers) > 100


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.number)
def test_a_rule_points_at_what_exists(rule: Rule) -> None:
    assert rule.evidence, "nothing shows it"
    for each in rule.evidence:
        each.check()


def test_what_a_rule_points_at_is_explored() -> None:
    explored = {scenario.name for scenario in test_explore.EVERY_SCENARIO}
    named = {each.scenario for rule in RULES for each in rule.evidence if not each.is_mutation and each.place in MODELS}
    assert {scenario.name for scenario in named if scenario is not None} <= explored


def test_every_mutation_is_a_rules() -> None:
    every = {(place, each.rule) for place in MODELS for each in mutations(place)}
    assert len(every) > 60
    assert every <= POINTED
    tested = {each.name for each in fields(Rules)}  # of those, some are switched off by unit tests
    assert tested <= {name for _, name in POINTED}
    assert {name for place, name in POINTED if place == UNIT} == tested - {name for _, name in every}


def test_every_outcome_is_some_rules() -> None:
    named = {word for rule in RULES if rule.number[0] == "S" for word in re.findall(r"\b[A-Z_]{4,}\b", rule.text)}
    assert {outcome.name for outcome in Outcome} <= named


def test_most_rules_bind() -> None:
    """Few define a word or a place instead."""
    assert sum(bool(KEY_WORDS.search(rule.text)) for rule in RULES) > len(RULES) / 2


def test_the_tables_are_the_schemas() -> None:
    assert page_text(TEXT) == TEXT, "run `make p4` and commit the result"


def test_the_header_is_in_the_specification() -> None:
    for field in (*schema.HEADER_FIELDS, *schema.QUERY_FIELDS):
        assert f"| {field.name} | {field.bits} | {field.doc} |\n" in TEXT


@pytest.mark.parametrize(
    "line",
    [
        "* **S1** A rule. `late/there is no such scenario`",
        "* **S1** A rule. ¬`late/no_such_rule`",
        "* **S1** A rule. ¬`test_rules/no_such_rule`",
        "* **S1** A rule. `test_aging/test_that_does_not_exist`",
        "* **S1** A rule. `nowhere/test_aging/test_firm_blocks_wait`",
    ],
)
def test_the_check_can_fail(line: str) -> None:
    (rule,) = parse(f"{line}\n\n")
    (evidence,) = rule.evidence
    with pytest.raises(SpecificationError, match="there is no"):
        evidence.check()
