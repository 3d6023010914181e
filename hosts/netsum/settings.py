"""What a job's members may change while it runs, all alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from netsum.descriptor import AUTO, Descriptor
from netsum.peers.selection import Table, read_table
from netsum.wire.schema import CHUNK_BYTES


@dataclass(frozen=True)
class Settings:
    """Blocks in flight, 256-byte chunks of a block, and who combines which batch in a job without a switch (None: by the table
    that ships)."""

    window: int
    chunks: int
    table: Table | None = None

    @classmethod
    def of(cls, descriptor: Descriptor) -> Self:
        """The job's own, which are also the most."""
        return cls(descriptor.window, descriptor.block_bytes // CHUNK_BYTES)

    @property
    def block_bytes(self) -> int:
        return self.chunks * CHUNK_BYTES

    def to_dict(self) -> dict[str, Any]:
        return {"window": self.window, "chunks": self.chunks, "table": self.table}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], descriptor: Descriptor) -> Self:
        """The inverse of :meth:`to_dict`, for such a job. Raises ValueError."""
        try:
            found = cls(data["window"], data["chunks"], None if data["table"] is None else read_table(data["table"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"no settings: {error}") from None
        found.check(descriptor)
        return found

    def check(self, descriptor: Descriptor) -> None:
        """Raise ValueError unless a job may have these."""
        most = Settings.of(descriptor)
        for name, value, limit in (("window", self.window, most.window), ("chunks", self.chunks, most.chunks)):
            if type(value) is not int or not 1 <= value <= limit:
                raise ValueError(f"{name} is {value!r}; job {descriptor.job!r} allows 1 to {limit}")
        if self.table is not None and descriptor.algorithm != AUTO:
            raise ValueError(f"job {descriptor.job!r} is combined by {descriptor.algorithm!r}, so there is no choice")

    def with_algorithm(self, algorithm: str, ranks: int) -> Self:
        """These, with one algorithm for all sizes."""
        return replace(self, table={ranks: {1: algorithm}})
