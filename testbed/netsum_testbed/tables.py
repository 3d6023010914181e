"""Tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from netsum.agent.tables import FittingTable
from rich.box import SIMPLE_HEAD


def make_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]] = ()) -> FittingTable:
    """A table; the cells of a column ``>name`` are aligned to the right."""
    table = FittingTable(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns:
        name = column.removeprefix(">")
        table.add_column(name, justify="left" if name == column else "right")
    for row in rows:
        table.add_row(*row)
    return table
