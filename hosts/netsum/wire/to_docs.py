"""Writes the table of operations in ``docs/wire.md`` from the schema: ``make p4``."""

from __future__ import annotations

from pathlib import Path

from netsum.wire.schema import COMBINING, Op

PAGE = Path(__file__).parents[3] / "docs" / "wire.md"
_BEGIN, _END = "<!-- operations: written by `make p4` -->\n", "<!-- end of operations -->"


def _row(op: Op) -> str:
    expression, types = op.p4.replace("|", "\\|"), ", ".join(op.types.split())
    return f"| {op.value} {op.name} | `{expression}` | {op.values} | {types} | {'ones' if op.identity else '0'} |\n"


def page_text(page: str) -> str:
    head, rest = page.split(_BEGIN)
    tail = rest.partition(_END)[2]
    title = "| op | the slot's new lane | values | types | empty stands for |\n|---|---|---|---|---|\n"
    return head + _BEGIN + title + "".join(_row(op) for op in COMBINING) + _END + tail


if __name__ == "__main__":
    PAGE.write_text(page_text(PAGE.read_text("utf-8")), "utf-8")
