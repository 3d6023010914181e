# SPDX-License-Identifier: MIT
"""Accelerate on scikit-learn's digits. On CPUs it opens process groups of Gloo or MPI only, but it uses one that is open already.

Start it with `netsum run -n 4 examples/accelerate_digits.py`; or with torchrun, in a job of a running controller (NETSUM_JOB,
NETSUM_TOKEN and NETSUM_CONTROLLER set): `torchrun --nproc-per-node 4 examples/accelerate_digits.py`. Needs the `torch` extra,
accelerate and scikit-learn.
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import distributed as dist
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH, HELD_OUT = 12, 32, 360

dist.init_process_group("netsum")  # before the Accelerator, which would open one of Gloo
accelerator = Accelerator(cpu=True)
set_seed(0)
torch.set_num_threads(1)
images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
images = (images / 16).float()
size = accelerator.num_processes
training = DataLoader(TensorDataset(images[HELD_OUT:], labels[HELD_OUT:]), BATCH // size, shuffle=True)
validation = DataLoader(TensorDataset(images[:HELD_OUT], labels[:HELD_OUT]), BATCH)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
model, optimizer, training, validation = accelerator.prepare(model, optimizer, training, validation)
for _ in range(EPOCHS):
    for batch, answers in training:
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.cross_entropy(model(batch), answers))
        optimizer.step()
with torch.no_grad():
    parts = [accelerator.gather_for_metrics((model(batch), answers)) for batch, answers in validation]  # of all ranks
logits, answers = (torch.cat(each) for each in zip(*parts, strict=True))
loss, accuracy = torch.nn.functional.cross_entropy(logits, answers), (logits.argmax(dim=1) == answers).float().mean()
accelerator.print(f"{size} ranks on {dist.get_backend()}: loss {loss:.4f}, accuracy {accuracy:.1%}", flush=True)
accelerator.end_training()  # destroys the process group
