# SPDX-License-Identifier: MIT
"""An operation is one row of the schema: its P4 and its numpy do what the oracle says, and adding a row is enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netsum.wire.schema import COMBINING, Lane, Op

from tests.model.lanes import ORACLES

ROOT = Path(__file__).parents[2]
COPIED = ("hosts", "controller", "switch", "mininet", "bench", "p4src", "tests/model")

ORACLE = "    Op.XNOR: lambda a, b: ~(a ^ b),\n"

ALLREDUCE = """
import numpy as np
from netsum.wire.schema import Op
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topologies import star
from netsum_testbed.fabrics import RootlessFabric
from tests.model.lanes import ORACLES

given = np.random.default_rng(1).integers(0, 2**32, (2, 5000), dtype=np.uint32)
with RootlessFabric(star(2)) as fabric:
    job = fabric.create_job(JobSpec(name="pair", members=("h1", "h2")))
    one, other = fabric.join(job, 0), fabric.join(job, 1)
    work = one.allreduce_async(given[0], op="xnor")
    results = other.allreduce(given[1], op="xnor"), work.wait()
    one.close(), other.close()
right = [ORACLES[Op.XNOR](a, b) % 2**32 for a, b in given.T.tolist()]
for result in results:
    assert result.dtype == np.uint32 and result.tolist() == right
print("exact")
"""


def by_p4(op: Op, ours: int, held: int, ones: int) -> int:
    """The row's P4 expression, on one lane."""
    wins = ones if ours >= held else 0
    value: int = eval(op.p4, {"ours": ours, "held": held, "wins": wins})  # a row of our own schema
    return value & ones


def by_numpy(op: Op, ours: int, held: int, lane: Lane) -> int:
    value: Any = np.array([held], f"u{lane.bytes}")
    first, *after = (getattr(np, name) for name in op.ufuncs.split())
    first(value, np.array([ours], value.dtype), out=value)
    for ufunc in after:
        ufunc(value, out=value)
    return int(value[0])


@pytest.mark.parametrize("lane", Lane, ids=lambda lane: lane.name)
@pytest.mark.parametrize("op", COMBINING, ids=lambda op: op.name)
@given(data=st.data())
def test_a_row_is_its_oracle(op: Op, lane: Lane, data: st.DataObject) -> None:
    ones = (1 << lane.bits) - 1
    a, b, c = (data.draw(st.integers(0, ones)) for _ in range(3))

    def combine(x: int, y: int) -> int:
        return ORACLES[op](x, y) & ones

    assert by_p4(op, a, b, ones) == by_numpy(op, a, b, lane) == combine(a, b)
    assert combine(a, b) == combine(b, a)
    assert combine(combine(a, b), c) == combine(a, combine(b, c))
    assert combine(a, op.identity & ones) == a


def insert_before(path: Path, mark: str, line: str) -> None:
    text = path.read_text("utf-8")
    assert text.count(mark) == 1
    path.write_text(text.replace(mark, line + mark), "utf-8")


@pytest.mark.p4c
@pytest.mark.full
def test_adding_an_operation_is_a_row_and_its_oracle(tmp_path: Path) -> None:
    """The example of docs/change-the-program.md in a scratch copy: compiled, and an allreduce with it on an embedded switch."""
    (row,) = re.findall(r"^XNOR = .*$", (ROOT / "docs" / "change-the-program.md").read_text("utf-8"), re.MULTILINE)
    for folder in COPIED:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "PROTOCOL.md", tmp_path)
    insert_before(tmp_path / "hosts/netsum/wire/schema.py", "    COPY = 6", f"    {row}\n")
    insert_before(tmp_path / "tests/model/lanes.py", "    Op.XOR:", ORACLE)
    path = [tmp_path / folder for folder in ("hosts", "controller", "switch", "mininet", "bench", "p4src/build", ".")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}

    def run(*command: str) -> str:
        words = [sys.executable, *command]
        options: dict[str, Any] = {"cwd": tmp_path, "env": environment, "timeout": 500}
        done = subprocess.run(words, check=False, text=True, capture_output=True, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    run("p4src/compile.py")
    run("-m", "netsum.wire.to_docs")
    assert "| 7 XNOR | `~(ours ^ held)` |" in (tmp_path / "PROTOCOL.md").read_text("utf-8")
    assert run("-c", ALLREDUCE) == "exact\n"
