"""docs/protocol.md names every rule that is switched off, and every outcome."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from netsum.wire.schema import Outcome

from tests.model.copies import COPY_MUTATIONS
from tests.model.flags import Rules
from tests.model.forest import TREE_MUTATIONS
from tests.model.late import LATE_MUTATIONS
from tests.model.scenarios import MUTATIONS

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text("utf-8")


def test_the_table_of_rules_is_complete() -> None:
    table = "\n".join(line for line in PAGE.splitlines() if line.startswith("|"))
    named = set(re.findall(r"`([^`]+)`", table))
    off = {mutation.rule for mutation in MUTATIONS + LATE_MUTATIONS + TREE_MUTATIONS + COPY_MUTATIONS}
    assert off | {each.name for each in fields(Rules)} <= named


def test_every_outcome_is_explained() -> None:
    named = set(re.findall(r"`([A-Z_]+)`", PAGE))
    assert {outcome.name for outcome in Outcome} <= named
