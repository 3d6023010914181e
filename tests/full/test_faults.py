# SPDX-License-Identifier: MIT
"""A bad network and a wrong guess: the sums stay exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from netsum.communicator import Communicator
from netsum_testbed.checking import Screen
from netsum_testbed.fabric import Fabric
from netsum_testbed.verify.run import CellTotals, VerifyOptions, run

from tests.full.calls import on_all, results
from tests.full.conftest import Members
from tests.threads import PATIENCE


@pytest.mark.parametrize("rate", [pytest.param(0.01, marks=pytest.mark.full), 0.1])
def test_lost_doubled_and_reordered_packets_change_no_bit(fabric: Fabric, rate: float) -> None:
    options = VerifyOptions(
        duration=PATIENCE, calls=40, seed=3, loss=rate, duplicate=rate, reorder=rate, workers=(4,), max_elements=20_000
    )
    totals = CellTotals("any", seed=options.seed)
    run(fabric, options, totals, Screen())
    assert (totals.cells, totals.wrong, totals.timeouts) == (40, 0, 0)
    assert min(totals.dropped, totals.duplicated, totals.reordered) > 0


def ones_of(size: float, comm: Communicator) -> Any:
    """Every element ``size`` times rank + 1; whole numbers of so few bits that sums are exact at any scale near theirs."""
    return comm.allreduce(np.full(4000, size * (comm.rank + 1), np.float32), scale="predicted", timeout=PATIENCE)


def test_a_wrong_prediction_is_redone_and_still_exact(four: list[Communicator]) -> None:
    sizes = [1.0, 1.0, 2.0**40, 2.0**40, 2.0**80]
    redone = [comm.stats.redone for comm in four]
    for arrays in results(on_all(four, lambda comm: [ones_of(size, comm) for size in sizes])):
        for array, size in zip(arrays, sizes, strict=True):
            assert set(array.tolist()) == {10 * size}
    assert all(comm.stats.redone > before for comm, before in zip(four, redone, strict=True))


def test_a_prediction_that_is_too_high_comes_down_again(members: Members) -> None:
    with members(4) as communicators:
        big = results(on_all(communicators, lambda comm: ones_of(2.0**60, comm)))
        assert set(big[0].tolist()) == {10 * 2.0**60}
        for _ in range(6):  # the values vanish at first: that is what a prediction risks
            last = results(on_all(communicators, lambda comm: ones_of(1.0, comm)))
        assert [set(array.tolist()) for array in last] == [{10.0}] * 4


def test_one_rank_alone_that_outgrows_the_prediction_is_enough(members: Members) -> None:
    def make(comm: Communicator) -> list[Any]:
        sums = []
        for n in range(2):
            array = np.full(2000, 1.0, np.float64)
            if n == 1 and comm.rank == 1:
                array[1234] = 2.0**80
            sums.append(comm.allreduce(array, scale="predicted", timeout=PATIENCE))
        return sums

    with members(3) as communicators:
        for first, second in results(on_all(communicators, make)):
            assert set(first.tolist()) == {3.0}
            assert second[1234] == 2.0**80
            # 512 float64 fill a block: the others keep their scale.
            assert set(second[:1024].tolist()) == {3.0}
            assert set(second[1536:].tolist()) == {3.0}
        assert {comm.stats.redone for comm in communicators} == {1}
