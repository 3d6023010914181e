# SPDX-License-Identifier: MIT
"""Lightning on scikit-learn's digits: its strategy for DistributedDataParallel takes the backend's name.

Start it with `netsum run -n 4 examples/lightning_digits.py`; or with torchrun, in a job of a running controller (NETSUM_JOB,
NETSUM_TOKEN and NETSUM_CONTROLLER set): `torchrun --nproc-per-node 4 examples/lightning_digits.py`. Needs the `torch` extra,
lightning and scikit-learn.
"""

import os

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from sklearn.datasets import load_digits
from torch import distributed as dist
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH, HELD_OUT = 12, 32, 360


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))

    def training_step(self, batch, _):
        images, labels = batch
        return torch.nn.functional.cross_entropy(self.layers(images), labels)

    def validation_step(self, batch, _):
        images, labels = batch
        logits = self.layers(images)
        loss, accuracy = torch.nn.functional.cross_entropy(logits, labels), (logits.argmax(dim=1) == labels).float().mean()
        self.log_dict({"loss": loss, "accuracy": accuracy}, sync_dist=True)  # the means over all ranks

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


lightning.seed_everything(0)
torch.set_num_threads(1)
images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
images = (images / 16).float()
size = int(os.environ["WORLD_SIZE"])
training = DataLoader(TensorDataset(images[HELD_OUT:], labels[HELD_OUT:]), BATCH // size, shuffle=True)
validation = DataLoader(TensorDataset(images[:HELD_OUT], labels[:HELD_OUT]), HELD_OUT // size)
model = Classifier()
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=size,
    strategy=DDPStrategy(process_group_backend="netsum"),
    max_epochs=EPOCHS,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(model, training, validation)
if trainer.is_global_zero:
    metrics = trainer.callback_metrics
    print(f"{size} ranks on {dist.get_backend()}: loss {metrics['loss']:.4f}, accuracy {metrics['accuracy']:.1%}", flush=True)
