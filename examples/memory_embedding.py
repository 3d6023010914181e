# SPDX-License-Identifier: MIT
"""Matrix factorization with its 20,000 rows in a table at the memory in the network, ten times what its RAM may hold: who would
like what, from planted tastes. Users and items are asked for as unevenly as in life, so most rows that are needed are hot.

Start it with `netsum run -n 2 --memory examples/memory_embedding.yaml examples/memory_embedding.py`.
"""

import time

import netsum
import netsum.memory
import numpy as np
from netsum_memory.tables import TableOptions, coalesced, initial_rows, update

USERS, ITEMS, STEPS, BATCH = 6000, 14000, 120, 512

tastes = np.random.default_rng(0)
user_tastes, item_tastes = (tastes.normal(size=(number, 4)).astype(np.float32) for number in (USERS, ITEMS))


def batch_of(rank, step):
    """Keys of users and of items, and who liked what."""
    rng = np.random.default_rng([rank, step])
    users, items = (rng.zipf(1.2, size=BATCH) % number for number in (USERS, ITEMS))
    liked = (user_tastes[users] * item_tastes[items]).sum(axis=1) > 0
    return np.stack([users, USERS + items]), liked.astype(np.float32)


def learned(rows, liked):
    """The loss, and the gradient of each row."""
    guessed = 1 / (1 + np.exp(-(rows[0] * rows[1]).sum(axis=1)))
    loss = -np.log(np.where(liked > 0, guessed, 1 - guessed) + 1e-9).mean()
    error = (guessed - liked)[:, None]
    return float(loss), np.stack([error * rows[1], error * rows[0]])


def train_here(options, ranks):
    """The same in this process: all rows in RAM, one rank after the other."""
    rows = initial_rows(options, np.arange(USERS + ITEMS, dtype=np.uint64))
    losses = []
    for step in range(STEPS):
        for rank in range(ranks):
            keys, liked = batch_of(rank, step)
            loss, gradients = learned(rows[keys, : options.dim], liked)
            unique, summed = coalesced(keys.reshape(-1), gradients.reshape(-1, options.dim))
            chosen = rows[unique]
            update(options, chosen, summed, options.lr)
            rows[unique] = chosen
            losses.append(loss)
    return losses


comm = netsum.join()
with netsum.memory.table("factors") as table:
    losses = []
    started = time.perf_counter()
    for step in range(STEPS):
        keys, liked = batch_of(comm.rank, step)
        rows = table.lookup(keys)  # <-- the rows that this batch needs
        loss, gradients = learned(rows, liked)
        table.push(keys, gradients)  # <-- and their gradients, to where the rows are
        losses.append(loss)
        if comm.rank == 0 and (step + 1) % 40 == 0:
            print(f"step {step + 1}: loss {np.mean(losses[-20:]):.3f}", flush=True)
    took, stats = time.perf_counter() - started, table.stats
    options = TableOptions.of(table.memory.descriptor.options)
    print(
        f"{stats.rows} rows looked up and {stats.pushed} pushed, {(stats.rows + stats.pushed) / took:.0f} rows/s, "
        f"{stats.hit_ratio:.1%} of lookups in RAM, which holds {options.ram_rows} of {USERS + ITEMS} rows"
    )
    ours = float(comm.allreduce(np.array(losses[-20:]), op="mean").mean())
    if comm.rank == 0:
        alone = float(np.mean(train_here(options, comm.size)[-20 * comm.size :]))
        print(f"loss at the end: {ours:.3f}, in one process {alone:.3f}")
comm.close()
