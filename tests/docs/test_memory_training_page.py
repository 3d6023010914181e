"""docs/memory-training.md: its programs run, and its tables of options are the code's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from netsum_controller.memory.model import RegionSpec
from netsum_memory.optimizer_rules import OptimizerOptions
from netsum_memory.tables import TableOptions
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import open_fabric

from tests.docs.pages import ROOT, blocks
from tests.docs.test_memory_page import run_on_region

PAGE = ROOT / "docs" / "memory-training.md"
REGIONS: dict[str, dict[str, Any]] = {
    "model": {"kind": "parameters", "dtype": "float32", "options": {"optimizer": "lamb"}},
    "rows": {"kind": "table", "options": {"dim": 8}},
}


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    with open_fabric("embedded", hosts=3, rootless=True) as fabric:
        fabric.memory.start(["h1", "h2"])
        for name, given in REGIONS.items():
            fabric.memory.create(RegionSpec.of(name=name, size=1 << 20, **given))
        yield fabric


@pytest.mark.full
@pytest.mark.parametrize("block", blocks(PAGE), ids=lambda block: block.title)
def test_programs_run(fabric: Fabric, block: Any) -> None:
    run_on_region(fabric, block)


@pytest.mark.parametrize(("heading", "options"), [("Parameters", OptimizerOptions), ("Tables", TableOptions)])
def test_every_option_is_on_the_page(heading: str, options: Any) -> None:
    section = PAGE.read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*`) \|", section, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == {field.name for field in fields(options)}
