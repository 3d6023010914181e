# SPDX-License-Identifier: MIT
"""docs/testbed.md: its program runs, its scenario is one, its formulas are the code's; what docs/concepts.md quotes is there."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from netsum_controller.config.job_spec import parse_job

from tests.docs.pages import ROOT, blocks
from tests.docs.tables import table
from tests.system.faults.scenario import EventKind, Scenario, Where
from tests.system.traffic.costs import COSTS, Cost, Formula

PAGE = ROOT / "docs" / "testbed.md"
CONCEPTS = blocks(ROOT / "docs" / "concepts.md")


@pytest.mark.full
def test_the_program_on_the_embedded_switch(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = [block.text for block in blocks(PAGE) if block.language == "python"]
    exec(compile(program, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == "[11 22 33] [11 22 33]\n"


def test_scenario(tmp_path: Path) -> None:
    (block,) = [block for block in blocks(PAGE) if block.language == "yaml"]
    (tmp_path / "scenario.yaml").write_text(block.text, "utf-8")
    scenario = Scenario.load(tmp_path / "scenario.yaml")
    assert (scenario.where, scenario.link(0).up.loss, [event.kind for event in scenario.events]) == (
        Where.SWITCH,
        0.05,
        [EventKind.STALL, EventKind.RESTART_SWITCH],
    )


def test_every_kind_of_event_is_explained() -> None:
    named = [kind.strip("` ") for kinds, _ in table(PAGE, "kind")[1:] for kind in kinds.split(";")]
    assert sorted(named) == sorted(EventKind)


def test_formulas_of_the_bytes() -> None:
    said = {name: cells for names, *cells in table(PAGE, "collective")[1:] for name in names.split("; ")}
    assert said == {cost.collective: formulas(cost) for cost in COSTS if cost.collective != "barrier"}


def formulas(cost: Cost) -> list[str]:
    """The cells of the table: one formula, or the root's and the others'."""

    def of_ranks(each: dict[str, Formula]) -> str:
        one, *others = {formula.words for formula in each.values()}
        return ", ".join(f"{who}: {formula.words}" for who, formula in each.items()) if others else one

    sent, received = ({who: pair[way] for who, pair in cost.ranks.items()} for way in (0, 1))
    return [of_ranks(sent), of_ranks(received), cost.up.words, cost.down.words, cost.hosts.words]


def test_quotations() -> None:
    quoted = [block for block in CONCEPTS if block.language == "python"]
    assert len(quoted) == 2
    for block in quoted:
        source = (ROOT / block.title.removeprefix("from=")).read_text("utf-8")
        assert any(textwrap.indent(block.text, " " * depth) in source for depth in (4, 8, 12)), block.text


def test_the_job() -> None:
    (block,) = [block for block in CONCEPTS if block.language == "yaml" and not block.title]
    job = parse_job(block.text)
    assert (job.block_exp_us, job.least_workers) == (20_000, 3)
