# SPDX-License-Identifier: MIT
"""Ray Train on scikit-learn's digits: a worker on every node of a Ray cluster, and netsum sums their gradients.

Start it on the cluster's head, with NETSUM_JOB, NETSUM_TOKEN and NETSUM_CONTROLLER set: `python examples/ray_digits.py`. The
job has a member for every node, and each node's `ray start` has its NETSUM_RANK (docs/pytorch.md). Needs the `torch` extra,
ray[train] and scikit-learn.
"""

import os

import ray
import torch
from ray.train import ScalingConfig, get_context
from ray.train.torch import TorchConfig, TorchTrainer, prepare_data_loader, prepare_model
from sklearn.datasets import load_digits
from torch import distributed as dist
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH = 8, 128


def train():
    """The program of every worker: nothing in it is netsum's."""
    size = get_context().get_world_size()
    torch.manual_seed(0)
    images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    images = (images / 16).float()
    loader = prepare_data_loader(DataLoader(TensorDataset(images, labels), BATCH // size, shuffle=True))
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    model = prepare_model(model)  # in DistributedDataParallel
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(EPOCHS):
        for batch, answers in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), answers).backward()
            optimizer.step()
    accuracy = (model(images).argmax(dim=1) == labels).float().mean().item()
    place = f"rank {dist.get_rank()} of {size}, member {os.environ.get('NETSUM_RANK', dist.get_rank())} of the job"
    print(f"{place}, on {dist.get_backend()}: accuracy {accuracy:.1%}", flush=True)


if __name__ == "__main__":
    job = {name: os.environ[name] for name in ("NETSUM_JOB", "NETSUM_TOKEN", "NETSUM_CONTROLLER")}
    ray.init(runtime_env={"env_vars": job})
    workers = ScalingConfig(num_workers=len(ray.nodes()), placement_strategy="STRICT_SPREAD")
    TorchTrainer(train, scaling_config=workers, torch_config=TorchConfig(backend="netsum")).fit()
