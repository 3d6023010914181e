"""``torch.nn.Embedding`` with its rows in a table at the memory (docs/memory-training.md)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from netsum.memory.embedding import Table


class MemoryEmbedding(torch.nn.Module):  # type: ignore[misc]
    """Looks up rows by key, of which there may be any: 64 bits. It has no parameters: after ``backward()``, :meth:`push` sends
    the gradients of the rows that were used, and the table's optimizer takes its step where the rows are."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.table = table
        self.embedding_dim = table.dim
        self._used: list[tuple[np.ndarray[tuple[int], np.dtype[np.uint64]], Tensor]] = []

    def forward(self, keys: Tensor) -> Tensor:
        unique, inverse = np.unique(keys.detach().cpu().numpy().reshape(-1), return_inverse=True)
        rows = torch.from_numpy(self.table.lookup(unique)).to(keys.device)
        if torch.is_grad_enabled():
            rows.requires_grad_()
            self._used.append((unique, rows))
        places = torch.from_numpy(inverse).to(keys.device)
        return torch.nn.functional.embedding(places, rows).reshape(*keys.shape, self.embedding_dim)

    def push(self, lr: float | None = None) -> None:
        """Send the gradients of all rows looked up since the last time; ``lr`` instead of the table's learning rate."""
        used, self._used = self._used, []
        with_gradients = [(keys, rows.grad.cpu().numpy()) for keys, rows in used if rows.grad is not None]
        if with_gradients:
            keys, gradients = (np.concatenate(parts) for parts in zip(*with_gradients, strict=True))
            self.table.push(keys, gradients, lr=lr)

    def extra_repr(self) -> str:
        return f"{self.table.memory.name!r}, {self.embedding_dim}"
