"""How commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click
from netsum.agent.tables import FittingTable, table_console
from rich import box
from rich.console import Console

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def console() -> Console:
    """Standard output as it is now (tests and pipes replace it)."""
    return table_console(highlight=False, soft_wrap=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], least: Sequence[str] = ()) -> None:
    """A table; ints are right-aligned. ``least``: columns that go first where the terminal is too narrow."""
    rows = [list(row) for row in rows]
    table = FittingTable(box=box.SIMPLE_HEAD, least=least)
    for index, column in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[index], int) for row in rows)
        table.add_column(column, justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*(str(value) for value in row))
    console().print(table)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))
