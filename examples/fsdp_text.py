# SPDX-License-Identifier: MIT
"""A small transformer that learns to continue the text of Python's own documentation, letter by letter. Weights, gradients and
the optimizer's state are sharded over the ranks (fully_shard, "FSDP2").

Start it with `netsum run -n 2 examples/fsdp_text.py`; or with torchrun, in a job of a running controller (NETSUM_JOB,
NETSUM_TOKEN and NETSUM_CONTROLLER set): `torchrun --nproc-per-node 2 examples/fsdp_text.py`. Needs the `torch` extra.
"""

from pydoc_data.topics import topics  # what `help("if")` prints

import torch
from torch import distributed as dist
from torch.distributed.fsdp import fully_shard

STEPS, BATCH, LENGTH, WIDTH, LAYERS, HEADS = 60, 16, 48, 64, 2, 4

text = "".join(topics[name] for name in ("if", "while", "for", "assignment"))
letters = sorted(set(text))
codes = torch.tensor([letters.index(letter) for letter in text])


class Block(torch.nn.Module):
    """Attention to what came before, and a layer of its own for each letter."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.attention = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.own = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        y = self.before(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False, is_causal=True)[0]
        return x + self.own(self.after(x))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters = torch.nn.Embedding(len(letters), WIDTH)
        self.places = torch.nn.Embedding(LENGTH, WIDTH)
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = torch.nn.Linear(WIDTH, len(letters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.letters(x) + self.places(torch.arange(x.shape[1]))))


dist.init_process_group("netsum")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)  # the same weights everywhere
torch.set_num_threads(1)
model = Model()
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
torch.manual_seed(1 + rank)  # other text on each rank
for step in range(1, STEPS + 1):
    starts = torch.randint(len(codes) - LENGTH - 1, (BATCH // size,))
    batch = torch.stack([codes[start : start + LENGTH + 1] for start in starts])
    loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    mean = loss.detach()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    if rank == 0 and (step == 1 or step % 20 == 0):
        print(f"step {step}: loss {mean:.2f}", flush=True)
dist.destroy_process_group()
