"""What docs/testbed.md shows in Python does what it says."""

from __future__ import annotations

import pytest

from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "testbed.md"


@pytest.mark.full
def test_the_program_on_the_embedded_switch(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = [block.text for block in blocks(PAGE) if block.language == "python"]
    exec(compile(program, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == "[11 22 33] [11 22 33]\n"
