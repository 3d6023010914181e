"""What a target of the coverage-guided fuzzer is: a function that takes any bytes, and what to watch while it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class FuzzTarget:
    """``take`` gets any bytes and raises when something that must not happen has happened. ``seeds`` are inputs that come
    far; ``largest`` is the length of inputs, in bytes."""

    take: Callable[[bytes], None]
    seeds: Sequence[bytes]
    largest: int = 4096
