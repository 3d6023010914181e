# SPDX-License-Identifier: MIT
"""docs/memory.md: its programs run, on the regions that they name; its tables, compared with the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from functools import partial
from typing import Any

import pytest
from netsum import errors
from netsum_controller.memory.model import RegionSpec
from netsum_memory.links.link import KernelLink
from netsum_memory.optimizer_rules import OptimizerOptions
from netsum_memory.serve import Server
from netsum_memory.tables import TableOptions
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import open_fabric

from tests.docs.pages import ROOT, Block, blocks
from tests.hosts.memory.near import BASE, WRITE_KEY, device
from tests.threads import meanwhile

PAGE = ROOT / "docs" / "memory.md"
CLIENT = ROOT / "examples" / "memory_client.py"
ARRAYS: dict[str, dict[str, Any]] = {
    "weights": {"dtype": "float32", "shape": (100, 200)},
    "counters": {"dtype": "int64", "shape": (64,)},
}
TRAINING: dict[str, dict[str, Any]] = {
    "model": {"kind": "parameters", "size": 1 << 20, "dtype": "float32", "options": {"optimizer": "lamb"}},
    "rows": {"kind": "table", "size": 1 << 20, "options": {"dim": 8}},
}


def programs(regions: dict[str, dict[str, Any]]) -> list[Any]:
    """The page's programs on these regions, as parameters."""
    titles = {f"region={name}" for name in regions}
    return [pytest.param(block, id=block.title) for block in blocks(PAGE) if block.title in titles]


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    with open_fabric("embedded", hosts=3, rootless=True) as fabric:
        fabric.memory.start(["h1", "h2"])
        for name, given in (ARRAYS | TRAINING).items():
            fabric.memory.create(RegionSpec.of(name=name, **given))
        yield fabric


def run(*command: str, **more: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        env={**os.environ, "NETSUM_TIMEOUT": "60", **more},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_on_region(fabric: Fabric, program: Block) -> None:
    """Run a program on h3, on the region that its title names."""
    assert fabric.controller.url is not None
    token = fabric.memory.tokens[program.title.removeprefix("region=")]
    run("-c", program.text, NETSUM_CONTROLLER=fabric.controller.url, NETSUM_TOKEN=token, NETSUM_HOST="h3")


@pytest.mark.parametrize("program", programs(ARRAYS))
def test_programs_on_arrays_run(fabric: Fabric, program: Block) -> None:
    run_on_region(fabric, program)


@pytest.mark.full
@pytest.mark.parametrize("program", programs(TRAINING))
def test_programs_that_train_run(fabric: Fabric, program: Block) -> None:
    run_on_region(fabric, program)


def test_every_block_of_code_is_a_program() -> None:
    assert {block.language for block in blocks(PAGE)} == {"python"}
    assert {block.title for block in blocks(PAGE)} == {f"region={name}" for name in ARRAYS | TRAINING}


def test_the_client_of_thirty_lines_needs_nothing_of_ours() -> None:
    """On a device of this machine; as a switch would, its replies come from where the requests went."""
    text = CLIENT.read_text("utf-8")
    client = text.split("import sys\n")[1].split("\nif __name__")[0]
    assert len([line for line in client.splitlines() if line.strip()]) <= 30
    assert set(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)) <= sys.stdlib_module_names
    link, over = KernelLink(("127.0.0.1", 0)), threading.Event()
    server = Server(device(), link)
    with closing(server), meanwhile(partial(server.run, over.is_set), over.set):
        printed = run(str(CLIENT), "127.0.0.1", str(link.address[1]), str(WRITE_KEY), str(BASE))
    assert printed == "(0, b'')\n(2,)\n(1, 42, 3)\n"


def section(heading: str) -> str:
    return re.split(r"\n##+ ", PAGE.read_text("utf-8").split(f"\n### {heading}\n")[1])[0]


def test_every_refusal_is_on_the_page() -> None:
    named = set(re.findall(r"^\| `(\w+)`", section("Errors"), re.MULTILINE))
    ours = {each.__name__ for each in errors.InstructionRejectedError.__subclasses__()}
    assert named == ours | {"InstructionRejectedError", "CallTimeoutError", "UnsupportedError"}


@pytest.mark.parametrize(("heading", "options"), [("Parameters", OptimizerOptions), ("Tables", TableOptions)])
def test_every_option_is_on_the_page(heading: str, options: Any) -> None:
    rows = re.findall(r"^\| (`[^|]*`) \|", section(heading), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == {field.name for field in fields(options)}
