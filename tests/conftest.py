"""What the whole suite shares: what a machine may lack, and on which switches the data plane was tested."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says nothing on a shared machine.
settings.register_profile("netsum", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("netsum")

# A shell starts background jobs with SIGINT ignored, children inherit that, and what tests Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SWITCHES = {"embedded": "the embedded switch", "bmv2": "simple_switch_grpc"}


def _require(part: str, there: bool, advice: str) -> None:
    """Fail where a part of the machine is missing; skip where NETSUM_ALLOW_MISSING (a comma list) names the part."""
    if there:
        return
    if part in os.environ.get("NETSUM_ALLOW_MISSING", "").split(","):
        pytest.skip(f"{advice}, and NETSUM_ALLOW_MISSING names {part}")
    pytest.fail(f"{advice}; or set NETSUM_ALLOW_MISSING={part} to leave these tests out")


@pytest.fixture(scope="session")
def require_bmv2() -> None:
    """The test needs simple_switch_grpc."""
    _require("bmv2", shutil.which("simple_switch_grpc") is not None, "simple_switch_grpc is not on PATH: install it")


@pytest.fixture(scope="session")
def require_p4c() -> None:
    """The test needs the P4 compiler."""
    _require("p4c", shutil.which("p4c-bm2-ss") is not None, "p4c-bm2-ss is not on PATH: install p4c")


@pytest.fixture(scope="session")
def require_root() -> None:
    """The test needs root: network namespaces, raw sockets, Mininet."""
    _require("root", os.geteuid() == 0, "we are not root: run the tests as root")


@pytest.fixture(scope="session")
def require_torch() -> None:
    """The test needs PyTorch."""
    there = importlib.util.find_spec("torch") is not None
    _require("torch", there, "PyTorch is not installed: pip install 'netsum[torch]'")


@pytest.fixture(scope="session")
def require_atheris() -> None:
    """The test needs atheris, the coverage-guided fuzzer."""
    there = importlib.util.find_spec("atheris") is not None
    _require("atheris", there, "atheris is not installed: pip install 'netsum[fuzz]'")


def _switch_of(report: pytest.TestReport) -> str | None:
    """The switch that a test ran on, told by its marker or its parameter; None when it ran on neither."""
    if "bmv2" in report.keywords:
        return "bmv2"
    return "embedded" if "embedded" in report.nodeid.rpartition("::")[2] else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly what the data plane was tested on: a green run without the real switch is not the same."""
    passed = Counter(_switch_of(report) for report in terminalreporter.getreports("passed"))
    left_out = Counter(_switch_of(report) for report in terminalreporter.getreports("skipped"))
    if not any(passed[name] or left_out[name] for name in SWITCHES):
        return
    terminalreporter.section("switches", sep="=")
    for name, words in SWITCHES.items():
        if passed[name]:
            terminalreporter.write_line(f"data plane: {passed[name]} tests passed on {words}", green=True)
        else:
            terminalreporter.write_line(f"*** data plane: NOT TESTED on {words.upper()} ***", red=True, bold=True)
        if left_out[name]:
            terminalreporter.write_line(f"*** {left_out[name]} tests of {words} were LEFT OUT ***", red=True, bold=True)


_ON_THEIR_OWN = ("hosts", "model", "house", "docs", "wire", "fuzz", "soak", "testbed", "faults", "full")
"""Parts whose files have little in common; tests of the others share switches that serve a whole session."""


def _group(item: pytest.Item) -> str:
    """What a worker of pytest-xdist runs as a whole (``--dist loadgroup``), so that no fixture is made more often than needed."""
    place = item.path.relative_to(Path(__file__).parent)
    shared = "fabric" in getattr(item, "fixturenames", ()) and place.parts[0] == "full"
    return str(place) if place.parts[0] in _ON_THEIR_OWN and not shared else place.parts[0]


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tell the groups."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
