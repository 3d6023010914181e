"""The commands on the testbed's pages do what the pages say, and are in the examples."""

from __future__ import annotations

import textwrap

import pytest
from netsum_controller.config.job_spec import parse_job

from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "testbed.md"
CONCEPTS = blocks(ROOT / "docs" / "concepts.md")


@pytest.mark.full
def test_the_program_on_the_embedded_switch(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = [block.text for block in blocks(PAGE) if block.language == "python"]
    exec(compile(program, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == "[11 22 33] [11 22 33]\n"


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
