# SPDX-License-Identifier: MIT
"""Fixtures of the whole suite: which parts a machine may lack, and on which switches the data plane was tested."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir
from netsum_controller.p4runtime import client

from tests.threads import PATIENCE

# Root's run in a user's clone, by sudo, leaves nothing there that the user cannot remove.
if os.geteuid() != Path(__file__).stat().st_uid:
    set_hypothesis_home_dir(Path(tempfile.gettempdir()) / f"netsum-hypothesis-{os.geteuid()}")

# How long an example takes says nothing on a shared machine. `make test` runs the default profile, `make test-all` both: examples
# follow from the property alone, so the same commit gives the same verdict. `make explore` draws them anew.
_patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
_repeatable = settings(_patient, derandomize=True, database=None)
settings.register_profile("default", _repeatable, max_examples=40)
settings.register_profile("thorough", _repeatable, max_examples=200)
_anew = settings(_patient, derandomize=False, database=None)  # also in CI, where Hypothesis makes examples repeatable by itself
settings.register_profile("explore", _anew, max_examples=100, print_blob=True)
settings.load_profile("default")

# A shell starts background jobs with SIGINT ignored, and nohup a command with SIGHUP. Children inherit that, and tests of these
# signals would wait forever.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGTERM, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

ROOT = Path(__file__).parents[1]
SWITCHES = {"embedded": "the embedded switch", "bmv2": "simple_switch_grpc"}


def _has_gpu() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch  # takes seconds

    return bool(torch.cuda.is_available())


NEEDED: dict[str, tuple[Callable[[], object], str]] = {
    "bmv2": (lambda: shutil.which("simple_switch_grpc"), "simple_switch_grpc is not on PATH: install it"),
    "p4c": (lambda: shutil.which("p4c-bm2-ss"), "p4c-bm2-ss is not on PATH: install p4c"),
    "root": (lambda: os.geteuid() == 0, "we are not root: run the tests as root"),
    "tshark": (lambda: shutil.which("tshark"), "tshark is not on PATH: install it"),
    "torch": (lambda: importlib.util.find_spec("torch"), "PyTorch is not installed: run scripts/setup tests"),
    "cuda": (_has_gpu, "PyTorch finds no GPU: run the tests where one is, with a PyTorch made for it"),
    "training": (
        (ROOT / ".venv-training" / ".ready").exists,
        "the frameworks of the group `training` are not installed: run scripts/environment training",
    ),
    "chromium": (
        lambda: shutil.which("chromium") and importlib.util.find_spec("playwright"),
        "Chromium or Playwright is missing: apt install chromium, pip install '.[browser]'",
    ),
    "atheris": (lambda: importlib.util.find_spec("atheris"), "atheris is not installed: run scripts/setup tests"),
    "shell": (
        lambda: (ROOT / ".venv-shell" / ".ready").exists() or importlib.util.find_spec("p4runtime_sh"),
        "p4runtime-shell is not installed: run scripts/environment shell",
    ),
    "finsy": ((ROOT / ".venv-finsy" / ".ready").exists, "finsy is not installed: run scripts/environment finsy"),
    "ptf": ((ROOT / ".venv-ptf" / ".ready").exists, "PTF is not installed: run scripts/environment ptf"),
    "docs": ((ROOT / ".venv-docs" / ".ready").exists, "mkdocs is not installed: run scripts/environment docs"),
    "tutorials": (
        lambda: Path(os.environ.get("NETSUM_TUTORIALS") or "/nowhere", "exercises").is_dir() and NEEDED["ptf"][0](),
        "NETSUM_TUTORIALS names no copy of p4lang/tutorials (git clone https://github.com/p4lang/tutorials), or PTF is not "
        "installed (scripts/environment ptf)",
    ),
}
"""What a test may need of a machine, by the marker that says so: whether it is there, and what to do where it is not."""


@pytest.fixture(scope="session", autouse=True)
def unhurried() -> Iterator[None]:
    """Calls and RPCs last as long as a busy machine makes them. Tests of a deadline set their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NETSUM_TIMEOUT", str(PATIENCE))
        for name in ("CALL_TIMEOUT", "PIPELINE_TIMEOUT", "REQUEST_TIMEOUT"):
            patch.setattr(client, name, PATIENCE)
        yield


@pytest.hookimpl(tryfirst=True)  # before fixtures
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail where a part of the machine is missing; skip where NETSUM_ALLOW_MISSING (a comma list) names the part."""
    for part, (is_there, advice) in NEEDED.items():
        if item.get_closest_marker(part) is None or is_there():
            continue
        if part in os.environ.get("NETSUM_ALLOW_MISSING", "").split(","):
            pytest.skip(f"{advice}, and NETSUM_ALLOW_MISSING names {part}")
        pytest.fail(f"{advice}; or set NETSUM_ALLOW_MISSING={part} to leave these tests out")


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
