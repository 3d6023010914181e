# SPDX-License-Identifier: MIT
"""JAX on scikit-learn's digits, each worker with its share of every batch; gradients are summed as numpy arrays.

Start it with `netsum run -n 4 examples/train_jax.py`; or on every worker of a job, with NETSUM_JOB, NETSUM_RANK, NETSUM_TOKEN and
NETSUM_CONTROLLER set. Needs jax and scikit-learn. The lines that make it distributed are marked.
"""

import jax
import netsum
import numpy as np
from jax.flatten_util import ravel_pytree
from sklearn.datasets import load_digits

STEPS, BATCH, RATE = 200, 128, 0.5

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)


def loss(weights, images, labels):
    hidden = jax.nn.relu(images @ weights["in"])
    return -jax.nn.log_softmax(hidden @ weights["out"])[np.arange(len(labels)), labels].mean()


def average(tree, comm):  # <-- any tree of arrays: gradients, losses, statistics
    flat, restore = ravel_pytree(tree)
    return restore(comm.allreduce(np.asarray(flat), "mean"))


gradient = jax.jit(jax.grad(loss))
keys = jax.random.split(jax.random.key(0))  # the same weights to begin with everywhere
weights = {"in": jax.random.normal(keys[0], (64, 128)) / 8, "out": jax.random.normal(keys[1], (128, 10)) / 11}
with netsum.join() as comm:  # <-- joins the job
    for step in range(1, STEPS + 1):
        batch = np.random.default_rng(step).choice(len(images), BATCH, replace=False)
        share = batch[comm.rank :: comm.size]  # <-- this worker's part of the batch
        change = average(gradient(weights, images[share], labels[share]), comm)  # <-- the switch sums
        weights = jax.tree.map(lambda weight, slope: weight - RATE * slope, weights, change)
    guessed = jax.nn.relu(images @ weights["in"]) @ weights["out"]
    accuracy = float((guessed.argmax(axis=1) == labels).mean())
    print(f"rank {comm.rank}: accuracy {accuracy:.1%}, weights {float(weights['in'].sum()):.9g}", flush=True)
    comm.barrier()  # <-- no rank leaves before all have the last result
