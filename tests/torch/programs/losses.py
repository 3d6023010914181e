# SPDX-License-Identifier: MIT
"""Losses of a convolutional network and of a transformer, in DDP and in FSDP2: `losses.py FILE GROUP...`.

The groups are `agreed` and `exact`, netsum's with these sums, and `gloo`.

Rank 0 appends to FILE a line for each training: its name, the group, and the losses of all steps.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
from netsum.torch import Options
from sklearn.datasets import load_digits
from torch import Tensor
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn import Conv2d, Embedding, Flatten, Linear, MaxPool2d, Module, ReLU, Sequential, TransformerEncoderLayer
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH, LENGTH, WIDTH = 200, 8, 16, 32

torch.set_num_threads(1)
dist.init_process_group("netsum")
rank, size = dist.get_rank(), dist.get_world_size()
groups = {
    "agreed": dist.group.WORLD,
    "exact": dist.new_group(backend="netsum", pg_options=Options("exact")),
    "gloo": dist.new_group(backend="gloo"),
}
images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
images = (images / 16).float().reshape(-1, 1, 8, 8)
text = "".join(topics[name] for name in ("if", "while"))
letters = sorted(set(text))
codes = torch.tensor([letters.index(letter) for letter in text])


def convolutional() -> Module:
    return Sequential(Conv2d(1, 8, 3, padding=1), ReLU(), MaxPool2d(2), Conv2d(8, 16, 3), ReLU(), Flatten(), Linear(64, 10))


def transformer() -> Module:
    layers = [TransformerEncoderLayer(WIDTH, 2, 4 * WIDTH, dropout=0.0, batch_first=True) for _ in range(2)]
    return Sequential(Embedding(len(letters), WIDTH), *layers, Flatten(), Linear(LENGTH * WIDTH, len(letters)))


def digits(chance: torch.Generator) -> tuple[Tensor, Tensor]:
    chosen = torch.randint(len(images), (BATCH,), generator=chance)
    return images[chosen], labels[chosen]


def next_letters(chance: torch.Generator) -> tuple[Tensor, Tensor]:
    """Some letters, and the one that follows."""
    starts = torch.randint(len(codes) - LENGTH, (BATCH,), generator=chance)
    return torch.stack([codes[start : start + LENGTH] for start in starts]), codes[starts + LENGTH]


def in_ddp(model: Module, group: Any) -> Module:
    return DistributedDataParallel(model, process_group=group)


def in_fsdp(model: Module, group: Any) -> Module:
    fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu"))
    return model


def losses(make: Callable[[], Module], draw: Callable[[torch.Generator], tuple[Tensor, Tensor]], wrap: Any, group: Any) -> Tensor:
    torch.manual_seed(0)
    model, chance = wrap(make(), group), torch.Generator().manual_seed(1 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    found = torch.zeros(STEPS)
    for step in range(STEPS):
        given, wanted = draw(chance)
        loss = torch.nn.functional.cross_entropy(model(given), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found[step] = loss.detach()
    dist.all_reduce(found, group=group)
    return found / size


with Path(sys.argv[1] if rank == 0 else os.devnull).open("a") as file:
    for name, make, draw in (("cnn", convolutional, digits), ("transformer", transformer, next_letters)):
        for kind, wrap in (("ddp", in_ddp), ("fsdp", in_fsdp)):
            for which in sys.argv[2:]:
                found = losses(make, draw, wrap, groups[which])
                print(f"{name}-{kind}", which, *map(float.hex, found.tolist()), file=file)
dist.destroy_process_group()
