# SPDX-License-Identifier: MIT
"""Training whose sums are `agreed` or `exact`, in buckets of MB: `sums.py FILE agreed|exact|environment MB`.

`exact` is by torch's pg_options, `environment` by NETSUM_SUM. Rank 0 appends the hash of the weights to FILE.
"""

import hashlib
import os
import sys
from pathlib import Path

import torch
from netsum.torch import Options
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

file, sums, bucket = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
torch.set_num_threads(1)
if sums == "environment":
    os.environ["NETSUM_SUM"] = "exact"
dist.init_process_group("netsum", pg_options=Options("exact") if sums == "exact" else None)
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 5))
with torch.no_grad():
    model[2].weight *= torch.logspace(-6, 0, 50)  # gradients of many magnitudes
model = DistributedDataParallel(model, bucket_cap_mb=bucket)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = torch.zeros(())
pair = dist.new_group([0, size - 1])
for step in range(5):
    batch = torch.randn(16, 20, generator=torch.Generator().manual_seed(size * step + rank))
    loss = (model(batch) - batch[:, :5].abs()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.detach()
dist.all_reduce(total, dist.ReduceOp.AVG)
if rank in (0, size - 1):  # a group has the sums of the default group
    numbers = torch.tensor([2.0**60, 1.0]) if rank == 0 else torch.tensor([1.0, 2.0**-40])
    dist.all_reduce(numbers, group=pair)
    if sums != "agreed":
        assert numbers.tolist() == [2.0**60, 1.0]
    else:
        assert numbers.tolist() == [2.0**60, 0.0]
if rank == 0:
    bits = b"".join(each.detach().numpy().tobytes() for each in (*model.parameters(), total))
    with file.open("a") as out:
        print(sums, hashlib.sha256(bits).hexdigest(), file=out)
dist.destroy_process_group()
