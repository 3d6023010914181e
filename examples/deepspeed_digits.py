# SPDX-License-Identifier: MIT
"""DeepSpeed on scikit-learn's digits, on its accelerator "cpu": gradients and the optimizer's state are sharded over the ranks
(ZeRO, stage 2).

Start it with `netsum run -n 4 examples/deepspeed_digits.py`; or with torchrun, in a job of a running controller (NETSUM_JOB,
NETSUM_TOKEN and NETSUM_CONTROLLER set): `torchrun --nproc-per-node 4 examples/deepspeed_digits.py`. Needs the `torch` extra,
deepspeed, a C++ compiler and scikit-learn.
"""

import deepspeed
import torch
from sklearn.datasets import load_digits
from torch import distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS, BATCH, HELD_OUT = 12, 32, 360

deepspeed.init_distributed("netsum")  # left to deepspeed.initialize, it would be Gloo
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
torch.set_num_threads(1)
images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
images = (images / 16).float()
training = TensorDataset(images[HELD_OUT:], labels[HELD_OUT:])
sampler = DistributedSampler(training)
loader = DataLoader(training, BATCH // size, sampler=sampler)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
engine, *_ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.Adam(model.parameters(), lr=2e-3),
    config={"train_batch_size": BATCH, "zero_optimization": {"stage": 2}},
)
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for batch, answers in loader:
        engine.backward(torch.nn.functional.cross_entropy(engine(batch), answers))
        engine.step()
with torch.no_grad():
    logits, answers = engine(images[rank:HELD_OUT:size]), labels[rank:HELD_OUT:size]
metrics = torch.stack([torch.nn.functional.cross_entropy(logits, answers), (logits.argmax(dim=1) == answers).float().mean()])
dist.all_reduce(metrics, op=dist.ReduceOp.AVG)
if rank == 0:
    print(f"{size} ranks on {dist.get_backend()}: loss {metrics[0]:.4f}, accuracy {metrics[1]:.1%}", flush=True)
dist.destroy_process_group()
