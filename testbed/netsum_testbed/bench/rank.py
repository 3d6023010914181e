"""One rank of a timed collective, as a process:
``python -m netsum_testbed.bench.rank SIZE,... DTYPE ITERATIONS PLACES SCALE [DESCRIPTOR ...]``.

It joins the environment's job, or one job for each descriptor file. These take turns call by call, in a varying order that is
the same on every rank, so that other load on the machine affects all of them alike. It prints a line of JSON for each size, with
[median seconds, wrong elements, bytes sent] of a call for each job, out of place and, if PLACES is 2, in place.
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
from typing import Any

import netsum
import numpy as np
from netsum.communicator import Communicator


def time_calls(
    comms: Sequence[Communicator], size: int, dtype: str, iterations: int, *, in_place: bool, scale: str = "agreed"
) -> list[tuple[float, int, float]]:
    """Sum arrays of ``size`` bytes on each communicator, ``iterations`` times after an untimed call."""
    rank, ranks = comms[0].rank, comms[0].size
    pattern = np.arange(size // np.dtype(dtype).itemsize) % 97
    source = (pattern + rank).astype(dtype)
    expected = (pattern * ranks + ranks * (ranks - 1) // 2).astype(dtype)
    out = source.copy()
    options: dict[str, Any] = {"exact": True} if scale == "exact" else {"scale": scale}
    order = random.Random(size)
    seconds: list[list[float]] = [[] for _ in comms]
    wrong, before = [0] * len(comms), [0] * len(comms)
    for number in range(iterations + 1):
        for which in order.sample(range(len(comms)), len(comms)):
            start = time.perf_counter()
            if in_place:
                out[...] = source
            comms[which].allreduce(out if in_place else source, out=out, **options)
            seconds[which].append(time.perf_counter() - start)
            wrong[which] += int(np.count_nonzero(out != expected))
            if not number:
                before[which] = comms[which].stats.bytes_sent
    return [
        (statistics.median(seconds[which][1:]), wrong[which], (comm.stats.bytes_sent - before[which]) / iterations)
        for which, comm in enumerate(comms)
    ]


def main(sizes: str, dtype: str, iterations: str, places: str, scale: str, *descriptors: str) -> None:
    with ExitStack() as stack:
        comms = [stack.enter_context(netsum.join(descriptor=Path(each))) for each in descriptors]
        comms = comms or [stack.enter_context(netsum.join())]
        for size in map(int, sizes.split(",")):
            timed = [
                each
                for in_place in (False, True)[: int(places)]
                for each in time_calls(comms, size, dtype, int(iterations), in_place=in_place, scale=scale)
            ]
            print(json.dumps(timed), flush=True)
        for comm in comms:
            comm.barrier()  # no rank leaves while another may still ask for a result


if __name__ == "__main__":
    main(*sys.argv[1:])
