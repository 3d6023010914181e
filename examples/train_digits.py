# SPDX-License-Identifier: MIT
"""Softmax regression on scikit-learn's digits, each worker with its share of every batch.

Start it with `netsum run -n 4 examples/train_digits.py`; or on every worker of a job, with NETSUM_JOB, NETSUM_RANK,
NETSUM_TOKEN and NETSUM_CONTROLLER set; in `make testbed`: `netsum> all python examples/train_digits.py`. The lines that
make it distributed are marked.
"""

import netsum
import numpy as np
from sklearn.datasets import load_digits

STEPS, BATCH, RATE = 200, 128, 0.5

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)
wanted = np.eye(10, dtype=np.float32)[labels]
weights = np.zeros((64, 10), np.float32)
rng = np.random.default_rng(0)  # the same batches everywhere

with netsum.join() as comm:  # <-- joins the job
    for step in range(1, STEPS + 1):
        batch = rng.choice(len(images), BATCH, replace=False)
        share = batch[comm.rank :: comm.size]  # <-- this worker's part of the batch
        logits = images[share] @ weights
        guessed = np.exp(logits - logits.max(axis=1, keepdims=True))
        guessed /= guessed.sum(axis=1, keepdims=True)
        gradient = images[share].T @ (guessed - wanted[share]) * (comm.size / BATCH)
        weights -= RATE * comm.allreduce(gradient, op="mean")  # <-- the switch sums
        if step % 50 == 0:
            accuracy = (np.argmax(images @ weights, axis=1) == labels).mean()
            print(f"rank {comm.rank} step {step}: accuracy {accuracy:.1%}", flush=True)
    print(f"rank {comm.rank} ends with weights whose first column sums to {float(weights[:, 0].sum()):.9g}")
    comm.barrier()  # <-- no rank leaves before all have the last result
