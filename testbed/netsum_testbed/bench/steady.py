"""One rank of a job that calls all the time: ``python -m netsum_testbed.bench.steady SIZE SECONDS``.

Joins what the environment names, says ``begun`` after its first call, makes allreduces of SIZE bytes for SECONDS, or until rank
0 gets SIGTERM, and prints a line of JSON: {"ends": when each call ended (seconds of the machine's monotonic clock, which all
processes share), "wrong": elements that differ from the sum}. The ranks agree on the last call by what they add up.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from types import FrameType

import netsum
import numpy as np
from netsum.communicator import Communicator

PATIENCE = 600.0
"""Seconds that a call may take: beside others it may take long."""


def call_steadily(comm: Communicator, size: int, seconds: float) -> tuple[list[float], int]:
    """When the calls ended, without the first, and how many elements were wrong."""
    enough = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal enough
        enough = True

    signal.signal(signal.SIGTERM, stop)
    pattern = np.arange(size // 4, dtype=np.int32) % 97
    mine, expected = pattern + comm.rank, pattern * comm.size + comm.size * (comm.size - 1) // 2
    total = comm.allreduce(mine, timeout=PATIENCE)
    print("begun", flush=True)
    ends: list[float] = []
    wrong, deadline = 0, time.monotonic() + seconds
    while True:
        last = comm.rank == 0 and (enough or time.monotonic() >= deadline)
        mine[0] = comm.rank + last
        comm.allreduce(mine, out=total, timeout=PATIENCE)
        ends.append(time.monotonic())
        wrong += int(np.count_nonzero(total[1:] != expected[1:]))
        if total[0] != expected[0]:
            return ends, wrong


def main(size: str, seconds: str) -> None:
    with netsum.join() as comm:
        ends, wrong = call_steadily(comm, int(size), float(seconds))
        print(json.dumps({"ends": ends, "wrong": wrong}), flush=True)
        comm.barrier()  # nobody leaves while another may still ask for a result


if __name__ == "__main__":
    main(*sys.argv[1:])
