# SPDX-License-Identifier: MIT
"""Times allreduce calls by each way under torchrun: ``time_ways.py FILE CALLS BYTES``. Rank 0 writes to FILE, as JSON, the median
seconds by the job's own choice (``auto``), by a ring of the same ranks and by the aggregator alone, and what was chosen.

The ways take turns, call by call, once the ranks have settled on one; the sums are checked. It imports nothing of this repository
but netsum, which its environment has from `pip install .`.
"""

import json
import logging
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import netsum
import numpy as np
from netsum.settings import Environment

FILE, CALLS, NBYTES = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
PATIENCE = 120.0
MOST_TRIED = 50
"""Calls after which the ranks must have settled on a way."""


class Choices(logging.Handler):
    """Keeps what the ranks log about the ways that they choose."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if (text := record.getMessage()).startswith("allreduces of "):
            self.found.append(text)


choices = Choices()
log = logging.getLogger("netsum.member")
log.addHandler(choices)
log.setLevel(logging.INFO)
line = Environment.read().join
assert line is not None
auto = netsum.join(timeout=PATIENCE, call_timeout=PATIENCE)
rank, size = auto.rank, auto.size
other = replace(line, job=f"{auto.descriptor.job}-alone").format()
alone = netsum.join(controller=other, algorithm="switch", timeout=PATIENCE, call_timeout=PATIENCE)
ring = auto._grouping().group(auto.descriptor.epoch, "ring", range(size), time.monotonic() + PATIENCE, "ring")
ways = {"auto": auto, "ring": ring, "aggregator": alone}


def seconds(way: str) -> float:
    """The time of one call, of the slowest rank."""
    comm = ways[way]
    array = np.full(NBYTES // 4, rank + 1, np.float32)
    comm.barrier()
    began = time.perf_counter()
    result = comm.allreduce(array, out=array)
    took = time.perf_counter() - began
    assert (result == size * (size + 1) / 2).all(), f"{way}: a wrong sum"
    return float(alone.allreduce(np.array([took]), "max")[0])


for _ in range(MOST_TRIED):
    seconds("auto")
    if choices.found:  # all ranks settle in the same call
        break
assert choices.found, f"after {MOST_TRIED} calls, no way was settled: {auto.descriptor.advice}"
times: dict[str, list[float]] = {way: [] for way in ways}
order = list(ways)
for call in range(CALLS + 1):
    order.append(order.pop(0))  # each follows each of the others
    for way in order:
        took = seconds(way)
        if call:
            times[way].append(took)
if rank == 0:
    medians = {way: statistics.median(each) for way, each in times.items()}
    FILE.write_text(json.dumps({"seconds": medians, "chosen": choices.found[-1]}))
for comm in (ring, alone, auto):
    comm.barrier()
    comm.close()
