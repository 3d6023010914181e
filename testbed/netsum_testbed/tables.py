"""Tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

WIDTH: Final = 150


def make_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]] = ()) -> Table:
    """A table; the cells of a column ``>name`` are aligned to the right."""
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns:
        name = column.removeprefix(">")
        table.add_column(name, justify="left" if name == column else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def wide_console() -> Console:
    """A console wide enough for any table, even without a terminal."""
    return Console(width=max(Console().width, WIDTH))
