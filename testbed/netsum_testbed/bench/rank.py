"""One rank of a timed collective, as a process of its own:
``python -m netsum_testbed.bench.rank SIZE,... DTYPE ITERATIONS [PLACES]``.

Joins what the environment names and prints a line of JSON a size: [seconds a call (the median), wrong elements, bytes sent
a call] out of place, and unless PLACES is 1 in place.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import netsum
import numpy as np
from netsum.communicator import Communicator


def time_calls(
    comm: Communicator, size: int, dtype: str, iterations: int, *, in_place: bool
) -> tuple[float, int, float]:
    """Sum arrays of ``size`` bytes, ``iterations`` times after one that is not timed."""
    count = size // np.dtype(dtype).itemsize
    pattern = np.arange(count) % 97
    source = (pattern + comm.rank).astype(dtype)
    expected = (pattern * comm.size + comm.size * (comm.size - 1) // 2).astype(dtype)
    out = source.copy()
    comm.allreduce(source, out=out)
    seconds = []
    before = comm.stats.bytes_sent
    for _ in range(iterations):
        start = time.perf_counter()
        if in_place:
            out[...] = source
        comm.allreduce(out if in_place else source, out=out)
        seconds.append(time.perf_counter() - start)
    sent = (comm.stats.bytes_sent - before) / iterations
    return statistics.median(seconds), int(np.count_nonzero(out != expected)), sent


def main(sizes: str, dtype: str, iterations: str, places: str = "2") -> None:
    """All sizes, in order."""
    with netsum.join() as comm:
        for size in map(int, sizes.split(",")):
            timed = [
                time_calls(comm, size, dtype, int(iterations), in_place=in_place)
                for in_place in (False, True)[: int(places)]
            ]
            print(json.dumps(timed), flush=True)
        comm.barrier()  # nobody leaves while another may still ask for a result


if __name__ == "__main__":
    main(*sys.argv[1:])
