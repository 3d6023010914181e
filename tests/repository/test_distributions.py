# SPDX-License-Identifier: MIT
"""What would be published: it is built as a release is, passes twine's checks, and each extra brings what its part needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Final

import pytest

from tests.repository.tree import ROOT, copy_of_the_tree

WORKS: Final = {
    "": "import netsum; netsum.join",
    "controller": "import netsum_controller.http.api, netsum_switch.runtime; run('netsum', 'topology', 'make', 'star')",
    "shell": "import p4runtime_sh.shell; run('netsum', 'shell', '--help')",
    "plan": "run('netsum', 'plan', 'make', 'star', '4', '--rate', '1')",
    "metrics": "import netsum.metrics",
    "memory": "run('netsum-memory', '--version')",
    "packet": "import netsum.packets, netsum.cli.commands",
    "bfloat16": "import netsum, ml_dtypes",
    "fast": "import netsum.numeric.numba_kernels",
    "demo": "import sklearn.datasets; run('netsum', 'demo', '--help'); run('netsum', 'packet', '--help')",
    "plot": "import matplotlib; run('netsum', 'topology', 'make', 'star')",
    "testbed": "run('netsum', 'demo', '--help'); run('netsum', 'plan', '--help'); run('netsum-memory', '--version')",
    "fuzz": "import importlib.util as u, sys; assert u.find_spec('atheris') or sys.version_info >= (3, 14)",
    "browser": "import playwright.sync_api",
}
"""Extra -> a program that shows that it is enough."""

RUN: Final = """
import os, subprocess, sys
def run(program, *words):
    subprocess.run([os.path.join(os.path.dirname(sys.executable), program), *words], check=True)
"""

RESOLVED: Final = {"torch", "dev"}
"""Gigabytes, and the tests themselves run in them: pip need only find versions that go together."""


def extras() -> list[str]:
    return sorted(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a release, checked as one is (.github/workflows/release.yml)."""
    folder = tmp_path_factory.mktemp("release")
    tree = copy_of_the_tree(folder / "tree")
    for words in (["build"], ["twine", "check", "--strict", "dist/*"]):
        command = [sys.executable, "-m", *words]
        done = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == 0, done.stdout
    assert len(list((tree / "dist").iterdir())) == 2
    (found,) = (tree / "dist").glob("netsum-*.whl")
    return found


def pip(python: Path, *words: str) -> str:
    command = [sys.executable, "-m", "pip", "--python", str(python), *words, "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def locked() -> list[str]:
    """The versions that CI installs, where it says so; else those of the day, as a user gets them."""
    return ["--constraint", str(ROOT / "constraints" / "tests.txt")] if os.environ.get("NETSUM_LOCKED") else []


@pytest.mark.full
@pytest.mark.parametrize("extra", ["", *extras()])
def test_an_extra_brings_what_its_part_needs(wheel: Path, extra: str, tmp_path: Path) -> None:
    """In a fresh environment that sees nothing of the system's."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    limits = [] if extra == "shell" else locked()  # it pins protobuf 3.20
    if extra in RESOLVED:
        report = json.loads(pip(python, "install", "--dry-run", "--quiet", "--report", "-", *limits, wanted))
        assert "torch" in {each["metadata"]["name"] for each in report["install"]}
        return
    pip(python, "install", "--quiet", "--no-compile", *limits, wanted)
    assert "No broken requirements found." in pip(python, "check")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", RUN + WORKS[extra]], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if not extra:
        packages = {each["name"] for each in json.loads(pip(python, "list", "--format", "json"))}
        assert packages == {"netsum", "numpy"}
