# SPDX-License-Identifier: MIT
"""Times allreduce calls under torchrun: ``time_calls.py FILE CALLS BYTES...``. Rank 0 writes the medians to FILE, as JSON:
{backend: {bytes: seconds}}. Backends take turns, call by call; the sums are checked.

It imports nothing of this repository but netsum, which its environment has from `pip install .`.
"""

import json
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import distributed as dist

FILE, CALLS, SIZES = Path(sys.argv[1]), int(sys.argv[2]), [int(size) for size in sys.argv[3:]]

torch.set_num_threads(1)
dist.init_process_group("netsum")
rank, size = dist.get_rank(), dist.get_world_size()
groups = {"netsum": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
found: dict[str, dict[int, float]] = {name: {} for name in groups}
for nbytes in SIZES:
    seconds: dict[str, list[float]] = {name: [] for name in groups}
    for call in range(CALLS + 1):
        for name, group in groups.items():
            array = torch.full((nbytes // 4,), float(rank + 1))
            dist.barrier(group)
            began = time.perf_counter()
            dist.all_reduce(array, group=group)
            took = torch.tensor(time.perf_counter() - began)
            dist.all_reduce(took, dist.ReduceOp.MAX, groups["gloo"])
            assert (array == size * (size + 1) / 2).all(), f"{name}: a wrong sum"
            if call:
                seconds[name].append(took.item())
    for name, times in seconds.items():
        found[name][nbytes] = statistics.median(times)
if rank == 0:
    FILE.write_text(json.dumps(found))
dist.destroy_process_group()
