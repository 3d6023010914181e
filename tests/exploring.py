# SPDX-License-Identifier: MIT
"""Runs the explorations that take longest, and draws new cases for every property, round after round, until the time is over
(``make explore``). Prints each case that it finds in the form that goes into the test. ``python -m tests.exploring MINUTES
[options of pytest]``; exit code 1 if it finds any.

Each round is a run of pytest, in which this module is a plugin. A property that has failed is left out of the next rounds. What
is marked ``explore`` draws nothing, and is in the first round alone.
"""

from __future__ import annotations

import inspect
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
UNTIL, FOUND = "NETSUM_EXPLORE_UNTIL", "NETSUM_EXPLORE_FOUND"
"""Environment: the time (of :func:`time.time`) after which no test begins, and the file of what has failed."""

_CASE = re.compile(r"^(?:Failing|Falsifying) (?:test case|(?:explicit )?example): (?:\w+\((.*)\)|<state machine>)\Z", re.DOTALL)
_ROUND = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
_BLOB = re.compile(r"@reproduce_failure\(.*\)")


def cases_of(error: BaseException, names: set[str]) -> Iterator[str]:
    """The failing cases that hypothesis notes in an error, each as lines of Python: an ``@example`` of the arguments that are not
    ``names`` (which pytest gives); a decorator that draws the same where arguments are drawn in the test; or a state machine's
    steps."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from cases_of(each, names)
        return
    notes = [note.strip() for note in getattr(error, "__notes__", [])]
    for at, note in enumerate(notes):
        if (found := _CASE.match(note)) is None:
            continue
        blob = next(iter(_BLOB.findall("\n".join(notes))), "")
        following = [each for each in notes[at + 1 :] if not _BLOB.search(each)]
        if found[1] is None:
            yield "\n".join(following)
        elif "=data(...)" in found[1]:
            yield "\n".join([blob, *(f"# {line}" for each in following for line in each.splitlines())])
        else:
            yield f"@example({_arguments(found[1], names)})"


def _arguments(text: str, names: set[str]) -> str:
    """The arguments in the text of a call, without those of these names."""
    text = text.replace("  # or any other generated value", "")
    each = re.split(r"^(?=    \w+=)", text, flags=re.MULTILINE)
    return "".join(part for part in each if part.strip().partition("=")[0] not in names)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has failed. The files come in another order in each round, so that all get their turn."""
    found = Path(os.environ[FOUND]).read_text().splitlines()
    items[:] = [item for item in items if item.nodeid not in found]
    files = sorted({item.path for item in items})
    random.Random(str(config.getoption("hypothesis_seed"))).shuffle(files)
    items.sort(key=lambda item: files.index(item.path))


def pytest_runtest_setup() -> None:
    if time.time() > float(os.environ[UNTIL]):
        pytest.skip("the time is over")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None and report.failed:
        function: Any = getattr(item, "obj", None)
        names = {"self"} if function is None else {"self", *inspect.signature(function).parameters}
        report.user_properties += [("case", case) for case in cases_of(call.excinfo.value, names)]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if hasattr(terminalreporter.config, "workerinput"):  # xdist's workers, whose reports the controller has too
        return
    failed = terminalreporter.getreports("failed")
    with Path(os.environ[FOUND]).open("a") as file:
        file.writelines(f"{report.nodeid}\n" for report in failed)
    for report in failed:
        terminalreporter.section(f"found in {report.nodeid}", sep="-")
        cases = [str(case) for name, case in report.user_properties if name == "case"]
        for case in cases or ["no case: the test has failed otherwise, as told above"]:
            terminalreporter.write_line(case)


def main() -> int:
    until = time.time() + 60 * float(sys.argv[1])
    rounds, code = 0, 0
    with tempfile.NamedTemporaryFile() as found:
        while time.time() < until:
            rounds += 1
            seed = random.SystemRandom().randrange(1 << 32)
            print(f"explore: round {rounds}, seed {seed}", flush=True)
            kind = "hypothesis or explore" if rounds == 1 else "hypothesis"
            chosen = ["-m", kind, "--hypothesis-profile", "explore", f"--hypothesis-seed={seed}"]
            command = [sys.executable, "-m", "pytest", "-p", "tests.exploring", *chosen, *sys.argv[2:]]
            code = subprocess.run(command, env={**os.environ, UNTIL: str(until), FOUND: found.name}, check=False).returncode
            if code not in _ROUND:
                break  # every property has failed, or pytest did not run
        failed = Path(found.name).read_text().splitlines()
    print(f"explore: {rounds} rounds; {len(failed)} properties have failed" + "".join(f"\n  {each}" for each in failed))
    return int(bool(failed)) if code in (*_ROUND, pytest.ExitCode.NO_TESTS_COLLECTED) else code


if __name__ == "__main__":
    sys.exit(main())
