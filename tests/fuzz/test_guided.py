# SPDX-License-Identifier: MIT
"""Every target of the coverage-guided fuzzer on what is committed, on arbitrary bytes, and guided for a moment."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.guided import GUIDED, TARGETS, coverage, found, load, run
from tests.fuzz.targets.api import FuzzTarget

RUNS = 400


@cache
def loaded(name: str) -> FuzzTarget:
    """A target, made once."""
    target: FuzzTarget = load(name)
    return target


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_what_was_found_before(name: str) -> None:
    target = loaded(name)
    assert target.seeds
    for data in (*target.seeds, *found(name)):
        target.take(data)


@pytest.mark.parametrize("name", TARGETS)
@settings(derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_arbitrary_and_mutated_bytes(name: str, data: st.DataObject) -> None:
    target = loaded(name)
    seed = data.draw(st.sampled_from(target.seeds))
    rng = random.Random(data.draw(st.integers(0, 1 << 32)))
    mutated = bytearray(seed)
    for _ in range(rng.choice((1, 2, 8))):
        at = rng.randrange(len(mutated) + 1)
        mutated[at : at + rng.choice((0, 1, 4))] = rng.randbytes(rng.choice((0, 1, 1, 4)))
    target.take(bytes(mutated))
    target.take(data.draw(st.binary(max_size=200)))


@pytest.mark.atheris
@pytest.mark.parametrize("name", GUIDED)
@pytest.mark.full
def test_guided_by_coverage(name: str) -> None:
    done = run(name, RUNS)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    ended = re.search(r"Done (\d+) runs", done.stderr)
    assert ended is not None
    assert int(ended[1]) >= RUNS  # libFuzzer may make some more
    assert coverage(done.stderr) > 50, "what is fuzzed is not watched"


@pytest.mark.atheris
def test_a_target_that_breaks_is_told(tmp_path: object) -> None:
    """The harness itself: an exception ends the process, and not well."""
    code = "import sys, atheris\natheris.Setup(['x', '-runs=10', '-artifact_prefix=%s/'], lambda data: 1 / 0)\natheris.Fuzz()"
    done = subprocess.run([sys.executable, "-c", code % tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stdout + done.stderr
