"""Rows of a table that instructions are checked against, in Python's numbers: it shares nothing with the devices' arithmetic."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from netsum.wire.memory import Instruction, LaneType

from netsum_trials.memory.history import Entry
from netsum_trials.memory.linearizable import Call, linearizable
from netsum_trials.memory.model import Asked, pack, unpack

_ALL: Final = (1 << 64) - 1

Numbers = tuple[float, ...]


def rounded(number: float) -> float:
    """As float32. Of one operation on two float32 done in float64, this is what rounding once would give."""
    try:
        (made,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        return math.copysign(math.inf, number)
    return float(made)


def mixed(key: int) -> int:
    """splitmix64's finalizer."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        key = (key ^ key >> shift) * factor & _ALL
    return key ^ key >> 31


def shard_of(key: int, shards: int) -> int:
    """The shard of a table that has the key's row."""
    return mixed(key) & (shards - 1)


class Row(NamedTuple):
    """``sums``: what the optimizer keeps of the squares of its gradients."""

    numbers: Numbers
    sums: Numbers


class _Asking(NamedTuple):
    asked: Asked
    answer: bytes | None


class Table:
    """The rows of some keys of a region with these options."""

    def __init__(self, options: Mapping[str, Any], keys: Sequence[int]) -> None:
        self._options, self._keys = options, keys
        self._dim = int(options["dim"])

    def explained(self, entries: Sequence[Entry]) -> bool:
        """Whether some order of the instructions explains every answer."""
        beginning = tuple(self._begun(key) for key in self._keys)
        calls = [Call(_Asking(each.asked, each.answer), each.invoked, each.answered) for each in entries]
        return linearizable(calls, beginning, self._do)

    def _begun(self, key: int) -> Row:
        """The initial row: uniform, from the seed and the key."""
        seed, initial = int(self._options["seed"]), rounded(self._options["initial"])
        bits = [mixed(mixed(key) ^ mixed(seed + column & _ALL)) >> 40 for column in range(self._dim)]
        numbers = tuple(rounded((each / 2**23 - 1) * initial) if initial else 0.0 for each in bits)
        width = {"sgd": 0, "adagrad": self._dim, "rowwise_adagrad": 1}[self._options["optimizer"]]
        return Row(numbers, (0.0,) * width)

    def _do(self, rows: tuple[Row, ...], asking: _Asking) -> tuple[Row, ...] | None:
        asked = asking.asked
        if asked.instruction == Instruction.LOOKUP:
            found = b"".join(pack(LaneType.FLOAT32, rows[number].numbers) for number in asked.path)
            return rows if asking.answer in (None, found) else None
        if asking.answer not in (None, b""):
            return None
        given = unpack(LaneType.FLOAT32, asked.payload)
        summed: dict[int, Numbers] = {}
        for place, number in enumerate(asked.path):
            gradient = given[place * self._dim : (place + 1) * self._dim]
            before = summed.get(number, (0.0,) * self._dim)
            summed[number] = tuple(rounded(a + b) for a, b in zip(before, gradient, strict=True))
        rate = rounded(asked.settings[0] if asked.settings else self._options["lr"])
        after = list(rows)
        for number, gradient in summed.items():
            after[number] = self._stepped(rows[number], gradient, rate)
        return tuple(after)

    def _stepped(self, row: Row, gradient: Numbers, rate: float) -> Row:
        moves = [rounded(rate * each) for each in gradient]
        sums = row.sums
        if sums:
            squares = [rounded(each * each) for each in gradient]
            if self._options["optimizer"] == "rowwise_adagrad":
                squares = [rounded(sum(squares) / self._dim)]
            sums = tuple(rounded(a + b) for a, b in zip(sums, squares, strict=True))
            eps = rounded(self._options["eps"])
            spread = [rounded(rounded(math.sqrt(each)) + eps) for each in sums]
            if len(spread) < self._dim:
                spread *= self._dim
            moves = [rounded(a / b) for a, b in zip(moves, spread, strict=True)]
        return Row(tuple(rounded(a - b) for a, b in zip(row.numbers, moves, strict=True)), sums)
