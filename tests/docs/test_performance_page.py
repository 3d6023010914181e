# SPDX-License-Identifier: MIT
"""docs/performance.md and docs/hosts.md: the algorithms that there are, and the choice among them as it was measured."""

from __future__ import annotations

import json
import re

from netsum.descriptor import AUTO, CHAIN, HOST_ALGORITHMS, PLAN
from netsum.peers import selection

from tests.docs.pages import ROOT
from tests.docs.tables import table

PAGE = ROOT / "docs" / "performance.md"
MEASURED = json.loads(selection.TABLE_FILE.read_text("utf-8"))["microseconds"]


def kib(text: str) -> int:
    (number,) = re.findall(r"^(\d+) KiB$", text)
    return int(number) << 10


def test_the_bold_times_are_the_choice() -> None:
    head, *_ = table(PAGE, "ranks | size")
    bold: dict[int, dict[int, str]] = {}
    for ranks, size, cells in re.findall(r"^\| (\d+) \| (\d+ KiB) \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE):
        (name,) = [name for name, cell in zip(head[2:], cells.split(" | "), strict=True) if cell.startswith("**")]
        bold.setdefault(int(ranks), {})[kib(size)] = name
    chosen = selection.measured()
    assert bold.keys() == chosen.keys()
    for number, by_size in chosen.items():
        assert by_size.items() <= bold[number].items(), "measured anew? then docs/performance.md needs the new table"


def test_the_times_are_those_that_were_measured() -> None:
    head, *rows = table(PAGE, "ranks | size")
    names = ["bmv2" if name == "simple_switch_grpc" else name for name in head[2:]]
    assert len(rows) == sum(map(len, MEASURED.values()))
    for ranks, size, *milliseconds in rows:
        of_size = MEASURED[ranks][str(kib(size))]
        assert milliseconds == [f"{of_size[name] / 1000:.1f}" for name in names]


def test_every_algorithm_has_its_cost() -> None:
    _, *rows = table(ROOT / "docs" / "hosts.md", "algorithm | steps")
    assert [row[0] for row in rows] == [*HOST_ALGORITHMS, CHAIN, f"{PLAN}FILE", AUTO]
