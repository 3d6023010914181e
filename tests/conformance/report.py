# SPDX-License-Identifier: MIT
"""What was found out about rules, as people and programs read it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

import click


class Verdict(Enum):
    """What the tests say about a rule."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_COVERED = "not covered"


class Finding(NamedTuple):
    """A rule's number, the verdict, and what it rests on."""

    number: str
    verdict: Verdict
    words: str = ""


def report(findings: Iterable[Finding]) -> int:
    """Print a line a rule, then one JSON line of counts; returns the exit code."""
    counts: Counter[Verdict] = Counter()
    for finding in findings:
        counts[finding.verdict] += 1
        click.echo(f"{finding.number:<4} {finding.verdict.value:<11} {finding.words}".rstrip())
    click.echo(json.dumps({verdict.value.replace(" ", "_"): counts[verdict] for verdict in Verdict}))
    return 1 if counts[Verdict.FAILED] else 0
