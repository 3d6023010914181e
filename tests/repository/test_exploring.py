# SPDX-License-Identifier: MIT
"""The same commit gives the same verdict; what `make explore` finds by other draws, it prints as it goes into the test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.exploring import ROOT, cases_of

EXPLORING = settings(settings.get_profile("explore"), suppress_health_check=list(HealthCheck))


def found(test: Callable[[], Any], *names: str) -> list[str]:
    try:
        test()
    except BaseException as error:
        return list(cases_of(error, set(names)))
    raise AssertionError("the property holds")


def test_the_same_commit_gives_the_same_verdict() -> None:
    for name in ("default", "thorough"):
        profile = settings.get_profile(name)
        assert profile.derandomize
        assert profile.database is None
    assert not settings.get_profile("explore").derandomize


def test_a_case_is_printed_as_the_example_that_fails_again() -> None:
    given_lists = given(x=st.lists(st.integers(0, 20), max_size=3), y=st.booleans())

    def short(x: list[int], y: bool) -> None:  # noqa: ARG001
        assert sum(x) < 10

    (case,) = found(EXPLORING(given_lists(short)))
    decorate = eval(case.removeprefix("@"), {"example": example})
    (again,) = found(settings(EXPLORING, phases=[Phase.explicit])(decorate(given_lists(short))))
    assert again.split() == case.split()
    (without,) = found(EXPLORING(given_lists(short)), "y")
    assert without.startswith("@example(\n    x=[10],\n")
    assert "y=" not in without


def test_every_way_to_fail_has_a_case() -> None:
    @EXPLORING
    @given(st.integers())
    def two(x: int) -> None:
        if x > 5:
            raise ValueError
        if x < -5:
            raise KeyError

    assert sorted("".join(case.split()) for case in found(two)) == ["@example(x=-6,)", "@example(x=6,)"]


def test_what_is_drawn_in_the_test_is_drawn_again() -> None:
    @EXPLORING
    @given(st.data())
    def small(data: st.DataObject) -> None:
        assert data.draw(st.integers(), "number") < 5

    ((decorator, draw),) = [case.splitlines() for case in found(small)]
    assert decorator.startswith("@reproduce_failure(")
    assert draw == "# Draw 1 (number): 5"


def test_the_steps_of_a_state_machine_are_printed() -> None:
    class Counting(RuleBasedStateMachine):
        number = 0

        @rule(step=st.integers(0, 3))
        def count(self, step: int) -> None:
            self.number += step
            assert self.number < 3

    Counting.TestCase.settings = EXPLORING
    (case,) = found(Counting.TestCase().runTest)
    assert case.splitlines() == ["state = Counting()", "state.count(step=3)", "state.teardown()"]


PROPERTIES = """
import pytest
from hypothesis import given, strategies as st

class TestSums:
    @pytest.mark.parametrize("much", [1])
    @given(x=st.integers())
    def test_small(self, much, x):
        assert x + much < 7

def test_no_property():
    assert False
"""


def test_it_draws_until_the_time_is_over_or_everything_has_failed(tmp_path: Path) -> None:
    (tmp_path / "test_sums.py").write_text(PROPERTIES)
    options = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "-p", "tests.conftest", "-p", "no:xdist"]

    def explore(minutes: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "tests.exploring", minutes, *options, "-q", str(tmp_path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    code, said = explore("1000")
    assert code == 1, said
    assert "found in test_sums.py::TestSums::test_small[1]" in said
    assert "@example(\n    x=6,\n)\n" in said
    assert "explore: 2 rounds; 1 properties have failed\n  test_sums.py::TestSums::test_small[1]" in said
    assert explore("0") == (0, "explore: 0 rounds; 0 properties have failed\n")
