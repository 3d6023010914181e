# SPDX-License-Identifier: MIT
"""Tables on a terminal of 80 columns: columns go, and words stay whole."""

from __future__ import annotations

import ast
import io
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from netsum.cli.tables import FittingTable, make_table, table_console
from netsum_controller.cli import options
from rich.box import SIMPLE_HEAD
from rich.console import Console

from tests.repository.tree import ROOTS, imports, name_of

WIDTH = 80
WORD = st.text("abcdefgh0123456789.,/:-", min_size=1, max_size=24)
CELL = st.lists(WORD, min_size=1, max_size=3).map(" ".join)


def shown(table: FittingTable, width: int = WIDTH) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, highlight=False)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def table_of(columns: Sequence[str], rows: Sequence[Sequence[str]], least: Sequence[str] = (), **look: object) -> FittingTable:
    table = FittingTable(least=least, **look)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    return table


@given(
    st.integers(1, 14).flatmap(lambda n: st.lists(st.lists(CELL, min_size=n, max_size=n, unique=True), min_size=1, max_size=4)),
    st.sampled_from([{"box": SIMPLE_HEAD}, {"box": SIMPLE_HEAD, "pad_edge": False}, {"box": None, "pad_edge": False}, {}]),
    st.integers(40, 200),
)
def test_words_stay_whole_and_lines_fit(rows: list[list[str]], look: dict[str, Any], width: int) -> None:
    """Whatever the words, the widths and the borders are. Every column is there, or named as missing."""
    columns = [f"C{at}" for at in range(len(rows[0]))]
    said = shown(table_of(columns, rows, **look), width)
    table, _, missing = said.partition("no room here for ")
    gone = {name.strip() for name in missing.split(",") if name.strip()}
    assert all(len(line) <= width for line in table.splitlines()), said
    words = table.split()
    for at, name in enumerate(columns):
        assert (name in words) is (name not in gone)
        if name not in gone:
            assert all(set(row[at].split()) <= set(words) for row in rows), said
    assert columns[0] not in gone


def test_what_matters_least_goes_first() -> None:
    columns, row = ("NAME", "TENANT", "EPOCH", "STATE"), ("n" * 20, "t" * 20, "e" * 20, "s" * 20)
    assert "no room here for TENANT\n" in shown(table_of(columns, [row], ("TENANT", "EPOCH")))
    assert "no room here for STATE\n" in shown(table_of(columns, [row]))
    assert "no room" not in shown(table_of(columns, [row]), 100)
    assert "no room here for TENANT, EPOCH, STATE\n" in shown(table_of(columns, [row], ("TENANT", "EPOCH")), 40)


def test_nothing_goes_from_what_is_no_terminal() -> None:
    """A file has no width, and who reads it may count columns."""
    console = table_console(file=io.StringIO())
    console.print(make_table("", [f"column {at}" for at in range(40)], [[f"value-{at}" for at in range(40)]]))
    assert isinstance(console.file, io.StringIO)
    assert all(f"value-{at}" in console.file.getvalue().split() for at in range(40))


def test_all_tables_are_such() -> None:
    wrong = [
        name_of(path)
        for package in ROOTS.values()
        for path in package.rglob("*.py")
        if "rich.table.Table" in imports(path) and path.name != "tables.py"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Table"
    ]
    assert not wrong, "make a FittingTable (netsum.cli.tables)"
    assert options.console().is_terminal or options.console().width > 1000
