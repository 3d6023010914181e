# SPDX-License-Identifier: MIT
"""A table as a dictionary."""

from __future__ import annotations

import numpy as np
from netsum.memory.client import Keys
from netsum_memory.optimizer_rules import Floats
from netsum_memory.tables import TableOptions, initial_rows, update


class Reference:
    """All rows in a dictionary, one at a time."""

    def __init__(self, options: TableOptions) -> None:
        self.options, self.rows = options, dict[int, Floats]()

    def row(self, key: int) -> Floats:
        if key not in self.rows:
            self.rows[key] = initial_rows(self.options, np.array([key], np.uint64))
        return self.rows[key]

    def push(self, keys: Keys, gradients: Floats) -> None:
        summed: dict[int, Floats] = {}
        for key, gradient in zip(keys.tolist(), gradients, strict=True):
            summed[key] = summed.get(key, np.zeros((1, self.options.dim), np.float32)) + gradient
        for key, gradient in summed.items():
            update(self.options, self.row(key), gradient, self.options.lr)

    def lookup(self, keys: Keys) -> Floats:
        return np.concatenate([self.row(key)[:, : self.options.dim] for key in keys.tolist()])
