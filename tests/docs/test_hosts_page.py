# SPDX-License-Identifier: MIT
"""docs/hosts.md: its programs and docs/pytorch.md's, run by every rank of a job; its tables, compared with the code."""

from __future__ import annotations

import builtins
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import netsum
import pytest
from netsum import errors, settings
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_testbed.fabrics import RootlessFabric

from tests.docs.pages import ROOT, Block, blocks
from tests.docs.programs import run_ranks

PAGE = ROOT / "docs" / "hosts.md"
TEXT = PAGE.read_text("utf-8")
RANKS = 2
PROGRAMS = [
    block
    for page in (PAGE, ROOT / "docs" / "pytorch.md")
    for block in blocks(page)
    if block.language == "python" and block.title.split()[:1] == [f"ranks={RANKS}"]
]
PRELUDE = "import netsum\nimport numpy as np\n\ncomm = netsum.join()\n"
"""Comes before a program whose title has the word ``continued``, as docs/hosts.md says."""


@pytest.fixture(scope="module")
def fabric() -> Iterator[RootlessFabric]:
    with RootlessFabric(star(RANKS)) as fabric:
        yield fabric


def test_every_block_of_code_is_a_program_of_two_ranks() -> None:
    assert {block for block in blocks(PAGE) if block not in PROGRAMS} == set()
    assert len([block for block in PROGRAMS if "needs=torch" in block.title]) >= 3


def needs(program: Block) -> list[pytest.MarkDecorator]:
    """The markers of what the program asks for in its title, such as ``needs=torch``, and `full`: it is slow to import."""
    words = [word.removeprefix("needs=") for word in program.title.split() if word.startswith("needs=")]
    return [*(getattr(pytest.mark, word) for word in words), pytest.mark.full] if words else []


@pytest.mark.parametrize("number", [pytest.param(n, marks=needs(program)) for n, program in enumerate(PROGRAMS)])
def test_programs_of_the_page_run(fabric: RootlessFabric, number: int, tmp_path: Path) -> None:
    program: Block = PROGRAMS[number]
    script = tmp_path / "program.py"
    continued = "continued" in program.title.split()
    script.write_text(PRELUDE + program.text + "comm.close()\n" if continued else program.text, "utf-8")
    name = f"page-{number}"
    run_ranks(script, fabric, fabric.create_job(JobSpec(name=name, members=("h1", "h2"))))
    fabric.controller.delete_job(name)


def in_first_column(heading: str) -> set[str]:
    """The code words in the first column of the table below a heading."""
    section = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\|(.*?)\|", section, re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`(\w+)`", row)}


def test_every_error_is_on_the_page() -> None:
    ours = {name for name, each in vars(errors).items() if inspect.isclass(each) and issubclass(each, errors.NetsumError)}
    assert in_first_column("Errors") - set(vars(builtins)) == ours - {"NetsumError", "CallError"}
    assert ours <= set(netsum.__all__)


def test_every_variable_of_the_environment_is_on_the_page() -> None:
    assert settings.__doc__ is not None
    ours = set(re.findall(r"^``(NETSUM_\w+)``", settings.__doc__, re.M))
    assert in_first_column("Environment") == ours | set(settings.RANKS)
    assert f"; {settings.DEFAULT_CALL_TIMEOUT:g} |" in TEXT


def test_names_on_the_page_exist() -> None:
    stats = set(vars(netsum.Stats()))
    (sentence,) = re.findall(r"`comm\.stats`\s+counts(.*?)\.\n", TEXT, re.DOTALL)
    named = set(re.findall(r"`(\w+)`", sentence))
    assert len(named) > 5
    assert named <= stats
    parameters = set(inspect.signature(netsum.join).parameters)
    call = re.search(r"`netsum\.join\((.*?)\)`", TEXT)
    assert call is not None
    assert {word.split("=")[0] for word in call[1].replace("*, ", "").split(", ")} == parameters
    for name in re.findall(r"`comm\.(\w+)", TEXT):
        assert hasattr(netsum.Communicator, name) or name == "descriptor"
