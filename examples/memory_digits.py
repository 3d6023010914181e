# SPDX-License-Identifier: MIT
"""Softmax regression with a hidden layer on scikit-learn's digits, with the optimizer at the memory in the network: workers push
gradients and get parameters back. Worker 0 trains the same model alone beside it, with the same optimizer in its own process
from the gradients of all: the parameters must be the same bits.

Start it with `netsum run -n 4 --memory examples/memory_digits.yaml examples/memory_digits.py`. Needs scikit-learn.
"""

import time

import netsum
import netsum.memory
import numpy as np
from netsum_memory.optimizer_rules import LocalOptimizer, OptimizerOptions
from sklearn.datasets import load_digits

STEPS, BATCH, HIDDEN = 150, 128, 128

images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32)
wanted = np.eye(10, dtype=np.float32)[labels]
rng = np.random.default_rng(0)  # the same batches and the same beginning everywhere


def beginning():
    made = np.random.default_rng(1)
    shapes = ((64, HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,))
    return [(made.normal(size=shape) / 8).astype(np.float32) for shape in shapes]


def forward(layers, inputs):
    hidden = np.maximum(inputs @ layers[0] + layers[1], 0)
    logits = hidden @ layers[2] + layers[3]
    guessed = np.exp(logits - logits.max(axis=1, keepdims=True))
    return hidden, guessed / guessed.sum(axis=1, keepdims=True)


def gradients(layers, chosen):
    hidden, guessed = forward(layers, images[chosen])
    error = (guessed - wanted[chosen]) / np.float32(len(chosen))
    below = (error @ layers[2].T) * (hidden > 0)
    return [images[chosen].T @ below, below.sum(axis=0), hidden.T @ error, error.sum(axis=0)]


comm = netsum.join()
layers = beginning()
with netsum.memory.parameters("digits", layers, worker=comm.rank) as model:
    if model.workers != comm.size:
        raise SystemExit(f"the region is for {model.workers} workers (memory_digits.yaml), and there are {comm.size}")
    model.begin()
    alone = beginning()
    optimizer = LocalOptimizer(OptimizerOptions.of(model.memory.descriptor.options), alone)
    comm.barrier()  # worker 0 has written the beginning
    started, spent = time.perf_counter(), 0.0
    for step in range(1, STEPS + 1):
        batch = rng.choice(len(images), BATCH, replace=False)
        mine = gradients(layers, batch[comm.rank :: comm.size])
        before = time.perf_counter()
        model.step(mine)  # <-- push, and get the parameters back
        spent += time.perf_counter() - before
        if comm.rank == 0:
            optimizer.step([gradients(alone, batch[rank :: comm.size]) for rank in range(comm.size)])
            if step % 50 == 0:
                accuracy = (forward(layers, images)[1].argmax(axis=1) == labels).mean()
                print(f"step {step}: accuracy {accuracy:.1%}", flush=True)
    if comm.rank == 0:
        same = all(np.array_equal(ours, theirs) for ours, theirs in zip(layers, alone, strict=True))
        print(f"parameters: {'the same bits as' if same else 'DIFFERENT from'} those of one process")
        parameters, stats = sum(layer.nbytes for layer in layers), model.memory.stats
        print(
            f"{1e3 * spent / STEPS:.1f} ms a step for {parameters} bytes of parameters; "
            f"{stats.bytes_sent // STEPS} bytes sent and {stats.bytes_received // STEPS} received"
        )
    comm.barrier()
comm.close()
