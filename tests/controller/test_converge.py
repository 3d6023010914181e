"""The order in which items are written to a switch."""

from __future__ import annotations

from dataclasses import fields

from netsum_controller.p4runtime.converge import plan
from netsum_controller.stages import TABLES


def test_every_table_has_its_place_in_the_order() -> None:
    entries = [table(**{field.name: 1 for field in fields(table) if field.init}) for table in TABLES]
    written = [step.update.item.identity[0] for step in plan(entries, [])]
    assert set(written) == {table.TABLE for table in TABLES}
    assert written[-1] == "job", "the one that lets a contribution in comes last"
    assert next(step.update.item.identity[0] for step in plan([], entries)) == "job"
