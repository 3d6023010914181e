# SPDX-License-Identifier: MIT
"""Runs the tests of tests/protocol on a switch, and says for each rule of PROTOCOL.md how that went."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from netsum_controller.p4runtime.p4info import CompiledProgram

from tests.conformance.remote_switch import ConformanceError
from tests.conformance.report import Finding, Verdict
from tests.conformance.specification import ROOT, Evidence, Rule
from tests.protocol import targets
from tests.protocol.conftest import OTHER_SWITCH
from tests.switch.harness.api import SwitchUnderTest

PROTOCOL: Final = ROOT / "tests" / "protocol"
SCENARIO_TESTS: Final = frozenset({"test_scenario", "test_as_a_leaf", "test_as_the_root"})
"""Tests that play the model's scenarios, which their parameters name."""


@dataclass
class OtherSwitch:
    """The plugin of pytest: tests run on the switch that ``start`` makes. Those that have a target and are ``wanted``."""

    start: Callable[[], SwitchUnderTest]
    kind: str
    program: CompiledProgram | None
    wanted: Callable[[pytest.Item], bool]
    outcomes: dict[str, str] = field(default_factory=dict)
    """By a test's id, the first line of what failed; empty where it passed."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what needs no switch, and what is not wanted."""
        items[:] = [item for item in items if "target" in getattr(item, "fixturenames", ()) and self.wanted(item)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how a test went."""
        if report.when == "call" or report.failed:
            words = "" if report.passed else _words(report)
            self.outcomes[report.nodeid] = self.outcomes.get(report.nodeid) or words


def _words(report: pytest.TestReport) -> str:
    """The reason of a failure in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash is not None else str(report.longrepr)).strip().partition("\n")[0] or report.outcome


def is_of(evidence: Evidence, file: Path, function: str, parameters: str) -> bool:
    """True if a test on a switch is what a rule points at."""
    if evidence.test == (file, function):
        return True
    scenario = evidence.scenario
    return scenario is not None and function in SCENARIO_TESTS and parameters.endswith(f"-{scenario.name}")


def _parts(item_id: str) -> tuple[Path, str, str]:
    """The file, the function and the parameters in a test's id."""
    file, _, name = item_id.partition("::")
    function, _, parameters = name.partition("[")
    return ROOT / file, function, parameters.removesuffix("]")


def run(
    start: Callable[[], SwitchUnderTest],
    kind: str,
    rules: Sequence[Rule],
    *,
    program: CompiledProgram | None = None,
    patience: float = targets.PATIENCE,
) -> Iterable[Finding]:
    """What is found out about each of these rules. ``patience``: the seconds after which a frame that does not come is lost."""

    def wanted(item: pytest.Item) -> bool:
        return any(is_of(each, *_parts(item.nodeid)) for rule in rules for each in rule.evidence)

    plugin = OtherSwitch(start, kind, program, wanted)
    arguments = [str(PROTOCOL), f"--rootdir={ROOT}", "-o", "addopts=--import-mode=importlib"]
    arguments += [word for name in ("terminal", "cacheprovider", "xdist") for word in ("-p", f"no:{name}")]
    before, targets.PATIENCE = targets.PATIENCE, patience
    try:
        code = pytest.main(arguments, plugins=[_Registered(plugin)])
    finally:
        targets.PATIENCE = before
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise ConformanceError(f"the tests of {PROTOCOL.relative_to(ROOT)} could not be run: pytest ended with {code!r}")
    for rule in rules:
        mine = {name: words for name, words in plugin.outcomes.items() if any(is_of(e, *_parts(name)) for e in rule.evidence)}
        failures = [f"{name.partition('::')[2]}: {words}" for name, words in mine.items() if words]
        verdict = Verdict.NOT_COVERED if not mine else Verdict.FAILED if failures else Verdict.PASSED
        yield Finding(rule.number, verdict, failures[0] if failures else f"{len(mine)} tests" if mine else "")


class _Registered:
    """Registers a plugin under the name by which tests/protocol finds it."""

    def __init__(self, plugin: OtherSwitch) -> None:
        self._plugin = plugin

    def pytest_configure(self, config: pytest.Config) -> None:
        config.pluginmanager.register(self._plugin, OTHER_SWITCH)
