"""What docs/stragglers.md shows of the example is in the example."""

from __future__ import annotations

import textwrap

from netsum_controller.config.job_spec import parse_job

from tests.docs.pages import ROOT, blocks

PAGE = blocks(ROOT / "docs" / "stragglers.md")


def test_quotations() -> None:
    quoted = [block for block in PAGE if block.language == "python"]
    assert len(quoted) == 2
    for block in quoted:
        source = (ROOT / block.title.removeprefix("from=")).read_text("utf-8")
        assert any(textwrap.indent(block.text, " " * depth) in source for depth in (4, 8, 12)), block.text


def test_the_job() -> None:
    (block,) = [block for block in PAGE if block.language == "yaml"]
    job = parse_job(block.text)
    assert (job.block_exp_us, job.least_workers) == (20_000, 3)
