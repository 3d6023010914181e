# SPDX-License-Identifier: MIT
"""Packaging: the distribution holds what it should, and its programs say what they lack."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import netsum
import pytest
from netsum import extras

from tests.repository.tree import ROOT, copy_of_the_tree, files, name_of

WHOLE = {
    "netsum",
    "netsum_cli",
    "netsum_controller",
    "netsum_memory",
    "netsum_p4",
    "netsum_p4runtime",
    "netsum_planner",
    "netsum_switch",
    "netsum_testbed",
    "netsum_bench",
}


def test_the_version_has_one_source() -> None:
    described = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "version" not in described["project"]
    assert described["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "netsum.__version__"}
    assert netsum.__version__ == version("netsum"), "run scripts/setup"
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == netsum.__version__


@pytest.mark.parametrize(
    ("program", "lacks", "extra"),
    [("netsum", "click", "controller"), ("netsum_switch", "grpc", "controller"), ("netsum_memory", "click", "memory")],
)
def test_a_program_without_its_extra_says_how_to_get_it(program: str, lacks: str, extra: str) -> None:
    code = f"import sys; sys.modules[{lacks!r}] = None; from netsum_cli import {program}; sys.exit({program}())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    told = f"{program.replace('_', '-')}: {lacks} is not installed: {extras.advice(extra)}\n"
    assert done.stderr == told


def test_python_m_netsum_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "netsum", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"netsum, version {netsum.__version__}"


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({}, f"pip install '{ROOT}[demo]'"),
        ({"url": "file:///src/my%20clone", "dir_info": {}}, "pip install '/src/my clone[demo]'"),
        ({"url": "file:///src/netsum", "dir_info": {"editable": True}}, "pip install -e '/src/netsum[demo]'"),
        ({"url": "file:///n.whl", "archive_info": {}}, "pip install 'netsum[demo] @ file:///n.whl'"),
        (
            {"url": "https://host/n", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'netsum[demo] @ git+https://host/n@abc'",
        ),
    ],
)
def test_advice_names_where_netsum_came_from(origin: dict[str, Any], command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = json.dumps(origin) if origin else None
    both = [type("Found", (), {"read_text": lambda *_, text=text: text})() for text in (None, noted)]
    monkeypatch.setattr(extras, "distributions", lambda name: both if name == "netsum" else [])
    assert extras.advice("demo") == command


def test_advice_of_an_index_asks_for_a_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No index has netsum today: what stands there under that name would not be ours."""
    monkeypatch.setattr(extras, "distributions", lambda **_: [])
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "site-packages" / "netsum" / "installing.py"))
    assert extras.advice("demo") == "pip install 'DIR[demo]' (DIR: a clone of netsum)"


def test_nothing_is_said_to_be_on_an_index() -> None:
    """The name alone installs nothing of ours; what does is in a clone."""
    texts = [path for path in files() if path.suffix in {".py", ".md", ""} and path != Path(__file__)]
    wrong = [name_of(path) for path in texts if re.search(r"pip install ['\"]?netsum(?!\{)", path.read_text("utf-8", "replace"))]
    assert not wrong, "say `pip install '.[EXTRA]'`, or ask netsum.extras.advice"


def test_a_script_beside_a_clone_in_a_folder_called_netsum_imports_the_library(tmp_path: Path) -> None:
    """Not the clone itself, as a namespace package, which an editable installation's own finder comes behind."""
    (tmp_path / "netsum").symlink_to(ROOT)
    (tmp_path / "train.py").write_text("import netsum, netsum_cli; print(netsum.__version__)", "utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [sys.executable, "train.py"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{netsum.__version__}\n", ""), "run scripts/setup"


def built(kind: str, source: Path, out: Path) -> Path:
    """The wheel or sdist that setuptools makes of a source tree, without pip and without a network."""
    code = f"import sys; from setuptools import build_meta; print(build_meta.build_{kind}(sys.argv[1]))"
    out.mkdir(exist_ok=True)
    done = subprocess.run([sys.executable, "-c", code, str(out)], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out / done.stdout.splitlines()[-1]


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def top(names: dict[str, bytes]) -> set[str]:
    return {name.partition("/")[0] for name in names if not re.search(r"\.dist-info/", name)}


@pytest.mark.full
def test_wheels_and_sdist_hold_what_they_should(tmp_path: Path) -> None:
    """The wheel has all packages; the sdist is the repository, and builds the same wheel."""
    tree = copy_of_the_tree(tmp_path / "tree")
    made = contents(built("wheel", tree, tmp_path / "whole"))
    assert top(made) == WHOLE
    sources = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    packed = built("sdist", tree, tmp_path / "sdist")
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-xzf", str(packed), "-C", str(tmp_path / "unpacked")], check=True)
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    wanted = {name for name in sources if not re.search(r"\.egg-info/|^build/", name)}
    assert wanted - {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*")} <= {".gitignore"}, "see MANIFEST.in"
    again = contents(built("wheel", unpacked, tmp_path / "again"))
    assert again == made
