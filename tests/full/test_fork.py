"""A forked child of a member, over a switch and with a controller, disturbs neither sums nor membership."""

from __future__ import annotations

from typing import Any

import numpy as np
from netsum.communicator import Communicator

from tests.full.calls import on_all, results
from tests.full.conftest import Members
from tests.hosts.forking import in_child, outcome


def test_a_forked_child_changes_no_sum_and_signs_nobody_off(members: Members) -> None:
    with members(2) as comms:

        def call(comm: Communicator) -> Any:
            return comm.allreduce(np.full(3000, comm.rank + 1, np.int64))

        def child() -> Any:
            with comms[0]:
                return outcome(lambda: int(comms[0].allreduce(np.full(3000, 1000))[0]))

        assert int(results(on_all(comms, call))[0][0]) == 3
        assert in_child(child)[0] == "Closed"
        for _ in range(3):
            assert [set(total.tolist()) for total in results(on_all(comms, call))] == [{3}] * 2
        groups = results(on_all(comms, lambda comm: comm.split(0)))  # which the controller makes for members alone
        assert [set(total.tolist()) for total in results(on_all(groups, call))] == [{3}] * 2
        for group in groups:
            group.close()
