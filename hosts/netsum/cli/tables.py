# SPDX-License-Identifier: MIT
"""Tables for people, as wide as the terminal: cells break between words; then columns go; no word is cut."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

_ANY: Final = 1 << 16
"""The width of what is not a terminal: nothing has to go there, and nothing may be cut off."""


def table_console(**options: Any) -> Console:
    """Standard output as it is now, for tables."""
    plain = Console(**options)
    return plain if plain.is_terminal else Console(**options, width=_ANY)


class FittingTable(Table):
    """``least``: names of the columns that go first, in that order, where the terminal is too narrow; then they go from the
    right. The first always stays. What has gone is named below the table."""

    def __init__(self, *, least: Sequence[str] = (), **options: Any) -> None:
        super().__init__(**options)
        self.least = least

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width if console.is_terminal else _ANY
        kept = list(self.columns)
        gone = []
        while (widths := self._widths(kept, room)) is None and len(kept) > 1:
            gone.append(kept.pop(self._next_to_go(kept)))
        fitted = copy.copy(self)
        fitted.columns = [
            replace(
                column,
                header=_text(column.header),
                _cells=[_text(cell) for cell in column.cells],
                _index=at,
                width=None if widths is None else widths[at],
                no_wrap=False,
                overflow="fold",
            )
            for at, column in enumerate(kept)
        ]
        yield from Table.__rich_console__(fitted, console, options.update(width=room))
        if names := [" ".join(_plain(column.header).split()) for column in gone]:
            yield Text(f"no room here for {', '.join(filter(None, names))}", style="dim")

    def _next_to_go(self, kept: Sequence[Column]) -> int:
        names = [_plain(column.header) for column in kept]
        return next((names.index(name, 1) for name in self.least if name in names[1:]), len(kept) - 1)

    def _widths(self, columns: Sequence[Column], room: int) -> list[int] | None:
        """Each column's width, the widest of them narrowed until all fit; None if that would cut a word."""
        widths = [max(map(cell_len, _lines(column)), default=0) for column in columns]
        least = [max((cell_len(word) for line in _lines(column) for word in line.split()), default=0) for column in columns]
        free = room - self._around(len(columns))
        if sum(least) > free:
            return None
        while sum(widths) > free:
            widest = max((at for at in range(len(widths)) if widths[at] > least[at]), key=widths.__getitem__)
            widths[widest] -= 1
        return widths

    def _around(self, columns: int) -> int:
        """The width of borders and padding."""
        _, right, _, left = self.padding
        edges = 0 if self.pad_edge else left + right
        lines = 0 if self.box is None else columns - 1 + (2 if self.show_edge else 0)
        return columns * (left + right) - edges + lines


def _lines(column: Column) -> Iterator[str]:
    for cell in (column.header, *column.cells):
        yield from _plain(cell).splitlines()


def _plain(cell: Any) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


def _text(cell: Any) -> Text:
    """The cell without rich's markup: names and addresses may have brackets, or `:b:`."""
    return cell if isinstance(cell, Text) else Text(str(cell))


# Tables for people.


def make_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]] = ()) -> FittingTable:
    """A table; the cells of a column ``>name`` are aligned to the right."""
    table = FittingTable(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns:
        name = column.removeprefix(">")
        table.add_column(name, justify="left" if name == column else "right")
    for row in rows:
        table.add_row(*row)
    return table
