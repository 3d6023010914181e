# SPDX-License-Identifier: MIT
"""docs/change-the-program.md: the change compiles, and its test passes, in a copy of the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, write_files

PAGE = ROOT / "docs" / "change-the-program.md"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The sources with the page's change, and the page's test."""
    for part in ("p4src", "bench/netsum_bench/adder", "hosts/netsum/wire"):
        shutil.copytree(ROOT / part, tmp_path / part)
    write_files(tmp_path, PAGE)
    for name in ("forward.diff", "ids.diff"):
        subprocess.run(["git", "apply", name], cwd=tmp_path, check=True)
    return tmp_path


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder / "p4src" / "build")}
    return subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.p4c
@pytest.mark.full
def test_the_change(copy: Path) -> None:
    """Its test fails before it is compiled."""
    test = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_flooded.py")
    before = run(copy, *test)
    assert "KeyError: 'NetsumIngress.forward.flooded'" in before.stdout
    compiled = run(copy, "p4src/compile.py")
    assert compiled.returncode == 0, compiled.stderr
    after = run(copy, *test)
    assert after.returncode == 0, after.stdout
    assert 'name: "NetsumIngress.forward.flooded"' in (copy / "p4src/build/netsum_p4/netsum.p4info.txtpb").read_text()
    changed = (copy / "p4src/build/netsum_p4/netsum.p4info.txtpb").read_text().splitlines()
    committed = (ROOT / "p4src/build/netsum_p4/netsum.p4info.txtpb").read_text().splitlines()
    assert set(committed) <= set(changed), "nothing else has another id"


def test_the_page_names_lines_that_are_there(copy: Path) -> None:
    assert "flooded.count" in (copy / "p4src" / "control" / "forward.p4").read_text()
    assert "FLOODED_COUNTER" in (copy / "p4src" / "ids.p4").read_text()
