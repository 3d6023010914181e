"""One rank of a job, as a process: ``python -m netsum_bench.host_rank SIZE CALLS TURNS``. What the library costs it in
processor time, the kernel's included.

It joins the environment's job and prints a line of JSON: of each turn, the microseconds of a block in CALLS allreduces of SIZE
bytes of float32 and of a whole allreduce of 4 KiB at predicted scales, and megabytes per second; and how many elements of all
sums were wrong.
"""

from __future__ import annotations

import json
import sys
import time

import netsum
import numpy as np
from netsum.communicator import Communicator

SMALL = 4096
"""Bytes of a small call."""
SMALL_CALLS = 20
"""Small calls for each large one."""


class Timed:
    """Allreduces of one array, whose sum is known."""

    def __init__(self, comm: Communicator, size: int, scale: str) -> None:
        pattern = np.arange(size // 4) % 97
        self._comm, self._scale = comm, scale
        self._source = (pattern + comm.rank).astype(np.float32)
        self._expected = (pattern * comm.size + comm.size * (comm.size - 1) // 2).astype(np.float32)
        self._out = np.zeros_like(self._source)
        self.wrong = 0

    def calls(self, number: int) -> tuple[float, float, int]:
        """Make ``number`` calls: seconds of processor time, seconds, and blocks."""
        blocks, began, busy = self._comm.stats.blocks, time.perf_counter(), time.process_time()
        for _ in range(number):
            self._comm.allreduce(self._source, out=self._out, scale=self._scale)
        took = time.process_time() - busy, time.perf_counter() - began, self._comm.stats.blocks - blocks
        self.wrong += int(np.count_nonzero(self._out != self._expected))
        return took


def main(size: int, calls: int, turns: int) -> None:
    with netsum.join() as comm:
        large, small = Timed(comm, size, "agreed"), Timed(comm, SMALL, "predicted")
        large.calls(1)
        small.calls(3)
        found: dict[str, list[float]] = {"us_per_block": [], "small_call_us": [], "MBps": []}
        for _ in range(turns):
            busy, seconds, blocks = large.calls(calls)
            found["us_per_block"].append(busy / blocks * 1e6)
            found["MBps"].append(size * calls / seconds / 1e6)
            busy, *_ = small.calls(calls * SMALL_CALLS)
            found["small_call_us"].append(busy / (calls * SMALL_CALLS) * 1e6)
        print(json.dumps({**found, "wrong": large.wrong + small.wrong}), flush=True)
        comm.barrier()  # no rank leaves while another may still ask for a result


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
