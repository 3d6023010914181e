# SPDX-License-Identifier: MIT
"""Kinds of regions: what their shards do beyond reading and writing. A kind is plugged in by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final, Protocol

from netsum.wire.memory import MemoryStatus

from netsum_memory import execute
from netsum_memory.execute import Execution, Result
from netsum_memory.message import MemoryMessage
from netsum_memory.region import Region
from netsum_memory.store import Store


class RegionType(Protocol):
    """A shard's contents. Everything is done in the order of the shard's log, with the same arguments on every device and again
    after a restart, so it must depend on nothing else: not on time, not on chance."""

    def check(self, message: MemoryMessage) -> MemoryStatus:
        """The error of an instruction, found without reading memory; OK if nothing."""

    def execute(self, message: MemoryMessage, position: int) -> Execution:
        """Do an instruction that changes memory, at ``position`` in the log."""

    def read(self, message: MemoryMessage) -> Result:
        """Answer an instruction that changes nothing."""

    def save(self, elsewhere: bool) -> bytes:
        """The state that the Store does not hold: for a checkpoint, beside which a kind may have files of its own, or,
        ``elsewhere``, for another device."""

    def load(self, saved: bytes) -> None:
        """Restore what :meth:`save` saved; ``b""`` if the other device has nothing yet."""

    def close(self) -> None:
        """The device ends, or gives the shard up. Files of the kind's own stay."""


Factory = Callable[[Region, int, Store], RegionType]
KINDS: Final[dict[str, Factory]] = {}
"""By the region's ``kind``. A factory gets region, shard and store; ValueError says what is wrong with the region's options."""


class ArrayRegionType:
    """Plain memory with arithmetic."""

    def __init__(self, region: Region, shard: int, store: Store) -> None:  # noqa: ARG002 - as all factories
        self._region, self._store = region, store

    def check(self, message: MemoryMessage) -> MemoryStatus:
        return execute.check(self._region, message.header)

    def execute(self, message: MemoryMessage, position: int) -> Execution:  # noqa: ARG002
        return execute.execute(message, self._store)

    def read(self, message: MemoryMessage) -> Result:
        return execute.look(message, self._store)

    def save(self, elsewhere: bool) -> bytes:  # noqa: ARG002
        return b""

    def load(self, saved: bytes) -> None:
        pass

    def close(self) -> None:
        pass


KINDS["array"] = ArrayRegionType
_ELSEWHERE: Final = {
    "parameters": ("netsum_memory.parameters", "ParametersKind"),
    "table": ("netsum_memory.tables", "TableKind"),
}
"""Kinds that are imported on demand: tables need lmdb."""


def make_region_type(region: Region, shard: int, store: Store) -> RegionType:
    """Raises ValueError if there is no such kind, or if its options are wrong."""
    if region.kind not in KINDS and region.kind in _ELSEWHERE:
        module, name = _ELSEWHERE[region.kind]
        KINDS[region.kind] = getattr(import_module(module), name)
    factory = KINDS.get(region.kind)
    if factory is None:
        known = ", ".join(sorted(KINDS.keys() | _ELSEWHERE))
        raise ValueError(f"region {region.name} is of kind {region.kind!r}; this device knows {known}")
    return factory(region, shard, store)
