# SPDX-License-Identifier: MIT
"""One worker of the demo, a process on its host: ``python -m netsum_testbed.demo.worker DIGITS OUT STEPS``.

It joins the environment's job and takes its share of every batch. It prints one JSON object per step and saves its final
weights in ``OUT/weights.RANK.npy``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import netsum
import numpy as np

from netsum_testbed.demo.model import Digits, Perceptron

EVERY = 10
"""Steps between rank 0's measurements of the accuracy."""


def train(digits: Digits, out: Path, steps: int, comm: netsum.Communicator) -> None:
    """Train, and report each step."""
    model = Perceptron()
    communicating = 0.0
    comm.barrier()
    for step, batch in enumerate(digits.batches(steps), 1):
        share = batch[comm.rank :: comm.size]
        # The mean over the workers of (size / batch) * sum over the share is the mean over the batch.
        loss, gradient = model.gradient(digits.images[share], digits.labels[share], len(batch))
        gradient *= np.float32(comm.size)
        start = time.perf_counter()
        comm.allreduce(gradient, op="mean", out=gradient)
        communicating += time.perf_counter() - start
        model.update(gradient)
        said = {
            "rank": comm.rank,
            "step": step,
            "loss": loss,
            "bytes": step * gradient.nbytes,
            "communicating": communicating,
            "retransmissions": comm.stats.retransmissions,
        }
        if comm.rank == 0 and (step % EVERY == 0 or step in (1, steps)):
            said["accuracy"] = model.accuracy(digits.test_images, digits.test_labels)
        print(json.dumps(said), flush=True)
    np.save(out / f"weights.{comm.rank}.npy", model.parameters)
    comm.barrier()  # a rank that has left cannot repeat its last contributions for others that need them


def main(arguments: list[str]) -> int:
    """Return the exit code: 1, with one line on standard error, if something about the job went wrong."""
    digits, out, steps = arguments
    try:
        with netsum.join() as comm:
            train(Digits.load(Path(digits)), Path(out), int(steps), comm)
    except netsum.NetsumError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
