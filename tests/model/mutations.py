# SPDX-License-Identifier: MIT
"""Rules switched off one by one to see the explorer object."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tests.model.flags import Rules
from tests.model.host import HostRules
from tests.model.scenario import Scenario


class Mutation(NamedTuple):
    """A rule switched off, and what the explorer must find then (a part of the violation's first line)."""

    rule: str
    scenario: Scenario
    finds: str


def switch_rule(rule: str, scenario: Scenario, finds: str) -> Mutation:
    """One of the switch's."""
    return Mutation(rule, replace(scenario, rules=replace(Rules(), **{rule: False})), finds)


def host_rule(rule: str, scenario: Scenario, finds: str) -> Mutation:
    """One of the hosts'."""
    return Mutation(rule, replace(scenario, host_rules=replace(HostRules(), **{rule: False})), finds)


def epoch_rules(scenario: Scenario, finds: str, *rules: str) -> Mutation:
    """The controller's, one or several that protect together."""
    off = dict.fromkeys(rules, False)
    return Mutation("+".join(rules), replace(scenario, epoch_rules=replace(scenario.epoch_rules, **off)), finds)
