# SPDX-License-Identifier: MIT
"""A script that names another backend of torch, `named.py BACKEND`, and runs on netsum."""

import logging
import queue
import sys
from datetime import timedelta
from logging.handlers import QueueHandler

import pytest
import torch
from netsum.torch import ProcessGroup
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

backend = sys.argv[1]
records = queue.SimpleQueue[logging.LogRecord]()
logger = logging.getLogger("netsum")
logger.addHandler(QueueHandler(records))
logger.setLevel(logging.INFO)
for named in ("gloo", None) if backend == "gloo" else (backend,):  # None: torch's default
    dist.init_process_group(named)
    rank, size = dist.get_rank(), dist.get_world_size()
    assert isinstance(dist.group.WORLD, ProcessGroup)
    assert dist.get_backend() == (named or "undefined")
    total = torch.ones(3)
    dist.all_reduce(total)
    assert total.tolist() == [size] * 3
    pair = dist.new_group([0, size - 1], backend=backend)
    if rank in (0, size - 1):
        assert isinstance(pair, ProcessGroup)
        dist.all_reduce(total, group=pair)
        assert total.tolist() == [2 * size] * 3
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    model(torch.full((8, 4), float(rank))).sum().backward()
    assert model.module.weight.grad.tolist() == [[4.0 * (size - 1)] * 4]
    if named == "gloo":
        dist.monitored_barrier()
        if rank == 0:
            with pytest.raises(
                RuntimeError, match=f"Ranks {', '.join(map(str, range(1, size)))} failed to pass monitoredBarrier"
            ):
                dist.monitored_barrier(timeout=timedelta(seconds=0.2), wait_all_ranks=True)
    dist.barrier()
    dist.destroy_process_group()
messages = [records.get().getMessage() for _ in range(records.qsize())]
assert messages.count(f"NETSUM_AS: process groups of {backend} run on netsum") == 1, messages
