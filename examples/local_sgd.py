# SPDX-License-Identifier: MIT
"""Fewer calls: four ways to train softmax regression on scikit-learn's digits, three of which talk once in EVERY steps.

    every step   the mean of all gradients, in each step
    local SGD    each worker takes steps of its own; then all take the mean of their weights
    elastic      each worker is drawn towards a center, and the center towards the workers (EASGD; Zhang et al., NeurIPS 2015)
    stale        each worker goes on at once, and gets what the others have done a round later (in the spirit of Downpour SGD;
                 Dean et al., NeurIPS 2012): the sum is in progress while it computes

Start it with `netsum run -n 4 examples/local_sgd.py`; or with torchrun, or on every worker of a job (docs/pytorch.md).
"""

import netsum
import numpy as np
from sklearn.datasets import load_digits

STEPS, BATCH, RATE, EVERY = 240, 128, 0.5, 8

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)
wanted = np.eye(10, dtype=np.float32)[labels]


def gradient(weights, step, comm):
    """That of this worker's part of the batch."""
    batch = np.random.default_rng(step).choice(len(images), BATCH, replace=False)[comm.rank :: comm.size]
    logits = images[batch] @ weights
    guessed = np.exp(logits - logits.max(axis=1, keepdims=True))
    guessed /= guessed.sum(axis=1, keepdims=True)
    return images[batch].T @ (guessed - wanted[batch]) / len(batch)


def local_steps(weights, first, comm):
    """The weights after EVERY steps without the others."""
    for step in range(first, first + EVERY):
        weights = weights - RATE * gradient(weights, step, comm)
    return weights


def every_step(comm):
    weights = np.zeros((64, 10), np.float32)
    for step in range(STEPS):
        weights -= RATE * comm.allreduce(gradient(weights, step, comm), "mean")
    return weights


def local_sgd(comm):
    weights = np.zeros((64, 10), np.float32)
    for first in range(0, STEPS, EVERY):
        weights = comm.allreduce(local_steps(weights, first, comm), "mean")
    return weights


def elastic(comm, pull=0.9):
    weights, center = np.zeros((64, 10), np.float32), np.zeros((64, 10), np.float32)
    for first in range(0, STEPS, EVERY):
        weights = local_steps(weights, first, comm)
        apart = weights - center
        mean = comm.allreduce(apart, "mean")
        weights = weights - np.float32(pull / comm.active_size) * apart  # of those that are in the mean
        center += np.float32(pull) * mean  # the center is the same everywhere
    return center


def stale(comm):
    center = sent = np.zeros((64, 10), np.float32)
    weights, in_flight = center, None
    for first in range(0, STEPS, EVERY):
        weights = local_steps(weights, first, comm)
        progress = weights - sent
        if in_flight is not None:
            center = center + in_flight.wait()  # what all did in the round before
        in_flight = comm.allreduce_async(progress, "mean")
        weights = sent = center + progress
    return center + in_flight.wait()


with netsum.join() as comm:
    for train in (every_step, local_sgd, elastic, stale):
        before = comm.stats.bytes_sent
        weights = train(comm)
        accuracy = (np.argmax(images @ weights, axis=1) == labels).mean()
        sent = comm.stats.bytes_sent - before
        if comm.rank == 0:
            print(f"{train.__name__}: accuracy {accuracy:.1%}, {sent / 1e3:.0f} kB sent", flush=True)
    comm.barrier()  # no rank leaves before all have the last result
