# SPDX-License-Identifier: MIT
"""The repository's own files, as the tests of this folder read them."""

from __future__ import annotations

import ast
import shutil
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = (
    "hosts",
    "controller",
    "switch",
    "memory",
    "planner",
    "p4src",
    "mininet",
    "bench",
    "examples",
    "scripts",
    "docs",
    "tests",
)
ROOTS = {
    "netsum": ROOT / "hosts" / "netsum",
    "netsum_controller": ROOT / "controller" / "netsum_controller",
    "netsum_switch": ROOT / "switch" / "netsum_switch",
    "netsum_memory": ROOT / "memory" / "netsum_memory",
    "netsum_bench": ROOT / "bench" / "netsum_bench",
    "netsum_testbed": ROOT / "mininet" / "netsum_testbed",
    "netsum_planner": ROOT / "planner" / "netsum_planner",
}


@cache
def files() -> tuple[Path, ...]:
    """Return every file that git tracks: what else lies in a checkout is not the repository's."""
    command = ("git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "-z")  # root's run in a user's clone
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    return tuple(path for name in names if name and (path := ROOT / name).is_file())


def copy_of_the_tree(folder: Path) -> Path:
    """Copy every file that git tracks, as a clone has it; returns the folder."""
    for path in files():
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return folder


def name_of(path: Path) -> str:
    """The file's path from the repository's root, for test ids and messages."""
    return str(path.relative_to(ROOT))


@cache
def imports(path: Path) -> frozenset[str]:
    """Full names of all that the file imports, at any level; ``from a import b`` is ``a`` and ``a.b``."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name_of(path)}:{node.lineno}: a relative import; say the package's name"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def packages(path: Path) -> set[str]:
    """Top-level packages that the file imports."""
    return {name.partition(".")[0] for name in imports(path)}
