"""How commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

MIN_WIDTH = 100
"""Columns of a table that is not printed to a terminal."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def console() -> Console:
    """Standard output as it is now (tests and pipes replace it)."""
    plain = Console(highlight=False, soft_wrap=False)
    return plain if plain.is_terminal else Console(highlight=False, width=max(MIN_WIDTH, plain.width))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table; ints are right-aligned."""
    rows = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[index], int) for row in rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(str(value) for value in row))
    console().print(table)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))
