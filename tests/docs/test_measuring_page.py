"""docs/measuring.md and docs/hosts.md: the algorithms that there are, and the choice among them as it was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

from netsum.descriptor import AUTO, CHAIN, HOST_ALGORITHMS, PLAN
from netsum.peers import selection

from tests.docs.pages import ROOT


def tables(path: Path, start: str) -> list[list[str]]:
    """The cells of the first table whose head begins with ``start``, without markup and without the line below the head."""
    lines = path.read_text("utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"| {start} |"))
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip(" *`") for cell in line.strip("|").split("|")])
    return [rows[0], *rows[2:]]


def kib(text: str) -> int:
    (number,) = re.findall(r"^(\d+) KiB$", text)
    return int(number) << 10


def test_the_choice_is_the_tables() -> None:
    head, *rows = tables(ROOT / "docs" / "measuring.md", "ranks | 4 KiB")
    said = {int(row[0]): dict(zip(map(kib, head[1:]), row[1:], strict=True)) for row in rows}
    assert said == selection.measured(), "measured anew? then docs/measuring.md needs the new tables"


def test_the_times_are_the_tables() -> None:
    head, *rows = tables(ROOT / "docs" / "measuring.md", "ranks | size")
    names = ["bmv2" if name == "simple_switch_grpc" else name for name in head[2:]]
    measured = json.loads(selection.TABLE_FILE.read_text("utf-8"))["microseconds"]
    assert len(rows) == sum(map(len, measured.values()))
    for ranks, size, *milliseconds in rows:
        of_size = measured[ranks][str(kib(size))]
        assert milliseconds == [f"{of_size[name] / 1000:.1f}" for name in names]


def test_every_algorithm_has_its_cost() -> None:
    _, *rows = tables(ROOT / "docs" / "hosts.md", "algorithm | steps")
    assert [row[0] for row in rows] == [*HOST_ALGORITHMS, CHAIN, f"{PLAN}FILE", AUTO]
