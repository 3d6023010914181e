# SPDX-License-Identifier: MIT
"""A training under torchrun: ``train.py FILE STEPS``. Rank 0 writes the losses of all steps and a hash of the weights to FILE.

It imports nothing of this repository but netsum, which its environment has from `pip install .`.
"""

import hashlib
import sys
from pathlib import Path

import torch
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

FILE, STEPS = Path(sys.argv[1]), int(sys.argv[2])

torch.set_num_threads(1)
dist.init_process_group("netsum")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
images, answers = torch.rand(512, 64), torch.randint(10, (512,))
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
parallel = DistributedDataParallel(model)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1, momentum=0.9)
losses = []
for step in range(STEPS):
    batch = torch.arange(rank, 512, size)[step % 4 :: 4]
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(parallel(images[batch]), answers[batch])
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss := loss.detach())
    losses.append(loss.item())
    if rank == 0:
        FILE.with_suffix(".steps").write_text(str(step + 1))
weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
if rank == 0:
    digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()
    FILE.write_text(" ".join([digest, *(loss.hex() for loss in losses)]))
dist.destroy_process_group()
