# SPDX-License-Identifier: MIT
"""One rank of a training whose computer is emulated: ``python -m tests.system.predictions.trainer JSON``.

The time that computing takes passes in sleep, as if an accelerator computed; the calls are real. It prints a line of JSON: the
median seconds of a step, after one that is not counted.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import netsum
import numpy as np
from netsum.communicator import Communicator

TIMEOUT = 300.0
"""Seconds of a call: a loaded machine is slow."""


def one_step(comm: Communicator, requested: dict[str, Any], arrays: list[np.ndarray[Any, Any]]) -> float:
    """Seconds of a forward pass, and a backward pass in which each bucket's call begins when the bucket is there."""
    comm.barrier()
    start = time.perf_counter()
    ready, in_flight = start + requested["forward"], []
    for (_, work), array in zip(requested["buckets"], arrays, strict=True):
        ready += work * requested["backward"]
        if requested["overlap"]:
            _sleep_until(ready)
            in_flight.append(comm.allreduce_async(array))
    _sleep_until(ready)
    if not requested["overlap"]:
        in_flight = [comm.allreduce_async(array) for array in arrays]
    for work in in_flight:
        work.wait()
    return time.perf_counter() - start


def _sleep_until(moment: float) -> None:
    while (left := moment - time.perf_counter()) > 0:
        time.sleep(left)


def main(text: str) -> None:
    requested = json.loads(text)
    arrays = [np.ones(round(nbytes / 4), np.float32) for nbytes, _ in requested["buckets"]]
    with netsum.join(call_timeout=TIMEOUT) as comm:
        seconds = [one_step(comm, requested, arrays) for _ in range(requested["steps"] + 1)]
        print(json.dumps(statistics.median(seconds[1:])), flush=True)
        comm.barrier()  # no rank leaves while another may still ask for a result


if __name__ == "__main__":
    main(sys.argv[1])
