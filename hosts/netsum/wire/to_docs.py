"""Writes the tables in ``docs/wire.md`` from the schema: ``make p4``."""

from __future__ import annotations

import inspect
from enum import IntEnum, IntFlag
from pathlib import Path

from netsum.wire import memory
from netsum.wire.schema import COMBINING, Op

PAGE = Path(__file__).parents[3] / "docs" / "wire.md"


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
    rows = "".join(f"| {value.value} {value.name} | {doc[value.name or '']} |\n" for value in enum)
    return f"| {title} | |\n|---|---|\n{rows}"


def _memory() -> str:
    fields = "".join(f"| {field.name} | {field.bits} | {field.doc} |\n" for field in memory.MEMORY_FIELDS)
    types = "".join(f"| {lane.value} {lane.name} | `{lane.dtype}` |\n" for lane in memory.LaneType)
    tables = [
        f"| field | bits | meaning |\n|---|---|---|\n{fields}",
        _values("instruction", memory.Instruction),
        _values("flag", memory.Flag),
        f"| lane | numpy's name |\n|---|---|\n{types}",
        _values("status", memory.MemoryStatus),
    ]
    return "\n".join(tables)


def page_text(page: str) -> str:
    for name, text in (("operations", _operations()), ("memory", _memory())):
        begin, end = f"<!-- {name}: written by `make p4` -->\n", f"<!-- end of {name} -->"
        head, rest = page.split(begin)
        page = head + begin + text + end + rest.partition(end)[2]
    return page


if __name__ == "__main__":
    PAGE.write_text(page_text(PAGE.read_text("utf-8")), "utf-8")
