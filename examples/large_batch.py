# SPDX-License-Identifier: MIT
"""Large batches on scikit-learn's digits, of which there are few steps: DistributedDataParallel with SGD, and with LARS and LAMB,
which scale each layer's step by the norm of its weights (You et al., 2017 and 2020), from the package pytorch-optimizer.

Start it with `netsum run -n 4 examples/large_batch.py`; or with torchrun, in a job of a running controller (NETSUM_JOB,
NETSUM_TOKEN and NETSUM_CONTROLLER set): `torchrun --nproc-per-node 4 examples/large_batch.py`. Needs the `torch` extra,
scikit-learn and pytorch-optimizer.
"""

import torch
from pytorch_optimizer import LARS, Lamb
from sklearn.datasets import load_digits
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

EPOCHS, BATCH = 12, 512  # a third of the images a step, 33 steps

OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.3, momentum=0.9),
    "LARS": lambda parameters: LARS(parameters, lr=10.0, momentum=0.9, weight_decay=1e-4),
    "LAMB": lambda parameters: Lamb(parameters, lr=0.1, weight_decay=1e-2),
}

dist.init_process_group("netsum", init_method="netsum://")
rank, size = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)
images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
images = (images / 16).float()
held_out = len(images) // 5
for name, optimizer_of in OPTIMIZERS.items():
    torch.manual_seed(0)  # the same weights and batches for each, and on every rank
    model = DistributedDataParallel(
        torch.nn.Sequential(
            torch.nn.Linear(64, 128),
            torch.nn.ReLU(),
            torch.nn.Linear(128, 128),
            torch.nn.ReLU(),
            torch.nn.Linear(128, 10),
        )
    )
    optimizer = optimizer_of(model.parameters())
    steps = EPOCHS * (len(images) - held_out) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, optimizer.param_groups[0]["lr"], total_steps=steps)
    for _ in range(steps):
        batch = held_out + torch.randperm(len(images) - held_out)[:BATCH][rank::size]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
        schedule.step()
    accuracy = (model.module(images[:held_out]).argmax(dim=1) == labels[:held_out]).float().mean().item()
    if rank == 0:
        print(f"{name}: accuracy {accuracy:.1%} after {steps} steps of {BATCH} images", flush=True)
dist.destroy_process_group()
