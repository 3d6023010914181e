# SPDX-License-Identifier: MIT
"""`make protocol-conformance HOST=...`: our library passes, hosts that break a rule fail by its number."""

from __future__ import annotations

import json
import shlex
import sys

import pytest
from click.testing import CliRunner

from tests.conformance import host
from tests.conformance.command import protocol_conformance
from tests.conformance.host_runs import RUNS, Run
from tests.conformance.remote_switch import ConformanceError
from tests.conformance.report import Finding, Verdict
from tests.conformance.specification import rules
from tests.conformance.wrong_host import MUTATIONS
from tests.threads import PATIENCE

RANKS_RULES = [rule for rule in rules() if rule.number[0] == "H"]
BY_NAME = {run.name: run for run in RUNS}
OURS = f"{sys.executable} -m tests.conformance.reference_host"
COVERED = {"H1", "H2", "H3", "H4", "H5", "H7", "H8", "H9", "H14", "H15", "H17", "H18", "H19", "H25"}
WRONG = {
    "reuses_slots": ("losses", "H1"),
    "changes_payloads": ("notices", "H4"),
    "biases_by_one_more": ("no faults", "H25"),
    "takes_any_generation": ("stray results", "H8"),
    "ignores_openings": ("replies out of order", "H15"),
    "names_its_call_when_it_aborts": ("this rank aborts", "H18"),
    "prints_wrong_sums": ("no faults", "H25"),
}
"""By mutation, the run that shows it and the rule that is broken."""


def findings(command: str, run: str) -> dict[str, Finding]:
    """What a run finds out about each rule, by number."""
    return {each.number: each for each in host.run(command, RANKS_RULES, PATIENCE, [BY_NAME[run]])}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_our_library_passes(run: Run) -> None:
    found = findings(OURS, run.name)
    assert [each for each in found.values() if each.verdict == Verdict.FAILED] == []
    assert {found[number].verdict for number in run.rules} == {Verdict.PASSED}


def test_the_runs_cover_what_is_said() -> None:
    """The rules that no run names are found kept on the way."""
    assert {rule for run in RUNS for rule in run.rules} | {"H1", "H4"} == COVERED
    assert {rule.number for rule in RANKS_RULES} >= COVERED
    assert set(WRONG) == set(MUTATIONS)


@pytest.mark.parametrize("mutation", WRONG)
def test_a_wrong_host_fails(mutation: str) -> None:
    run, rule = WRONG[mutation]
    found = findings(f"{sys.executable} -m tests.conformance.wrong_host {mutation}", run)
    assert found[rule].verdict == Verdict.FAILED, found
    assert found[rule].words.startswith(f"{run}: ")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("no-such-command --at all", "cannot be run: .*No such file"),
        (f"{sys.executable} -c 'exit(3)'", "ended with 3 and sent nothing"),
        (f"{sys.executable} -c 'raise ValueError(5)'", "sent nothing: ValueError: 5"),
    ],
)
def test_what_is_no_host_is_one_error(command: str, words: str) -> None:
    with pytest.raises(ConformanceError, match=words):
        list(host.run(command, RANKS_RULES, PATIENCE))


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("", "it printed nothing"),
        ("hello", "it printed hello, not one JSON line"),
        ('{"results": [[1]]}', "1 results of 5 calls"),
    ],
)
def test_what_is_printed_is_checked(printed: str, words: str) -> None:
    """A host that makes its calls, and prints something else."""
    lines = (
        "import io, sys",
        "from tests.conformance import reference_host",
        "out, sys.stdout = sys.stdout, io.StringIO()",
        "reference_host.main()",
        f"out.write({printed!r})",
    )
    found = findings(f"{sys.executable} -c {shlex.quote('; '.join(lines))}", "no faults")
    assert found["H25"].verdict == Verdict.FAILED
    assert words in found["H25"].words


def test_the_command_says_what_it_needs() -> None:
    result = CliRunner().invoke(protocol_conformance, [])
    assert result.exit_code == 2
    assert "give --switch HOST:PORT or --host COMMAND" in result.output


@pytest.mark.full
def test_the_command_reports_every_rule() -> None:
    result = CliRunner().invoke(protocol_conformance, ["--host", OURS, "--patience", str(PATIENCE)])
    assert result.exit_code == 0, result.output
    *lines, last = result.output.splitlines()
    assert json.loads(last) == {"passed": len(COVERED), "failed": 0, "not_covered": len(RANKS_RULES) - len(COVERED)}
    assert {line.split()[0] for line in lines if line.split()[1] == "passed"} == COVERED
