# SPDX-License-Identifier: MIT
"""The shards that a device holds: taking them, changing epochs, giving them up, and restoring them after a restart."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any, Final

from netsum_memory.errors import DeviceError
from netsum_memory.events import Added, Cut, Gone, Kept, Marked
from netsum_memory.execute import ignoring_float_errors
from netsum_memory.message import Address
from netsum_memory.ordering import Ordering
from netsum_memory.region import Assignment, Region
from netsum_memory.region_types import make_region_type
from netsum_memory.shard import Route, Shard
from netsum_memory.storage import Storage
from netsum_memory.store import Store

log: Final = logging.getLogger("netsum.memory.device")


class Holding:
    """A shard, and who orders its instructions. ``assigned`` once the controller has said so since the device started."""

    def __init__(self, shard: Shard, ordering: Ordering, *, assigned: bool) -> None:
        self.shard, self.ordering, self.assigned = shard, ordering, assigned

    def is_peer(self, address: Address) -> bool:
        return any(peer.address == address for peer in self.shard.group)


class ShardTable:
    def __init__(
        self,
        host: str,
        vault: Storage | None,
        limit: int | None,
        homes: dict[int, Address],
        route: Route,
    ) -> None:
        """Restore what the vault has kept."""
        self._host, self._vault, self._limit = host, vault, limit
        self._homes, self._route = homes, route
        self._held: dict[tuple[int, int], Holding] = {}
        self._regions: dict[int, Region] = {}
        self._stores: dict[int, Store] = {}
        self._refused: dict[tuple[int, int], str] = {}
        self._dropped = False
        """True if shards were given up whose files may still be there."""
        if vault is not None:
            with ignoring_float_errors():
                self._restore(vault)
            vault.watch(self._stores)

    def get(self, region: int, shard: int) -> Holding | None:
        return self._held.get((region, shard))

    def all(self) -> Sequence[Holding]:
        return list(self._held.values())

    def region(self, number: int, address: int) -> Region | None:
        """The region with that id; for a packet that passed no switch (0), the one with the address."""
        if number:
            return self._regions.get(number)
        return next((region for region in self._regions.values() if region.base <= address < region.end), None)

    @property
    def bytes_held(self) -> int:
        return sum(holding.shard.region.shard_bytes for holding in self._held.values())

    def assign(self, assignments: Sequence[Assignment], now: float, keep: Collection[tuple[int, int]] = ()) -> list[Ordering]:
        """Hold these shards and no others, but for those to ``keep`` as they are; returns who has changed."""
        changed: list[Ordering] = []
        wanted = {(each.region.id, each.shard): each for each in assignments}
        for name in sorted(self._held.keys() - keep):
            if not self._still(self._held[name].shard, wanted.get(name)):
                self._drop(name, self._vault)
        if self._dropped:  # their files must be gone before anything is held under these names again
            self._dropped = False
            self.checkpoint()
        self._refused = {}
        for name, assignment in wanted.items():
            holding = self._held.get(name)
            if holding is None:
                holding = self._add(assignment)
                if holding is None:
                    continue
            elif assignment.epoch < holding.shard.epoch:
                continue  # a late answer
            if holding.shard.assignment != assignment or not holding.assigned:
                holding.shard.assign(assignment)
                holding.assigned = True
                self._regions[assignment.region.id] = assignment.region
                holding.ordering.regroup(now)
                changed.append(holding.ordering)
        return changed

    @staticmethod
    def _still(shard: Shard, assignment: Assignment | None) -> bool:
        """True if the shard's contents are those of the assignment."""
        if assignment is None or (shard.behind and (assignment.epoch > shard.epoch or assignment.joins(shard.host))):
            return False
        ours, theirs = shard.region, assignment.region
        return all(getattr(ours, each) == getattr(theirs, each) for each in ("base", "size", "granule", "shards", "kind"))

    def _add(self, assignment: Assignment) -> Holding | None:
        region = assignment.region
        if assignment.expected:
            self._refuse(assignment, "what it held is not here any more")
            return None
        if self._limit is not None and self.bytes_held + region.shard_bytes > self._limit:
            why = f"{region.shard_bytes} bytes more than the {self._limit - self.bytes_held} left of its limit"
            self._refuse(assignment, why)
            return None
        try:
            holding = self._hold(assignment, assigned=False)
        except (ValueError, OSError) as error:
            self._refuse(assignment, str(error))
            return None
        holding.shard.journal = self._vault
        return holding

    def _refuse(self, assignment: Assignment, why: str) -> None:
        self._refused[assignment.region.id, assignment.shard] = why
        log.warning("shard %d of region %s is not held: %s", assignment.shard, assignment.region.name, why)

    def _hold(self, assignment: Assignment, *, assigned: bool) -> Holding:
        region = assignment.region
        store = self._stores.get(region.id)
        if store is None:
            store = Store(region) if self._vault is None else self._vault.store(region)
        kind = make_region_type(region, assignment.shard, store)
        self._stores[region.id], self._regions[region.id] = store, region
        shard = Shard(assignment, self._host, store, kind, homes=self._homes, route=self._route)
        holding = Holding(shard, Ordering(shard), assigned=assigned)
        self._held[shard.id] = holding
        return holding

    def _drop(self, name: tuple[int, int], vault: Storage | None) -> None:
        """``vault`` is told, unless it is the one that says so."""
        holding = self._held.pop(name, None)
        if holding is None:
            return
        shard, number = holding.shard, name[0]
        shard.kind.close()
        self._dropped = True
        if vault is not None:
            vault.dropped(shard)
        if any(region == number for region, _ in self._held):
            self._stores[number].clear(shard.region.granules(shard.index), shard.region.granule)
            return
        self._stores.pop(number).close()
        del self._regions[number]

    def report(self) -> dict[str, Any]:
        shards = [
            {
                "region": holding.shard.region.id,
                "shard": holding.shard.index,
                "epoch": holding.shard.epoch,
                "position": holding.ordering.position,
                "vouched": holding.ordering.vouched,
                "ready": holding.ordering.ready,
            }
            for holding in self._held.values()
            if not holding.shard.behind
        ]
        refused = [{"region": region, "shard": shard, "why": why} for (region, shard), why in self._refused.items()]
        free = None if self._limit is None else self._limit - self.bytes_held
        return {"shards": shards, "refused": refused, "free": free}

    def checkpoint(self) -> None:
        """Write everything to files, so that the journal can start anew."""
        if self._vault is not None:
            self._vault.checkpoint([holding.shard for holding in self.all()], self._stores)

    def _restore(self, vault: Storage) -> None:
        for event in vault.recover():
            holding = self._held.get(event.name)
            if isinstance(event, Kept):
                self._keep(event)
            elif isinstance(event, Gone):
                self._drop(event.name, None)
            elif holding is not None:
                _redo(holding.shard, event)
        for holding in self._held.values():
            shard = holding.shard
            if len(shard.group) == 1:
                _execute(shard, shard.position + len(shard.tail))
            shard.journal = vault
            holding.ordering = Ordering(shard)

    def _keep(self, kept: Kept) -> None:
        """Restore a shard from a checkpoint, or as the journal says it was changed."""
        try:
            holding = self._held.get(kept.name) or self._hold(kept.assignment, assigned=False)
        except OSError as error:
            raise DeviceError(f"shard {kept.name[1]} of region {kept.name[0]}: {error}") from error
        shard = holding.shard
        shard.assign(kept.assignment)
        shard.behind = kept.behind
        if not kept.whole:
            shard.begin_install()
        elif kept.contents is not None:
            shard.install(kept.position, kept.contents.windows, kept.contents.kind)
            shard.tail.extend(kept.contents.tail)

    def close(self) -> None:
        for holding in self.all():
            holding.shard.kind.close()
        for store in self._stores.values():
            store.close()


def _redo(shard: Shard, event: Added | Cut | Marked) -> None:
    """Replay a journal entry on a shard's log."""
    end = shard.position + len(shard.tail)
    if isinstance(event, Cut):
        shard.cut(event.position)
    elif isinstance(event, Marked):
        _execute(shard, event.position)
    elif event.position == end + 1:
        if len(shard.group) == 1:
            _execute(shard, end)
        shard.append(event.position, event.epoch, event.done)


def _execute(shard: Shard, upto: int) -> None:
    while shard.position < upto and shard.tail:
        shard.apply()
