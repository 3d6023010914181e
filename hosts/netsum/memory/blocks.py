# SPDX-License-Identifier: MIT
"""The layout of a model in a region of kind "parameters": each layer begins with a block, and a block is what one instruction is
about. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netsum.errors import UnsupportedError
from netsum.memory.array import MemoryArray
from netsum.wire.memory import ADDRESS_STEP

Floats = NDArray[np.float32]
Settings = Sequence[float]
"""Learning rate, weight decay and trust coefficient of a step: none, some or all of them."""

_MOST_SETTINGS: Final = 3


class EqualBlocks(NamedTuple):
    """Blocks of one length."""

    length: int
    rows: NDArray[np.int64]


class Blocks:
    """Attributes, by block in the order of the addresses:
    addresses: of the block in the memory.
    offsets: in bytes, of the block in an array of all parameters without gaps.
    lengths: in bytes.
    layer_of: the number of the layer.
    """

    def __init__(self, memory: MemoryArray, layers: Sequence[Floats]) -> None:
        self.shapes = [layer.shape for layer in layers]
        self.size = sum(layer.size for layer in layers)
        block = int(memory.descriptor.options.get("block", ADDRESS_STEP))
        if memory.piece < block:
            raise UnsupportedError(
                f"region {memory.name!r} has blocks of {block} bytes, and packets on the way to it carry {memory.piece}; "
                f"make it with the option block={memory.piece}, or the network with a larger MTU"
            )
        starts: list[int] = []
        lengths: list[int] = []
        self.layer_of: list[int] = []
        at = 0
        for number, layer in enumerate(layers):
            for start in range(0, layer.nbytes, block):
                starts.append(at + start)
                lengths.append(min(block, layer.nbytes - start))
                self.layer_of.append(number)
            at += -(-layer.nbytes // block) * block
        if at > memory.descriptor.size:
            raise UnsupportedError(f"these layers need {at} bytes; region {memory.name!r} has {memory.descriptor.size}")
        self.addresses = np.uint64(memory.descriptor.base) + np.array(starts, np.uint64)
        self.lengths = np.array(lengths, np.int64)
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)[:-1]]).astype(np.int64)[: len(lengths)]
        self.groups = self.groups_of(np.arange(self.number))

    @property
    def number(self) -> int:
        return len(self.lengths)

    def groups_of(self, rows: NDArray[np.int64]) -> list[EqualBlocks]:
        """The blocks by length, in the order in which the lengths first occur: the same order on all workers, so that they
        cannot deadlock."""
        lengths = dict.fromkeys(self.lengths[rows].tolist())
        return [EqualBlocks(length, rows[self.lengths[rows] == length]) for length in lengths]

    def joined(self, layers: Sequence[Any]) -> Floats:
        """All layers as one array."""
        given = [np.asarray(layer) for layer in layers]
        if [layer.shape for layer in given] != self.shapes:
            raise UnsupportedError(f"shapes are {[layer.shape for layer in given]}; the layers' are {self.shapes}")
        if wrong := [layer.dtype for layer in given if layer.dtype != np.float32]:
            raise UnsupportedError(f"gradients are float32, as the layers are, not {wrong[0]}")
        return np.concatenate([np.zeros(0, np.float32), *(layer.reshape(-1) for layer in given)])

    def part(self, flat: Floats, layers: Sequence[Floats]) -> None:
        """Put the parts of such an array into the layers."""
        at = 0
        for layer in layers:
            layer[...] = flat[at : at + layer.size].reshape(layer.shape)
            at += layer.size

    def segments(self, settings: Sequence[Settings] | None) -> NDArray[np.uint64] | None:
        """The settings of each block's layer as segments: the bits of numbers in float64."""
        if settings is None:
            return None
        if len(settings) != len(self.shapes) or len({len(each) for each in settings}) > 1:
            raise UnsupportedError(f"settings are for each of the {len(self.shapes)} layers, and as many for each")
        made = np.array(settings, np.float64).reshape(len(self.shapes), -1)
        if made.shape[1] > _MOST_SETTINGS or not np.isfinite(made).all() or (made < 0).any():
            raise UnsupportedError(
                "settings are a learning rate, a weight decay and a trust coefficient, finite and not negative"
            )
        return made.view(np.uint64)[self.layer_of] if made.shape[1] else None

    def totals(self, rows: NDArray[np.int64], shares: Mapping[int, tuple[float, float]]) -> NDArray[np.float64]:
        """The squared norms of each of these blocks' layers: the shares of the layer's blocks, added in the order of their
        addresses."""
        sums: dict[int, list[float]] = {}
        for row in sorted(shares):
            layer = sums.setdefault(self.layer_of[row], [0.0, 0.0])
            for place, share in enumerate(shares[row]):
                layer[place] += share
        return np.array([sums[self.layer_of[row]] for row in rows.tolist()], "<f8")
