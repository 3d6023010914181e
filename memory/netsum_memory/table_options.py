"""What a region of kind "table" is told when it is made, and what a row's optimizer does with a gradient, pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from netsum.memory.keys import Keys, mixed
from netsum.wire.memory import MAX_PAYLOAD

from netsum_memory.optimizer_rules import Floats

OPTIMIZERS: Final = ("sgd", "adagrad", "rowwise_adagrad")
MOST_DIM: Final = (MAX_PAYLOAD - 8) // 4


@dataclass(frozen=True)
class TableOptions:
    """
    Attributes:
        dim: numbers in a row.
        ram_rows: rows in RAM, over all the region's shards; the others are on disk.
        initial: a row that nobody has changed is uniform in [-initial, initial), from ``seed`` and its key.
        disk: bytes that a shard's file may have; it grows as needed, and up to this.
    """

    dim: int
    ram_rows: int = 1 << 16
    optimizer: str = "sgd"
    lr: float = 0.01
    eps: float = 1e-10
    initial: float = 0.05
    seed: int = 0
    disk: int = 1 << 40

    @property
    def width(self) -> int:
        """Numbers of a row with the optimizer's."""
        return self.dim + {"sgd": 0, "adagrad": self.dim, "rowwise_adagrad": 1}[self.optimizer]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> TableOptions:
        """The options in ``given``, or ValueError that names what is wrong."""
        names = [field.name for field in fields(cls)]
        for name, value in given.items():
            if name not in names:
                raise ValueError(f"no option {name!r} of a table; there are {', '.join(names)}")
            _check_type(name, value)
        if "dim" not in given:
            raise ValueError("a table needs the option dim, the numbers in a row")
        made = cls(**given)
        made._check()
        return made

    def _check(self) -> None:
        if not 1 <= self.dim <= MOST_DIM:
            raise ValueError(f"dim is 1 to {MOST_DIM}, so that a row and its key fit a packet, not {self.dim}")
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer of a table is one of {', '.join(OPTIMIZERS)}, not {self.optimizer!r}")
        for name, least in (("ram_rows", 1), ("disk", 1 << 20), ("lr", 0), ("eps", 0), ("initial", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is at least {least}, not {getattr(self, name)}")


def _check_type(name: str, value: object) -> None:
    if name == "optimizer":
        right, words = isinstance(value, str), "a name"
    elif name in ("lr", "eps", "initial"):
        right, words = isinstance(value, int | float) and math.isfinite(value), "a finite number"
    else:
        right, words = isinstance(value, int), "an integer"
    if not right or isinstance(value, bool):
        raise ValueError(f"{name} is {words}, not {value!r}")


def initial_rows(options: TableOptions, keys: Keys) -> Floats:
    """Rows as they are before anybody has changed them: the same on every device."""
    rows = np.zeros((keys.size, options.width), np.float32)
    if options.initial:
        columns = mixed(np.arange(options.dim, dtype=np.uint64) + np.uint64(options.seed % 2**64))
        bits = mixed(mixed(keys)[:, None] ^ columns) >> np.uint64(40)
        uniform = bits.astype(np.float32) * np.float32(2**-23) - np.float32(1)
        rows[:, : options.dim] = uniform * np.float32(options.initial)
    return rows


def update(options: TableOptions, rows: Floats, gradients: Floats, lr: float) -> None:
    """Take a step in each row, in place; torch's SGD and Adagrad, and Adagrad with one sum for the row's mean square."""
    parameters, state = rows[:, : options.dim], rows[:, options.dim :]
    rate = np.float32(lr)
    if options.optimizer == "sgd":
        parameters -= rate * gradients
        return
    squares = gradients * gradients
    state += squares if options.optimizer == "adagrad" else squares.mean(axis=1, keepdims=True, dtype=np.float32)
    spread: Floats = np.sqrt(state)
    spread += np.float32(options.eps)
    parameters -= rate * gradients / spread


def coalesced(keys: Keys, gradients: Floats) -> tuple[Keys, Floats]:
    """Each key once, with the sum of its gradients in the order given."""
    unique, inverse = np.unique(keys, return_inverse=True)
    if unique.size == keys.size:
        return keys, gradients
    summed = np.zeros((unique.size, gradients.shape[1]), np.float32)
    np.add.at(summed, inverse, gradients)
    return unique, summed
