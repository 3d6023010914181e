"""One rank of a timed collective, as a process of its own:
``python -m netsum_testbed.bench.rank SIZE,... DTYPE ITERATIONS PLACES [DESCRIPTOR ...]``.

Joins what the environment names, or a job for each descriptor file: these take turns call by call, in an order that is the same
on every rank and changes, so that what else the machine does hits all of them alike. Prints a line of JSON a size, with
[seconds a call (the median), wrong elements, bytes sent a call] for each job out of place and, if PLACES is 2, in place.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import netsum
import numpy as np
from netsum.communicator import Communicator


def time_calls(
    comms: Sequence[Communicator], size: int, dtype: str, iterations: int, *, in_place: bool
) -> list[tuple[float, int, float]]:
    """Sum arrays of ``size`` bytes on each communicator, ``iterations`` times after one that is not timed."""
    rank, ranks = comms[0].rank, comms[0].size
    pattern = np.arange(size // np.dtype(dtype).itemsize) % 97
    source = (pattern + rank).astype(dtype)
    expected = (pattern * ranks + ranks * (ranks - 1) // 2).astype(dtype)
    out = source.copy()
    order = random.Random(size)
    seconds: list[list[float]] = [[] for _ in comms]
    wrong, before = [0] * len(comms), [0] * len(comms)
    for number in range(iterations + 1):
        for which in order.sample(range(len(comms)), len(comms)):
            start = time.perf_counter()
            if in_place:
                out[...] = source
            comms[which].allreduce(out if in_place else source, out=out)
            seconds[which].append(time.perf_counter() - start)
            wrong[which] += int(np.count_nonzero(out != expected))
            if not number:
                before[which] = comms[which].stats.bytes_sent
    return [
        (statistics.median(seconds[which][1:]), wrong[which], (comm.stats.bytes_sent - before[which]) / iterations)
        for which, comm in enumerate(comms)
    ]


def main(sizes: str, dtype: str, iterations: str, places: str, *descriptors: str) -> None:
    """All sizes, in order."""
    with ExitStack() as stack:
        comms = [stack.enter_context(netsum.join(descriptor=Path(each))) for each in descriptors]
        comms = comms or [stack.enter_context(netsum.join())]
        for size in map(int, sizes.split(",")):
            timed = [
                each
                for in_place in (False, True)[: int(places)]
                for each in time_calls(comms, size, dtype, int(iterations), in_place=in_place)
            ]
            print(json.dumps(timed), flush=True)
        for comm in comms:
            comm.barrier()  # nobody leaves while another may still ask for a result


if __name__ == "__main__":
    main(*sys.argv[1:])
