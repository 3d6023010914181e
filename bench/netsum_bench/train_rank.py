# SPDX-License-Identifier: MIT
"""One rank of a DistributedDataParallel that is trained on netsum and on Gloo in turns, as a process:
``python -m netsum_bench.train_rank STEPS WIDTH BATCH BUCKET_MIB``. Needs PyTorch. Where a Linux bridge joins the hosts, Gloo over
it takes its turn, too.

It has the environment of `netsum run`. Both replicas begin with the same weights and see the same batches; every step is done on
one backend and then on the other, so that other load on the machine affects both alike. Rank 0 prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import torch
from torch import distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from netsum_bench.harness import BRIDGE, GLOO, GLOO_BRIDGE

PATIENCE: Final = timedelta(minutes=5)
"""For a call: a rank that is gone is noticed then."""
INPUTS: Final = 64
CLASSES: Final = 10
UNTIMED: Final = 2
"""Steps at the start: DistributedDataParallel makes its final buckets in the first."""


class Replica:
    """The model on one backend, and what its steps took."""

    def __init__(self, group: Any, width: int, batch: int, bucket_mib: float) -> None:
        torch.manual_seed(0)
        layers = torch.nn.Linear(INPUTS, width), torch.nn.Linear(width, width), torch.nn.Linear(width, CLASSES)
        model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])
        self.group, self.batch = group, batch
        self.model = DistributedDataParallel(model, process_group=group, bucket_cap_mb=bucket_mib, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        self.seconds: dict[str, list[float]] = {"step": [], "backward": [], "compute": [], "communicate": []}
        self.losses: list[float] = []

    def step(self, number: int) -> None:
        """A backward without communication; a step of training; and its communication alone."""
        images, labels = examples(number, self.batch)
        self.optimizer.zero_grad()
        with self.model.no_sync():
            compute = timed(cross_entropy(self.model(images), labels).backward)
        self.optimizer.zero_grad()
        began = time.perf_counter()
        loss = cross_entropy(self.model(images), labels)
        backward = timed(loss.backward)
        self.optimizer.step()
        step = time.perf_counter() - began
        self.losses.append(loss.item())
        if number >= UNTIMED:
            communicate = timed(self._communicate)
            for name, seconds in zip(self.seconds, (step, backward, compute, communicate), strict=True):
                self.seconds[name].append(seconds)

    def buckets(self) -> list[int]:
        """Bytes of each of DistributedDataParallel's buckets."""
        found = self.model._get_ddp_logging_data()
        return [int(size) for size in (found.get("rebuilt_bucket_sizes") or found["bucket_sizes"]).split(", ")]

    def _communicate(self) -> None:
        """Send a step's gradients, all buckets in progress at once."""
        tensors = [torch.ones(size // 4) for size in self.buckets()]
        for work in [dist.all_reduce(each, group=self.group, async_op=True) for each in tensors]:
            work.wait()

    def figures(self) -> dict[str, Any]:
        """Medians in milliseconds, and the share of the communication that backward hides."""
        found = {f"{name}_ms": 1e3 * statistics.median(seconds) for name, seconds in self.seconds.items()}
        exposed = found["backward_ms"] - found["compute_ms"]
        found["hidden"] = 1 - exposed / found["communicate_ms"]
        return {name: round(value, 3) for name, value in found.items()}

    def weights(self) -> torch.Tensor:
        return torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])


def examples(number: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's part of a batch: random inputs, labeled by a fixed linear map of them."""
    images = torch.randn(count, INPUTS, generator=torch.Generator().manual_seed(1000 * number + dist.get_rank()))
    teacher = torch.randn(INPUTS, CLASSES, generator=torch.Generator().manual_seed(1))
    return images, (images @ teacher).argmax(dim=1)


def timed(call: Callable[[], Any]) -> float:
    """Seconds that a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def replicas_equal(weights: torch.Tensor, group: Any) -> bool:
    """True if all ranks have the same bits."""
    everyones = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, weights, group=group)
    return all(torch.equal(each, weights) for each in everyones)


def main(steps: str, width: str, batch: str, bucket_mib: str) -> None:
    dist.init_process_group("netsum", timeout=PATIENCE)
    gloo = dist.new_group(backend="gloo", timeout=PATIENCE)
    groups = {"netsum": dist.group.WORLD, GLOO: gloo}
    if interface := os.environ.get(BRIDGE):
        os.environ["GLOO_SOCKET_IFNAME"] = interface
        groups[GLOO_BRIDGE] = dist.new_group(backend="gloo", timeout=PATIENCE)
    replicas = {name: Replica(group, int(width), int(batch), float(bucket_mib)) for name, group in groups.items()}
    for number in range(UNTIMED + int(steps)):
        for replica in replicas.values():
            dist.barrier(group=gloo)
            replica.step(number)
    losses = torch.tensor([replica.losses for replica in replicas.values()], dtype=torch.float64)
    dist.all_reduce(losses, group=gloo)
    losses /= dist.get_world_size()
    sizes = replicas["netsum"].buckets()
    found = {
        **{name: replica.figures() for name, replica in replicas.items()},
        "first_loss": losses[0, 0].item(),
        "last_loss": losses[0, -1].item(),
        "loss_difference": ((losses[0] - losses[1]).abs() / losses[1]).max().item(),
        "replicas_equal": {name: replicas_equal(each.weights(), gloo) for name, each in replicas.items()},
        "gradient_bytes": sum(sizes),
        "buckets": len(sizes),
        "copied_per_byte": groups["netsum"].copied / groups["netsum"].reduced,
    }
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
