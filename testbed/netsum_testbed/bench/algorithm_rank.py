"""One rank of the timed host algorithms, as a process of its own:
``python -m netsum_testbed.bench.algorithm_rank DIRECTORY RANK SIZE,... ITERATIONS``.

It is in one job for each algorithm (descriptor ``DIRECTORY/ALGORITHM.RANK.json``), and the algorithms take turns call by call, in
an order that is the same on every rank and changes: what else the machine does then hits all of them alike. Prints a line of
JSON a size: for each algorithm, in their order, [seconds a call (the median), wrong elements, bytes sent a call].
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import netsum
import numpy as np
from netsum.communicator import Communicator
from netsum.descriptor import HOST_ALGORITHMS


def time_size(comms: dict[str, Communicator], size: int, iterations: int) -> list[tuple[float, int, float]]:
    """Sum arrays of ``size`` bytes by each algorithm, ``iterations`` times after one that is not timed."""
    any_one = next(iter(comms.values()))
    ranks, pattern = any_one.size, np.arange(size // 4) % 97
    source = (pattern + any_one.rank).astype(np.float32)
    expected = (pattern * ranks + ranks * (ranks - 1) // 2).astype(np.float32)
    order = random.Random(size)
    seconds: dict[str, list[float]] = {name: [] for name in comms}
    wrong = dict.fromkeys(comms, 0)
    before: dict[str, int] = {}
    for number in range(iterations + 1):
        for name in order.sample(sorted(comms), len(comms)):
            start = time.perf_counter()
            result = comms[name].allreduce(source)
            if number:
                seconds[name].append(time.perf_counter() - start)
            wrong[name] += int(np.count_nonzero(result != expected))
        if not number:
            before = {name: comm.stats.bytes_sent for name, comm in comms.items()}
    return [
        (statistics.median(seconds[name]), wrong[name], (comms[name].stats.bytes_sent - before[name]) / iterations)
        for name in HOST_ALGORITHMS
    ]


def main(directory: str, rank: str, sizes: str, iterations: str) -> None:
    """All sizes, in order."""
    with ExitStack() as stack:
        comms = {
            name: stack.enter_context(netsum.join(descriptor=Path(directory) / f"{name}.{rank}.json"))
            for name in HOST_ALGORITHMS
        }
        for size in map(int, sizes.split(",")):
            print(json.dumps(time_size(comms, size, int(iterations))), flush=True)
        for comm in comms.values():
            comm.barrier()  # nobody leaves while another may still ask for a result


if __name__ == "__main__":
    main(*sys.argv[1:])
