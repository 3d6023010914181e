# SPDX-License-Identifier: MIT
"""An example with a framework, and then its process group and weights: `frameworks.py EXAMPLE BACKEND`, which stands in the
example in the place of "netsum"."""

import hashlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

example, backend = Path(sys.argv[1]), sys.argv[2]
if example.name == "deepspeed_digits.py":
    from deepspeed.ops import __compatible_ops__

    __compatible_ops__["deepspeed_shm_comm"] = False  # compiling it takes minutes; only inference calls it
destroy, dist.destroy_process_group = dist.destroy_process_group, lambda *_: None
names: dict[str, Any] = {"__name__": "__main__"}
exec(compile(example.read_text().replace('"netsum"', f'"{backend}"'), example, "exec"), names)
weights = torch.cat([parameter.detach().flatten() for parameter in names["model"].parameters()])
digest = hashlib.sha256(weights.numpy()).hexdigest()
groups = list(dist.distributed_c10d._world.pg_map)  # frameworks make groups of their own
reduced = sum(getattr(group, "reduced", 0) for group in groups)
print(f"{type(groups[0]).__module__}: {reduced} bytes reduced, {weights.nbytes} bytes of weights, {digest}", flush=True)
destroy()
