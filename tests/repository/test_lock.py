# SPDX-License-Identifier: MIT
"""constraints/: exact versions from which CI installs, that any index can serve."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import lock
import pytest

from tests.repository.tree import ROOT

LINE = re.compile(r"[a-z0-9][a-z0-9.-]*==[0-9][a-z0-9.]*")
FILES = sorted((ROOT / "constraints").glob("*.txt"))


def versions(path: Path) -> dict[str, str]:
    lines = path.read_text("utf-8").splitlines()[1:]
    return dict(line.split("==") for line in lines)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_versions_and_nothing_else(path: Path) -> None:
    head, *lines = path.read_text("utf-8").splitlines()
    assert f"{head}\n" == lock.HEADER
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert lines == sorted(set(lines))


def test_all_that_tests_need_is_locked() -> None:
    """Also what is a package of Debian's on the machine that made the lock."""
    described = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras, locked = described["optional-dependencies"], versions(ROOT / "constraints" / "tests.txt")
    todo, named = ["dev"], set(described["dependencies"])
    while todo:
        for each in extras[todo.pop()]:
            if each.startswith("netsum["):
                todo += each[len("netsum[") : -1].split(",")
            else:
                named.add(each)
    needed = {re.split(r"[<>=; ]", each)[0].lower().replace("_", "-") for each in named}
    assert needed - locked.keys() == set(), "run `make lock`"
    assert {"pip", "setuptools", "wheel", "cffi"} <= locked.keys()
    assert f"torch=={locked['torch']}" in named


def test_the_files_are_those_of_the_script() -> None:
    assert {f"{name}.txt" for name in ("tests", *lock.GROUPS)} == {path.name for path in FILES}


def test_a_local_build_is_no_version_of_its_own() -> None:
    assert lock.constraints({"torch": "2.13.0+cpu", "Ml_Dtypes": "0.6.0"}) == f"{lock.HEADER}ml-dtypes==0.6.0\ntorch==2.13.0\n"


def test_ci_installs_them() -> None:
    for path in (".ci/run", ".github/workflows/ci.yml", ".github/workflows/docs.yml"):
        assert re.search(r"NETSUM_LOCKED\W+1", (ROOT / path).read_text("utf-8")), path
