# SPDX-License-Identifier: MIT
"""Importing netsum pulls in numpy and nothing else. (import-linter holds the layers: pyproject.toml.)"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.repository.tree import ROOT, ROOTS, imports, name_of, packages

# Parts of netsum that the library never imports: they have dependencies of their own.
APART = ("packets.py", "metrics.py", "cli", "torch")
# It does without this one where what it imports is missing.
OPTIONAL = Path("numeric", "numba_kernels.py")


def modules(package: str) -> list[Path]:
    return sorted(ROOTS[package].rglob("*.py"))


def ids(paths: list[Path]) -> list[str]:
    return [name_of(path) for path in paths]


def library() -> list[Path]:
    inside = ROOTS["netsum"]
    paths = {path: path.relative_to(inside) for path in modules("netsum")}
    return [path for path, place in paths.items() if place.parts[0] not in APART and place != OPTIONAL]


def test_library_imports_numpy_and_the_standard_library() -> None:
    allowed = {"netsum", "netsum_cli", "numpy", *sys.stdlib_module_names}
    wrong = {name_of(path): bad for path in library() if (bad := packages(path) - allowed)}
    assert not wrong


def test_library_leaves_what_is_apart_alone() -> None:
    apart = tuple(f"netsum.{part.removesuffix('.py')}." for part in APART)
    wrong = {
        name_of(path): bad for path in library() if (bad := {name for name in imports(path) if f"{name}.".startswith(apart)})
    }
    assert not wrong


def test_scapy_is_imported_in_one_module() -> None:
    users = [path for package in ROOTS for path in modules(package) if "scapy" in packages(path)]
    users += [path for path in (ROOT / "examples").rglob("*.py") if "scapy" in packages(path)]
    assert ids(users) == ["hosts/netsum/packets.py"]


def test_command_line_packages_stay_out_of_netsum() -> None:
    users = {name_of(path) for path in modules("netsum") if packages(path) & {"click", "rich"}}
    assert users <= {"hosts/netsum/cli/commands.py", "hosts/netsum/cli/tables.py"}


def loaded_by(statement: str) -> set[str]:
    """Top-level packages that ``statement`` loads in a fresh interpreter, the standard library's left out."""
    shown = "import sys\nprint(*{name.partition('.')[0] for name in sys.modules})"
    before, after = (
        subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
        for code in (shown, f"{statement}\n{shown}")
    )
    return set(after.stdout.split()) - set(before.stdout.split()) - sys.stdlib_module_names


def test_importing_netsum_loads_numpy_and_nothing_else() -> None:
    assert loaded_by("import netsum") - loaded_by("import numpy") == {"netsum"}


def test_importing_the_wire_loads_neither_scapy_grpc_nor_torch() -> None:
    assert loaded_by("import netsum.wire, netsum.wire.to_lua, netsum.wire.to_p4") <= {"netsum", "numpy"}


def test_importing_the_core_of_the_switch_loads_neither_grpc_nor_netsum() -> None:
    assert loaded_by("import netsum_switch.pipeline") == {"netsum_switch"}
