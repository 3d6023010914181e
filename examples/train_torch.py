# SPDX-License-Identifier: MIT
"""A PyTorch training loop on scikit-learn's digits, each worker with its share of every batch.

Start it with `netsum run -n 4 examples/train_torch.py`; or on every worker of a job, with NETSUM_JOB, NETSUM_RANK,
NETSUM_TOKEN and NETSUM_CONTROLLER set; in `make testbed`: `netsum> all python examples/train_torch.py`. Needs the
`torch` extra and scikit-learn. The lines that make it distributed are marked.
"""

import netsum
import torch
from netsum.torch import average_gradients
from sklearn.datasets import load_digits

STEPS, BATCH = 200, 128

images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
images = (images / 16).float()
torch.manual_seed(0)  # the same weights to begin with, and the same batches, everywhere
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

with netsum.join() as comm:  # <-- joins the job
    for step in range(1, STEPS + 1):
        batch = torch.randperm(len(images))[:BATCH]
        share = batch[comm.rank :: comm.size]  # <-- this worker's part of the batch
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[share]), labels[share], reduction="sum")
        (loss * comm.size / BATCH).backward()
        average_gradients(model, comm)  # <-- the switch sums
        optimizer.step()
        if step % 50 == 0:
            accuracy = (model(images).argmax(dim=1) == labels).float().mean().item()
            print(f"rank {comm.rank} step {step}: accuracy {accuracy:.1%}", flush=True)
    first = model[0].weight[:, 20].sum().item()
    print(f"rank {comm.rank} ends with weights whose column 20 sums to {first:.9g}")
    comm.barrier()  # <-- no rank leaves before all have the last result
