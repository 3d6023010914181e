"""The software: Python, its packages, the switches, the compiler."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from netsum_testbed.doctor.finding import Finding
from netsum_testbed.doctor.machine import may_be_root
from netsum_testbed.switches import BMV2, bmv2_trouble, has_thrift, switch_version

OLDEST: Final = (3, 11)
DEMO: Final = {
    "numpy": "numpy",
    "grpc": "grpcio",
    "google.rpc": "googleapis-common-protos",
    "scapy": "scapy",
    "sklearn": "scikit-learn",
}
TESTS: Final = {
    "pytest": "pytest",
    "pytest_timeout": "pytest-timeout",
    "xdist": "pytest-xdist",
    "hypothesis": "hypothesis",
    "mypy": "mypy",
    "ruff": "ruff",
}
"""Modules, and the packages that have them."""


def examine_software() -> Iterator[Finding]:
    """Examine the software, in the order in which to fix things."""
    yield _python()
    yield _venv()
    yield _packages("packages", DEMO)
    if is_checkout():
        yield _packages("test tools", TESTS)
    yield _bmv2()
    yield _program("p4c", "p4c-bm2-ss", "install p4lang-p4c; only to change the P4 program")
    yield _program("tshark", "tshark", "apt install tshark; only for netsum's packets in Wireshark")
    yield _module("torch", "only for training with torch")
    if _there("netsum_switch.native"):
        yield _module("llvmlite", "without it the embedded switch runs as Python, several times slower")


def is_checkout() -> bool:
    """Whether we run from a clone, where there are tests."""
    return (Path(__file__).parents[3] / "tests" / "conftest.py").is_file()


def _python() -> Finding:
    found = f"{sys.version.split()[0]}, {sys.executable}"
    return Finding(
        "Python", sys.version_info >= OLDEST, found, f"install Python {OLDEST[0]}.{OLDEST[1]} or newer", needed=True
    )


def _venv() -> Finding:
    if sys.prefix != sys.base_prefix:
        return Finding("venv", True, sys.prefix)
    return Finding(
        "venv", False, "this Python is not that of a virtual environment", "make setup, and then use .venv/bin"
    )


def _there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False


def _packages(name: str, modules: Mapping[str, str]) -> Finding:
    missing = [package for module, package in modules.items() if not _there(module)]
    if not missing:
        return Finding(name, True, ", ".join(modules.values()), needed=True)
    return Finding(
        name,
        False,
        f"not installed: {', '.join(missing)}",
        f"make setup, or pip install {' '.join(missing)}",
        needed=True,
    )


def _module(name: str, use: str) -> Finding:
    if not _there(name):
        return Finding(name, False, "not installed", f"pip install {name}; {use}")
    try:
        return Finding(name, True, version(name))
    except PackageNotFoundError:
        return Finding(name, True, "version unknown")


def _program(name: str, program: str, remedy: str) -> Finding:
    path = shutil.which(program)
    return Finding(name, path is not None, path or f"{program} is not on PATH", "" if path else remedy)


def _bmv2() -> Finding:
    path = shutil.which(BMV2)
    if path is None:
        remedy = "install p4lang-bmv2 (docs/tour.md); without it the embedded switch does the same"
        return Finding("BMv2", False, f"{BMV2} is not on PATH", remedy)
    if trouble := bmv2_trouble():
        remedy = f"repair it, or take {path} off PATH: the embedded switch does the same"
        return Finding("BMv2", False, trouble, remedy, needed=may_be_root())
    return Finding("BMv2", True, f"{path}, {switch_version('bmv2')}, with{'' if has_thrift() else 'out'} Thrift")
