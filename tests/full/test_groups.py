# SPDX-License-Identifier: MIT
"""Groups of a job's ranks: each sums for itself, all at the same time, and nothing of them is left behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from netsum import Communicator, UnsupportedError
from netsum_testbed.fabric import Fabric

from tests.full.calls import on_all, results
from tests.full.conftest import Members


def test_rows_and_columns_sum_at_once(fabric: Fabric, members: Members) -> None:
    with members(4) as comms:

        def work(comm: Communicator) -> Any:
            row = comm.split(comm.rank // 2, key=-comm.rank)
            column = comm.split(comm.rank % 2)
            assert row is not None
            assert column is not None
            with row, column:
                ranks = (row.rank, row.size, column.rank, column.size)
                sums = []
                for step in range(5):
                    x = np.full(3000, comm.rank + step, np.int32)
                    begun = [group.allreduce_async(x) for group in (row, comm, column)]
                    sums.append([int(each.wait()[-1]) for each in begun])
                return ranks, sums

        got = results(on_all(comms, work))
        for rank, (ranks, sums) in enumerate(got):
            assert ranks == (1 - rank % 2, 2, rank // 2, 2)
            row, column = 4 * (rank // 2) + 1, 2 * (rank % 2) + 2
            assert sums == [[row + 2 * step, 6 + 4 * step, column + 2 * step] for step in range(5)]
        assert len(fabric.controller.jobs()) == 1, "groups that all have left are gone"


def test_a_rank_without_a_color_is_in_no_group(members: Members) -> None:
    with members(3) as comms:

        def work(comm: Communicator) -> Any:
            group = comm.split(None if comm.rank == 1 else 7)
            if group is None:
                return None
            with group:
                return group.size, int(group.allreduce(np.array([comm.rank]))[0])

        assert results(on_all(comms, work)) == [(2, 2), None, (2, 2)]


def test_a_second_split_makes_other_groups(members: Members) -> None:
    with members(2) as comms:

        def work(comm: Communicator) -> Any:
            names = []
            for _ in range(2):
                group = comm.split(0)
                assert group is not None
                names.append(group.descriptor.job)
                group.close()
            with pytest.raises(UnsupportedError, match="color -3"):
                comm.split(-3)
            return names

        first, second = results(on_all(comms, work))
        assert first == second
        assert len(set(first)) == 2


def test_groups_go_with_their_job(fabric: Fabric, members: Members) -> None:
    with members(2) as comms:
        groups = results(on_all(comms, lambda comm: comm.split(0)))
        assert len(fabric.controller.jobs()) == 2
    assert fabric.controller.jobs() == []
    for group in groups:
        group.close()
