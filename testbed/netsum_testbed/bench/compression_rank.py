"""One rank of a training that is repeated with each way to carry its gradients, as a process:
``python -m netsum_testbed.bench.compression_rank DIGITS STEPS "METHOD;..."``.

It joins the environment's job. Rank 0 prints a line of JSON for each method: its curve, as [bytes sent, seconds in calls,
accuracy] of a rank, every ``EVERY`` steps.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import netsum
import numpy as np
from netsum.communicator import Communicator
from netsum.compression import Rotated, TopBlocks

from netsum_testbed.demo.model import Digits, Perceptron

EVERY: Final = 10
"""Steps between measurements of the accuracy."""

Average = Callable[[Any], Any]
METHODS: Final[dict[str, Callable[[Communicator], Average]]] = {
    "float32": lambda comm: lambda x: comm.allreduce(x, "mean"),
    "16 bits": lambda comm: lambda x: comm.allreduce(x, "mean", bits=16),
    "8 bits": lambda comm: lambda x: comm.allreduce(x, "mean", bits=8),
    "8 bits, stochastic": lambda comm: lambda x: comm.allreduce(x, "mean", bits=8, rounding="stochastic"),
    "rotated 8 bits": lambda comm: Rotated(comm, 8, error_feedback=False).allreduce,
    "rotated 4 bits": lambda comm: Rotated(comm, 4, error_feedback=False).allreduce,
    "rotated 4 bits, feedback": lambda comm: Rotated(comm, 4).allreduce,
    "top 10%, feedback": lambda comm: TopBlocks(comm, 0.1).allreduce,
    "top 1%, feedback": lambda comm: TopBlocks(comm, 0.01).allreduce,
}
"""The mean of an array over the ranks of a communicator, by name."""


def train(digits: Digits, steps: int, comm: Communicator, average: Average) -> list[list[float]]:
    """Train from the same initial weights; returns the curve."""
    model, curve, seconds = Perceptron(), [], 0.0
    comm.barrier()
    before = comm.stats.bytes_sent
    for step, batch in enumerate(digits.batches(steps), 1):
        share = batch[comm.rank :: comm.size]
        _, gradient = model.gradient(digits.images[share], digits.labels[share], len(batch))
        start = time.perf_counter()
        mean = average(gradient * np.float32(comm.size))
        seconds += time.perf_counter() - start
        model.update(mean)
        if step % EVERY == 0 or step == steps:
            accuracy = model.accuracy(digits.test_images, digits.test_labels)
            curve.append([comm.stats.bytes_sent - before, round(seconds, 4), round(accuracy, 4)])
    return curve


def main(digits: str, steps: str, methods: str) -> None:
    images = Digits.load(Path(digits))
    with netsum.join() as comm:
        for name in methods.split(";"):
            curve = train(images, int(steps), comm, METHODS[name](comm))
            if comm.rank == 0:
                print(json.dumps(curve), flush=True)
        comm.barrier()  # no rank leaves while another may still ask for a result


if __name__ == "__main__":
    main(*sys.argv[1:])
