# SPDX-License-Identifier: MIT
"""DistributedDataParallel on scikit-learn's digits, as one would write it for any backend; only its name is netsum.

Start it with `netsum run -n 4 examples/ddp_digits.py`; or with torchrun, in a job of a running controller
(NETSUM_JOB, NETSUM_TOKEN and NETSUM_CONTROLLER set): `torchrun --nproc-per-node 4 examples/ddp_digits.py`. Needs the `torch`
extra and scikit-learn.
"""

import torch
from sklearn.datasets import load_digits
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS, BATCH = 12, 32

dist.init_process_group("netsum")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
torch.set_num_threads(1)
images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
images = (images / 16).float()
data = TensorDataset(images, labels)
sampler = DistributedSampler(data)
loader = DataLoader(data, BATCH // size, sampler=sampler)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(1, EPOCHS + 1):
    sampler.set_epoch(epoch)
    for batch, answers in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch), answers).backward()
        optimizer.step()
    if rank == 0 and epoch % 4 == 0:
        accuracy = (model.module(images).argmax(dim=1) == labels).float().mean().item()
        print(f"epoch {epoch}: accuracy {accuracy:.1%}", flush=True)
weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
everyones = [torch.empty_like(weights) for _ in range(size)]
dist.all_gather(everyones, weights)
if rank == 0:
    print(f"weights: {'the same' if all(torch.equal(each, weights) for each in everyones) else 'DIFFERENT'} on all ranks")
dist.destroy_process_group()
