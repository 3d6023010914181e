"""What a bench of collectives asks of each rank, and what a rank measures."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

import numpy as np

from netsum_testbed.bench.operations import OPERATIONS

SEED: Final = 1

Bytes = tuple[int, int, int, int]
"""Of payload sent, of frames sent and received, and stored in memory."""


@dataclass(frozen=True)
class Calls:
    """What is timed: arrays of ``sizes`` bytes, ``iterations`` calls each after ``warmup`` untimed ones, out of place and, if
    ``places`` is 2, in place.

    Attributes:
        check: how many of the calls are checked, the last ones; None: all of them.
        scale: of an allreduce, or ``exact``.
        redop: nccl-tests' name of the reduction.
        loss: the share of packets that each host loses in each direction, on purpose; None: hosts have no part that loses any.
        aligned: whether all ranks wait for each other before each call. If not, who ends a call early begins the next one early.
    """

    sizes: tuple[int, ...]
    dtype: str
    workers: int
    iterations: int
    places: int = 2
    scale: str = "agreed"
    operation: str = "allreduce"
    redop: str = "sum"
    root: int = 0
    warmup: int = 1
    check: int | None = None
    loss: float | None = None
    seed: int = SEED
    aligned: bool = False

    @property
    def checked(self) -> int:
        return self.warmup + self.iterations if self.check is None else self.check

    def count(self, size: int) -> int:
        """Elements of a rank's part, or of the array."""
        return OPERATIONS[self.operation].count(size // np.dtype(self.dtype).itemsize, self.workers)

    def true_size(self, size: int) -> int:
        """Bytes of whole elements and equal parts, at most ``size``."""
        elements = OPERATIONS[self.operation].elements(self.count(size), self.workers)
        return elements * np.dtype(self.dtype).itemsize

    @property
    def options(self) -> dict[str, Any]:
        """Further arguments of an allreduce."""
        return {"exact": True} if self.scale == "exact" else {"scale": self.scale}

    def command(self, module: str = "netsum_testbed.bench.rank") -> list[str]:
        """The command line of one rank."""
        return [sys.executable, "-m", module, json.dumps(asdict(self))]

    @classmethod
    def from_json(cls, text: str) -> Self:
        given: dict[str, Any] = json.loads(text)
        return cls(**{**given, "sizes": tuple(given["sizes"])})


@dataclass
class Timing:
    """One rank's calls of one size in one place: when each began (seconds of the machine's monotonic clock, which all processes
    share), how long it took, wrong elements, and all bytes: of payload ``sent``, of frames each way, and ``stored``."""

    begins: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    wrong: int = 0
    sent: int = 0
    frames_out: int = 0
    frames_in: int = 0
    stored: int = 0

    def add(self, began: float, ended: float, before: Bytes, after: Bytes) -> None:
        """Count a call; ``before`` and ``after`` are the bytes so far."""
        self.begins.append(began)
        self.seconds.append(ended - began)
        sent, out, into, stored = (now - then for then, now in zip(before, after, strict=True))
        self.sent += sent
        self.frames_out += out
        self.frames_in += into
        self.stored += stored
