"""Saves and restores the blocks of one shard: for a backup that catches up, and for checkpoints."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from netsum_memory.optimizer import Block, Waiter

_LENGTH: Final = struct.Struct(">Q")


def save(blocks: Mapping[int, Block]) -> bytes:
    """The state of the blocks, by address: JSON, followed by the arrays' bytes."""
    arrays: list[bytes] = []
    described = [[address, _described(block, arrays)] for address, block in sorted(blocks.items())]
    text = json.dumps(described, separators=(",", ":")).encode()
    return _LENGTH.pack(len(text)) + text + b"".join(arrays)


def load(saved: bytes) -> dict[int, Block]:
    """The inverse of :func:`save`."""
    (length,) = _LENGTH.unpack_from(saved)
    described = json.loads(saved[_LENGTH.size : _LENGTH.size + length])
    reader = _Reader(saved, _LENGTH.size + length)
    return {address: _block(each, reader) for address, each in described}


class _Reader:
    """Takes arrays from the bytes, in the order in which they were written."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, length: int) -> bytes:
        start, self.at = self.at, self.at + length
        if self.at > len(self.data):
            raise ValueError(f"saved parameters end after {len(self.data)} bytes; {self.at} are described")
        return self.data[start : self.at]

    def floats(self, length: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        return np.frombuffer(self.take(length), np.float32).copy()


def _described(block: Block, arrays: list[bytes]) -> dict[str, Any]:
    def put(data: bytes) -> int:
        arrays.append(data)
        return len(data)

    return {
        "length": block.length,
        "applied": block.applied,
        "state": [[name, put(array.tobytes())] for name, array in sorted(block.state.items())],
        "gradients": [[worker, put(array.tobytes())] for worker, array in sorted(block.gradients.items())],
        "waiting": [waiter._replace(shared=False) for waiter in block.waiting],  # how they are told is no state
        "clocks": sorted(block.clocks.items()),
        "left": sorted(block.left),
        "settings": block.settings,
        "towards": None if block.towards is None else put(block.towards.tobytes()),
        "shares": block.shares,
        "counted": block.counted,
    }


def _block(described: dict[str, Any], reader: _Reader) -> Block:
    state = {name: reader.floats(length) for name, length in described["state"]}
    gradients = {worker: reader.floats(length) for worker, length in described["gradients"]}
    towards = described["towards"]
    return Block(
        length=described["length"],
        applied=described["applied"],
        state=state,
        gradients=gradients,
        waiting=[Waiter(*waiter) for waiter in described["waiting"]],
        clocks=dict(described["clocks"]),
        left=set(described["left"]),
        settings=None if described["settings"] is None else tuple(described["settings"]),
        towards=None if towards is None else reader.floats(towards),
        shares=None if described["shares"] is None else tuple(described["shares"]),
        counted=described["counted"],
    )
