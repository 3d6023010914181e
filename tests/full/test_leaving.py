# SPDX-License-Identifier: MIT
"""Programs that end without closing anything: the others finish, or learn that they wait for a rank that is gone."""

from __future__ import annotations

import sys
from contextlib import ExitStack

import pytest
from netsum_controller import JobSpec
from netsum_controller.state.model import Job
from netsum_testbed.fabric import Fabric

from tests.threads import PATIENCE

pytestmark = pytest.mark.full

PROGRAM = """
import sys
import netsum
import numpy as np

def main(ends):
    comm = netsum.join(call_timeout=float(sys.argv[1]))
    for _ in range(3):
        assert comm.allreduce(np.ones(1 << 16, np.float32))[-1] == comm.size
    if ends == "by an error":
        if comm.rank == 1:
            raise ValueError("a bug of rank 1")
        try:
            comm.allreduce(np.ones(1 << 16, np.float32))
        except netsum.RankLeftError as error:
            print("waits for", *error.missing, flush=True)

main(sys.argv[2])
print("done", flush=True)
"""
ALGORITHMS = ("switch", "ring", "chain")


# Where a rank has no controller to query, it waits for its timeout.
@pytest.mark.parametrize(
    "fabric", ["rootless-embedded", pytest.param("mininet-bmv2", marks=[pytest.mark.root, pytest.mark.bmv2])], indirect=True
)
@pytest.mark.parametrize("ends", ["well", "by an error"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_programs_that_close_nothing(fabric: Fabric, algorithm: str, ends: str) -> None:
    name = f"ends-{'well' if ends == 'well' else 'badly'}-{algorithm.replace('_', '-')}"
    job: Job = fabric.create_job(JobSpec(name=name, members=tuple(fabric.topology.hosts)[:3], algorithm=algorithm))
    with ExitStack() as undo:
        undo.callback(fabric.delete_job, name)
        ranks = fabric.spawn_ranks(job, [sys.executable, "-c", PROGRAM, str(PATIENCE), ends], name=f"{name}.")
        for rank in ranks:
            undo.callback(rank.stop)
        ended = [(rank.wait(PATIENCE), rank.stdout.read().splitlines()) for rank in ranks]
    others = (0, ["done"] if ends == "well" else ["waits for 1", "done"])
    assert [ended[0], ended[2]] == [others] * 2
    assert ended[1][0] == (0 if ends == "well" else 1)
