# SPDX-License-Identifier: MIT
"""Opens process groups and destroys them, again and again, at once and without a barrier: each rank at its own pace."""

import os
import time

import torch
from netsum.torch import group_init
from torch import distributed as dist

vars(group_init).update(STORE_PATIENCE=600.0, PATIENCE=600.0)  # on a busy machine rank 0 may take long to destroy its group
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

for generation in range(4):
    dist.init_process_group("netsum")
    if generation % SIZE == RANK:
        time.sleep(0.2)
    pair = dist.new_group([0, SIZE - 1])
    total = torch.ones(1000)
    dist.all_reduce(total)
    assert total.tolist() == [SIZE] * 1000
    message = torch.full((10,), float(generation))
    for group in (None, pair):
        if RANK == 0:
            dist.send(message, SIZE - 1, group=group)
        elif RANK == SIZE - 1:
            received = torch.zeros(10)
            dist.recv(received, 0, group=group)
            assert received.tolist() == message.tolist()
    del pair
    dist.destroy_process_group()
