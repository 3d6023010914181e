# SPDX-License-Identifier: MIT
"""The memory that a call needs beside the caller's arrays does not grow with them, where it writes into ``out``."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from netsum import Communicator

from tests.hosts.calls import closing_all, on_each
from tests.hosts.combiners import make_network
from tests.threads import PATIENCE

RANKS, ROWS = 2, 1 << 21
"""Rows of float32: 8 MiB, several hundred windows."""
Call = Callable[[Communicator, np.ndarray[Any, Any], np.ndarray[Any, Any]], object]

CALLS: dict[str, Call] = {
    "broadcast": lambda comm, x, _: comm.broadcast(x, out=x),
    "allreduce": lambda comm, x, out: comm.allreduce(x, out=out),
    "uneven reduce_scatter": lambda comm, x, out: comm.reduce_scatter(x, counts=[7, ROWS - 7], out=np.split(out, [7])[comm.rank]),
    "all_gather": lambda comm, x, out: comm.all_gather(x[: ROWS // 2], out=out),
    "all_gather_list": lambda comm, x, out: comm.all_gather_list(x[: ROWS // 2], np.split(out, 2)),
    "all_to_all": lambda comm, x, out: comm.all_to_all(x, out=out),
    "all_to_all_list": lambda comm, x, out: comm.all_to_all_list(np.split(x, 2), np.split(out, 2)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_streams_its_blocks(name: str) -> None:
    arrays = [np.ones(ROWS, np.float32) * (1 + rank) for rank in range(RANKS)]
    room = [np.empty_like(each) for each in arrays]
    with closing_all(make_network(RANKS, window=16).communicators(timeout=PATIENCE)) as communicators:
        on_each(communicators, lambda comm: comm.barrier())
        tracemalloc.start()
        try:
            for outcome in on_each(communicators, lambda comm: CALLS[name](comm, arrays[comm.rank], room[comm.rank])):
                assert not isinstance(outcome, BaseException), outcome
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak / RANKS < 0.3 * arrays[0].nbytes
