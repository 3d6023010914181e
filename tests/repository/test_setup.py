# SPDX-License-Identifier: MIT
"""``make setup``: heals what an interrupted run left, says how much comes, and installs no more than the commands need."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.repository.tree import ROOT

TOOLS = ("bash", "cat", "dirname", "env", "id", "ln", "mktemp", "python3", "realpath", "rm", "touch")


@pytest.fixture(scope="module")
def pip_install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scripts_pip_install", ROOT / "scripts" / "pip_install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_setup_brings_no_torch_and_no_tools_of_development() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]

    def brought(name: str) -> set[str]:
        found = set()
        for each in extras[name]:
            if each.startswith("netsum["):
                found |= {one for extra in each[len("netsum[") : -1].split(",") for one in brought(extra)}
            else:
                found.add(each)
        return found

    commands, tests = ({each.split(">")[0].split("=")[0] for each in brought(name)} for name in ("testbed", "dev"))
    assert {"torch", "mypy", "pytest", "ruff", "hypothesis", "matplotlib"} <= tests - commands
    assert {"grpcio", "scikit-learn", "scapy", "lmdb", "scipy", "llvmlite"} <= commands
    assert not {"p4runtime-shell", "p4runtime", "ipython"} & tests, "they pin protobuf 3.20"


def test_what_an_interrupted_pip_left_is_found(pip_install: ModuleType, tmp_path: Path) -> None:
    context, tools = tmp_path / "site-packages", tmp_path / "bin"
    context.mkdir()
    tools.mkdir()
    (tools / "x").touch()

    def package(name: str, *files: str, record: bool = True) -> Path:
        metadata = context / f"{name}-1.dist-info"
        metadata.mkdir()
        listed = [f"{name}/__init__.py", f"{name}/__pycache__/__init__.pyc", f"{metadata.name}/METADATA", "../bin/x"]
        if record:
            (metadata / "RECORD").write_text("".join(f"{each},,\n" for each in listed), "utf-8")
        for each in ("METADATA", *files):
            path = context / name / each if each != "METADATA" else metadata / each
            path.parent.mkdir(exist_ok=True)
            path.touch()
        return metadata

    package("whole", "__init__.py")
    wanted = {package("lacks_files"), package("lacks_record", "__init__.py", record=False)}
    moved = context / "~ip"
    moved.mkdir()
    assert set(pip_install.unfinished(context)) == {*wanted, moved}


def test_steps_of_pip(pip_install: ModuleType) -> None:
    lines = """\
Collecting torch==2.13.0
  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl.metadata (29 kB)
Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (899.7 MB)
Downloading sympy-1.14.0-py3-none-any.whl (6.3 MB)
Installing collected packages: mpmath, sympy, torch
Successfully installed mpmath-1.3.0 sympy-1.14.0 torch-2.13.0
"""
    assert list(pip_install.steps(lines.splitlines())) == [
        "downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (899.7 MB)",
        "downloading sympy-1.14.0-py3-none-any.whl (6.3 MB)",
        "installing collected packages",
    ]


def test_how_much_torch_brings(pip_install: ModuleType) -> None:
    def report(*names: str) -> Any:
        return {"install": [{"metadata": {"name": name, "version": "1.0"}} for name in names]}

    cpu = pip_install.summary(report("torch", "sympy"), "torch", [200_000_000, 6_000_000])
    assert cpu == "torch 1.0 and 1 other packages: 0.2 GB to download"
    gpu = pip_install.summary(report("torch", "nvidia-cublas", "triton"), "torch", [900_000_000, None, 100_000_000])
    assert gpu.startswith("torch 1.0 and 2 other packages, 2 of them for CUDA: at least 1.0 GB to download; ")
    assert "PIP_ARGS='--extra-index-url URL'" in gpu
    assert pip_install.summary(report("sympy"), "torch", [1]) is None, "it is there already"


class Clone:
    """A folder with the setup script, on a machine without dpkg; ``scripts/setup venv`` needs no network."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder / "clone", folder / "path"
        (self.folder / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "setup", self.folder / "scripts")
        self.bin.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool, path=os.defpath)
            assert found is not None
            (self.bin / tool).symlink_to(found)

    def start(self, what: str = "venv", **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.folder / "scripts" / "setup"), *what.split()],
            env={"PATH": str(self.bin), "HOME": str(self.folder), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def setup(self, what: str = "venv", **environment: str) -> tuple[int, str]:
        with self.start(what, **environment) as process:
            said = process.communicate()[0]
            return process.returncode, said

    def pip(self) -> str:
        words = [str(self.folder / ".venv" / "bin" / "python"), "-m", "pip", "--version"]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


@pytest.mark.full
def test_a_venv_without_pip_is_made_anew(clone: Clone) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(clone.folder / ".venv")], check=True)
    assert clone.setup() == (0, "setup: .venv is half made: making it anew\n")
    assert str(clone.folder / ".venv") in clone.pip()
    assert clone.setup() == (0, ""), "what is whole stays"


@pytest.mark.full
@pytest.mark.parametrize("after", [0.1, 1.0, 4.0])
def test_interrupted_at_any_moment(clone: Clone, after: float) -> None:
    """Whatever it has come to by then, one line says that it was interrupted, and the next run ends with a whole venv."""
    with clone.start() as process:
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
        said = process.communicate()[0]
    assert process.returncode in (0, 130, -signal.SIGINT)
    if process.returncode == 130:
        assert said == "setup: interrupted; run it again to go on\n"
    code, said = clone.setup()
    assert code == 0, said
    assert str(clone.folder / ".venv") in clone.pip()


def test_a_python_that_does_not_run_is_named(clone: Clone) -> None:
    told = "does not run; install Python 3.11 or newer, or name one by NETSUM_PYTHON"
    assert clone.setup(NETSUM_PYTHON="/no/python") == (1, f"setup: /no/python {told}\n")


@pytest.mark.full
def test_another_python_is_taken_if_it_is_named(clone: Clone) -> None:
    assert clone.setup(NETSUM_PYTHON=str(clone.bin / "python3")) == (0, "")
    assert f"home = {clone.bin}\n" in (clone.folder / ".venv" / "pyvenv.cfg").read_text("utf-8")


@pytest.mark.full
def test_ci_installs_what_is_locked_and_users_what_is_new(clone: Clone) -> None:
    (clone.folder / "scripts" / "pip_install.py").write_text("import sys; print(*sys.argv[1:])", "utf-8")
    for what, packages in (
        ("", ("--upgrade {}pip setuptools wheel", "{}--editable .[testbed]")),
        ("tests", ("--announce torch {}--editable .[dev]",)),
    ):
        for environment, locked in (({}, ""), ({"NETSUM_LOCKED": "1"}, "--constraint constraints/tests.txt ")):
            code, said = clone.setup(what, **environment)
            asked = [line.removeprefix(".venv ") for line in said.splitlines() if line.startswith(".venv ")]
            assert (code, asked) == (0, [each.format(locked) for each in packages]), said


@pytest.mark.root
@pytest.mark.full
def test_a_folder_that_may_not_be_written(clone: Clone) -> None:
    """Read-only, so not even root may write there."""
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$1/scripts/setup" venv'
    words = ["unshare", "--mount", "bash", "-c", script, "bash", str(clone.folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"setup: {clone.folder} may not be written: clone netsum into a folder of your own\n"
