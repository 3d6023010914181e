# SPDX-License-Identifier: MIT
"""Writes constraints/, from which CI installs: the newest versions that pyproject.toml allows of what tests need (tests.txt), and
what each environment of a dependency group has beside that (GROUP.txt).

Versions alone: no URL, no hash, no label of a local build, so that any index can serve them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
GROUPS: Final = ("docs", "finsy", "ptf", "shell")
"""Dependency groups of which `make lock` has made the environments."""

HEADER: Final = "# Versions that CI installs, written by `make lock`. Users need not have them.\n"


def constraints(packages: dict[str, str]) -> str:
    """Return a file's text. A local label (``+cpu``) says where a build is from, and any will do."""
    lines = {f"{name.lower().replace('_', '-')}=={version.partition('+')[0]}\n" for name, version in packages.items()}
    return HEADER + "".join(sorted(lines))


def resolved() -> dict[str, str]:
    """Return what pip would install for the tests on a machine that has nothing, whatever this one has."""
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    words = [*pip, "--dry-run", "--ignore-installed", "--report", "-", "pip", "setuptools", "wheel", "--editable", ".[dev]"]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found = [each["metadata"] for each in json.loads(done.stdout)["install"]]
    return {each["name"]: each["version"] for each in found if each["name"] != "netsum"}


def installed(environment: Path) -> dict[str, str]:
    """Return what is in the environment's own folder."""
    (site,) = environment.glob("lib/python3*/site-packages")
    return {each.metadata["Name"]: each.version for each in distributions(path=[str(site)])}


def main() -> int:
    target = ROOT / "constraints"
    target.mkdir(exist_ok=True)
    written = {"tests": resolved()}
    written |= {group: installed(ROOT / f".venv-{group}") for group in GROUPS}
    for name, packages in written.items():
        (target / f"{name}.txt").write_text(constraints(packages), "utf-8")
        print(f"constraints/{name}.txt: {len(packages)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
