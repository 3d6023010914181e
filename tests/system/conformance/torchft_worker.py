# SPDX-License-Identifier: MIT
"""torchft's own tests of its process groups, with ProcessGroupNetsum in the place of Gloo's; ranks are threads of one process.

``torchft_worker FOLDER [NAME]...`` joins the job of the environment, which has RANKS members, and writes what came of each test.
"""

from __future__ import annotations

import itertools
import re
import sys
import unittest
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Final

from tests.system.conformance.worker import note

PREFIX: Final = "torchft:"
RANKS: Final = 3
OTHERS: Final = re.compile("baby|nccl|dummy|wrapper|managed")
"""In the names of tests of torchft's other process groups."""
GLOO_LACKS: Final = ("alltoall_base", "reduce_scatter_tensor_coalesced")
PATIENCE: Final = timedelta(seconds=60)
"""Instead of the second that Gloo's groups get, too short for a busy machine. A timeout that is to run out is shorter."""


def _name(test: Any) -> str:
    return f"{PREFIX}{test.id().rpartition('.')[2]}"


def suite(names: list[str]) -> unittest.TestSuite:
    """torchft's tests of Gloo's process group, and those collectives that Gloo lacks: those whose names begin with one of
    ``names``, or all."""
    from netsum.torch.torchft import ProcessGroupNetsum
    from torchft import process_group_test as theirs

    members = itertools.cycle(range(RANKS))

    def make(timeout: timedelta = PATIENCE) -> ProcessGroupNetsum:
        return ProcessGroupNetsum(timeout if timeout < timedelta(seconds=1) else PATIENCE, next(members))

    theirs.ProcessGroupGloo = make

    class WithoutGloo(theirs.MultiPgBaseTest):  # type: ignore[misc]
        WORLD_SIZE = RANKS

    for name in GLOO_LACKS:
        setattr(WithoutGloo, f"test_collective_{name}", lambda self, name=name: self._run_parallel(name))
        # In the order of names these are the last, since they leave broken groups.
        resilient = f"test_collective_with_resiliency_{name}"
        setattr(WithoutGloo, resilient, lambda self, name=name: self._run_with_resiliency(name))
    made = unittest.TestSuite()
    for tests in (theirs.ProcessGroupTest, theirs.NormalGlooMultiPgTest, WithoutGloo):
        for test in unittest.defaultTestLoader.loadTestsFromTestCase(tests):
            if not OTHERS.search(_name(test)) and _name(test).startswith(tuple(names or [PREFIX])):
                made.addTest(test)
    return made


class Results(unittest.TestResult):
    """Writes what came of each test, as the workers of torch's tests do."""

    def __init__(self, file: IO[str]) -> None:
        super().__init__()
        self._file = file

    def _note(self, test: unittest.TestCase, came: str, why: str) -> None:
        note(self._file, _name(test), came, why)

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802  unittest's names
        self._note(test, "passed", "")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        self._note(test, "skipped", reason)

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addError(test, err)
        self._note(test, "failed", self.errors[-1][1])

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addFailure(test, err)
        self._note(test, "failed", self.failures[-1][1])


if __name__ == "__main__":
    with Path(sys.argv[1], "results.torchft").open("w", buffering=1, encoding="utf-8") as file:
        suite(sys.argv[2:]).run(Results(file))
