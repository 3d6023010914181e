# SPDX-License-Identifier: MIT
"""Writes the tables in ``PROTOCOL.md`` from the schema: ``make p4``."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Sequence
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Final

from netsum.wire import memory, schema
from netsum.wire.schema import COMBINING, Field, Op

PAGE: Final = Path(__file__).parents[3] / "PROTOCOL.md"


def _row(op: Op) -> str:
    expression, types = op.p4.replace("|", "\\|"), ", ".join(op.types.split())
    return f"| {op.value} {op.name} | `{expression}` | {op.values} | {types} | {'ones' if op.identity else '0'} |\n"


def _operations() -> str:
    title = "| op | the slot's new lane | values | types | empty stands for |\n|---|---|---|---|---|\n"
    return title + "".join(_row(op) for op in COMBINING)


def _comments(enum: type[IntEnum] | type[IntFlag]) -> dict[str, str]:
    """The comments in the source behind each member of the enum."""
    lines = inspect.getsource(enum).splitlines()
    return {line.split()[0]: line.partition("  # ")[2] for line in lines if "  # " in line}


def _values(title: str, enum: type[IntEnum] | type[IntFlag]) -> str:
    doc = _comments(enum)
    rows = "".join(f"| {value.value} {value.name} | {doc.get(value.name or '', '')} |\n" for value in enum)
    return f"| {title} | |\n|---|---|\n{rows}"


def _fields(fields: Sequence[Field]) -> str:
    rows = "".join(f"| {field.name} | {field.bits} | {field.doc} |\n" for field in fields)
    return f"| field | bits | meaning |\n|---|---|---|\n{rows}"


def _paragraph(items: Iterable[tuple[str, object]]) -> str:
    """Names and numbers as a paragraph, for what is explained elsewhere."""
    return _wrapped(", ".join(f"`{name}`\0{number}" for name, number in items))


def _wrapped(text: str) -> str:
    """The text in lines; no line ends at a zero byte, which becomes a space."""
    return "\n".join(textwrap.wrap(text, 120)).replace("\0", " ") + "\n"


def _memory() -> str:
    types = ", ".join(f"{lane.value}\0{lane.name}\0`{lane.dtype}`" for lane in memory.LaneType)
    tables = [
        _fields(memory.MEMORY_FIELDS),
        _values("instruction", memory.Instruction),
        _values("flag", memory.Flag),
        _wrapped(f"Lanes, with numpy's names of them: {types}."),
        _values("status", memory.MemoryStatus),
    ]
    return "\n".join(tables)


def page_text(page: str) -> str:
    """Return the page with its tables written anew."""
    tables = {
        "fields": _fields(schema.HEADER_FIELDS),
        "statuses": _values("status", schema.Status),
        "outcomes": _paragraph((outcome.name, outcome.value) for outcome in schema.Outcome),
        "operations": _operations(),
        "packet_out": _fields(schema.QUERY_FIELDS),
        "record": _paragraph((field.name, field.bits) for field in schema.RECORD_FIELDS),
        "memory": _memory(),
    }
    for name, text in tables.items():
        begin, end = f"<!-- {name}: written by `make p4` -->\n", f"<!-- end of {name} -->"
        head, rest = page.split(begin)
        page = head + begin + text + end + rest.partition(end)[2]
    return page


if __name__ == "__main__":
    PAGE.write_text(page_text(PAGE.read_text("utf-8")), "utf-8")
