# SPDX-License-Identifier: MIT
"""Training that does not wait for late workers: softmax regression on scikit-learn's digits, in a job with `late: degrade`.

Start it with `netsum run -n 4 --late degrade examples/train_degrade.py`; or on every worker of such a job (`netsum job
create FILE --late degrade`; docs/concepts.md), with NETSUM_JOB, NETSUM_RANK, NETSUM_TOKEN and NETSUM_CONTROLLER set.
The last rank plays the straggler. The lines that late workers are the reason for are marked.
"""

import os
import time

import netsum
import numpy as np
from sklearn.datasets import load_digits

STEPS, BATCH, RATE = int(os.environ.get("STEPS", "200")), 128, 0.5
NAP = float(os.environ.get("NAP", "0.2"))  # seconds that the straggler sleeps, in one step of ten

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)
wanted = np.eye(10, dtype=np.float32)[labels]


def gradient_of(weights, share, workers):
    logits = images[share] @ weights
    guessed = np.exp(logits - logits.max(axis=1, keepdims=True))
    guessed /= guessed.sum(axis=1, keepdims=True)
    return images[share].T @ (guessed - wanted[share]) * (workers / BATCH)


weights = np.zeros((64, 10), np.float32)
step, late, sat_out = 0, False, 0
with netsum.join() as comm:
    while step <= STEPS:
        try:
            if step == STEPS:
                comm.barrier()  # no rank leaves before all have the last result
                break
            if comm.rank == comm.size - 1 and step % 10 == 9:
                time.sleep(NAP)
            batch = np.random.default_rng(step).choice(len(images), BATCH, replace=False)  # <-- any step can come again
            keeps_up = not late and not comm.lag()  # <-- the others are ahead: catch up, do not compute
            sat_out += not keeps_up
            share = batch[comm.rank :: comm.size] if keeps_up else batch[:0]
            gradient = gradient_of(weights, share, comm.size)
            mean = comm.allreduce(gradient, "mean", on_late="carry", contribute=keeps_up)  # <-- over those in time
            late = comm.report.late > 0  # <-- then sit the next step out, so as to be in step with them again
        except (netsum.ResultLostError, netsum.DesynchronizedError):  # <-- a rank has lost results, perhaps this one
            step, late = comm.resync(weights, progress=step), False  # <-- all go on from the one that is furthest
            print(f"rank {comm.rank} is back in step {step}", flush=True)
            continue
        weights -= RATE * mean
        step += 1
    accuracy = (np.argmax(images @ weights, axis=1) == labels).mean()
    total = float(weights[:, 0].sum())
    print(f"rank {comm.rank}: accuracy {accuracy:.1%}, sat out {sat_out} steps, first column sums to {total:.9g}")
