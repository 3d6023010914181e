# SPDX-License-Identifier: MIT
"""DistributedDataParallel that goes on from its last checkpoint: `resuming.py FOLDER [kill|hold]`, started as often as it takes.

Each rank appends to FOLDER/RANK.losses a line for each step that it has done. `kill`: rank 1 kills itself in the middle, unless
torchrun has restarted it. `hold`: rank 0 waits in the middle until there is a file FOLDER/go, while the others are in a call.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, MIDDLE = 12, 6

torch.set_num_threads(1)
folder, disturbance = Path(sys.argv[1]), sys.argv[2:]
dist.init_process_group("netsum", init_method="netsum://")
rank = dist.get_rank()
torch.manual_seed(0)
inner = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 5))
optimizer = torch.optim.SGD(inner.parameters(), lr=0.1, momentum=0.9)
checkpoint, first = folder / "checkpoint.pt", 0
if checkpoint.exists():
    state = torch.load(checkpoint)
    inner.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"]
model = DistributedDataParallel(inner, bucket_cap_mb=0.002)  # several buckets
for step in range(first, STEPS):
    if step == MIDDLE:
        if disturbance == ["kill"] and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        while disturbance == ["hold"] and rank == 0 and not (folder / "go").exists():
            time.sleep(0.01)
    batch = torch.randn(16, 20, generator=torch.Generator().manual_seed(100 * step + rank))
    loss = (model(batch) - batch[:, :5].abs()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    everyones = loss.detach()
    dist.all_reduce(everyones)
    with (folder / f"{rank}.losses").open("a") as file:
        file.write(f"{step} {everyones.item().hex()}\n")
    if rank == 0:
        state = {"model": inner.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
        torch.save(state, folder / "new.pt")
        (folder / "new.pt").rename(checkpoint)
    dist.barrier()
print("resumes:", dist.group.WORLD.comm.stats.resumes, flush=True)
dist.destroy_process_group()
