# SPDX-License-Identifier: MIT
"""No file is stale, and none belongs to one machine only."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import netsum_p4
import yaml
from netsum_testbed.doctor import doctor

from tests.repository.tree import ROOT, files, name_of

HOME = re.compile(rb"/(?:home|Users)/[A-Za-z0-9_]|/root/")
BINARY = {".pcap", ".png", ".gz"}


def test_mininet_folder_is_no_package() -> None:
    assert not (ROOT / "mininet" / "__init__.py").exists(), "it would shadow the real mininet"


def test_compiled_programs_are_of_these_sources() -> None:
    spec = importlib.util.spec_from_file_location("p4src_compile", ROOT / "p4src" / "compile.py")
    assert spec is not None
    assert spec.loader is not None
    compiler = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compiler)
    committed = [(program.output / compiler.HASH_FILE).read_text("utf-8").strip() for program in compiler.PROGRAMS]
    assert committed == [program.sources_hash() for program in compiler.PROGRAMS], "run `make p4` and commit the result"
    assert netsum_p4.sources_sha256() in committed


def test_no_file_names_a_home_directory() -> None:
    found = []
    for path in files():
        if path.suffix in BINARY:
            continue
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            if HOME.search(line) and path != Path(__file__):
                found.append(f"{name_of(path)}:{number}")
    assert not found


def test_source_files_name_their_license() -> None:
    generated = ROOT / "p4src" / "build" / "netsum_p4runtime"
    sources = [path for path in files() if path.suffix == ".py" and generated not in path.parents and path.stat().st_size]
    assert sources
    lacking = [name_of(path) for path in sources if "SPDX-License-Identifier: MIT" not in path.read_text("utf-8")[:200]]
    assert not lacking


def test_the_usual_files_are_there() -> None:
    for name in ("LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CITATION.cff", "Makefile", ".ci/run"):
        assert (ROOT / name).is_file(), name


def test_the_bug_form_asks_for_a_report_that_exists() -> None:
    assert "`netsum doctor --json`" in (ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml").read_text("utf-8")
    assert "--json" in {name for parameter in doctor.params for name in parameter.opts}


def test_ci_runs_on_the_pythons_that_are_promised() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))["jobs"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    promised = [found[1] for each in project["classifiers"] if (found := re.search(r":: Python :: (3\.\d+)$", each))]
    assert jobs["test"]["strategy"]["matrix"]["python"] == promised
    assert project["requires-python"] == f">={promised[0]}"
