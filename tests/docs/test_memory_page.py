"""docs/memory.md: its programs run, on the regions that they name; its tables, compared with the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial

import pytest
from netsum import errors
from netsum_controller.memory.model import RegionSpec
from netsum_memory.links.link import KernelLink
from netsum_memory.serve import Server
from netsum_testbed.fabric import Fabric
from netsum_testbed.fabrics import open_fabric

from tests.docs.pages import ROOT, Block, blocks
from tests.hosts.memory.near import BASE, WRITE_KEY, device
from tests.threads import meanwhile

PAGE = ROOT / "docs" / "memory.md"
PROGRAMS = {block.title: block for block in blocks(PAGE)}
REGIONS = {"weights": ("float32", (100, 200)), "counters": ("int64", (64,))}
ON_REGIONS = [block for block in blocks(PAGE) if block.title.startswith("region=")]


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    with open_fabric("embedded", hosts=3, rootless=True) as fabric:
        fabric.memory.start(["h1", "h2"])
        for name, (dtype, shape) in REGIONS.items():
            fabric.memory.create(RegionSpec.of(name=name, dtype=dtype, shape=shape))
        yield fabric


def run(program: Block, *arguments: str, more: Mapping[str, str] | None = None) -> str:
    command = [sys.executable, "-W", "error", "-c", program.text, *arguments]
    done = subprocess.run(
        command, env={**os.environ, "NETSUM_TIMEOUT": "60", **(more or {})}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_on_region(fabric: Fabric, program: Block) -> None:
    """Run a program on h3, on the region that its title names."""
    assert fabric.controller.url is not None
    token = fabric.memory.tokens[program.title.removeprefix("region=")]
    run(program, more={"NETSUM_CONTROLLER": fabric.controller.url, "NETSUM_TOKEN": token, "NETSUM_HOST": "h3"})


@pytest.mark.parametrize("number", range(len(ON_REGIONS)))
def test_programs_on_regions_run(fabric: Fabric, number: int) -> None:
    run_on_region(fabric, ON_REGIONS[number])


def test_every_block_of_code_is_a_program() -> None:
    assert {block.language for block in blocks(PAGE)} == {"python"}
    assert {block.title for block in blocks(PAGE)} == {"plain", *(f"region={name}" for name in REGIONS)}


def test_the_client_of_thirty_lines_needs_nothing_of_ours() -> None:
    """On a device of this machine; as a switch would, its replies come from where the requests went."""
    program = PROGRAMS["plain"]
    client, _, _ = program.text.partition("\n\nif __name__")
    assert len([line for line in client.splitlines() if line.strip()]) <= 30
    assert "netsum" not in program.text
    link, over = KernelLink(("127.0.0.1", 0)), threading.Event()
    server = Server(device(), link)
    with closing(server), meanwhile(partial(server.run, over.is_set), over.set):
        printed = run(program, "127.0.0.1", str(link.address[1]), str(WRITE_KEY), str(BASE))
    assert printed == "(0, b'')\n(2,)\n(1, 42, 3)\n"


def test_every_refusal_is_on_the_page() -> None:
    section = PAGE.read_text("utf-8").split("\n## Errors\n")[1].split("\n## ")[0]
    named = set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))
    ours = {each.__name__ for each in errors.InstructionRejectedError.__subclasses__()}
    assert named == ours | {"InstructionRejectedError", "CallTimeoutError", "UnsupportedError"}
