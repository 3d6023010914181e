# SPDX-License-Identifier: MIT
"""Descriptor files copied for each run: on both switches, a second run takes nothing from the first."""

from __future__ import annotations

import shutil
from pathlib import Path

import netsum
import numpy as np
import pytest
from netsum import Communicator, DesynchronizedError
from netsum_controller.config.job_spec import JobSpec
from netsum_controller.state.model import Late
from netsum_testbed.fabric import Fabric

from tests.hosts.calls import good, on_each

RANKS = 2


@pytest.mark.parametrize("late", [Late.WAIT, Late.DEGRADE])
def test_a_run_with_copies_of_used_files_is_refused(fabric: Fabric, tmp_path: Path, late: Late) -> None:
    hosts = tuple(fabric.topology.hosts)[:RANKS]
    degrades = {"block_exp": 200_000, "quorum": 1} if late is Late.DEGRADE else {}
    name = f"files-{late.value}"
    fabric.create_job(JobSpec(name=name, members=hosts, late=late, **degrades))  # type: ignore[arg-type]
    originals = fabric.controller.membership.write_files(name, tmp_path / "files")

    def come(run: str) -> list[Communicator]:
        shutil.copytree(tmp_path / "files", tmp_path / run)
        return [
            netsum.join(
                descriptor=tmp_path / run / path.name,
                transport=lambda each, host=host: fabric.inside(lambda: fabric.open_transport(each, host)),  # type: ignore[misc]
                call_timeout=60.0,
            )
            for path, host in zip(originals, hosts, strict=True)
        ]

    def total(comm: Communicator, values: tuple[int, ...]) -> int:
        return int(comm.allreduce(np.array([values[comm.rank]]))[0])

    try:
        for run, values in (("first", (10, 11)), ("second", (20, 21))):
            members = come(run)
            got = on_each(members, lambda comm, values=values: np.array(total(comm, values)))  # type: ignore[misc]
            for comm in members:
                comm.close()
            if run == "first":
                assert good(got) == 21
        assert [type(each) for each in got] == [DesynchronizedError] * RANKS
        assert all("used before" in str(each) for each in got)
    finally:
        fabric.controller.delete_job(name)
