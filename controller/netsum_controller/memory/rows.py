# SPDX-License-Identifier: MIT
"""Memory's part of the state file: regions, shards, devices. Changes need a transaction of the store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from netsum_controller.errors import RejectedError, UnknownRegionError
from netsum_controller.memory.failover import Report, ShardKey
from netsum_controller.memory.model import (
    FIRST_GROUP,
    MAX_DEVICES,
    MAX_GROUPS,
    Device,
    Member,
    MemoryState,
    Placed,
    Region,
    RegionState,
    ReplicaGroup,
    Shard,
)
from netsum_controller.state.store import Store

_DEVICE_TOKEN = "device token"

_KEYS = ("read_key", "write_key", "device_key")
_LISTS = ("devices", "shape", "options")
_REGION_COLUMNS = [field.name for field in fields(Region) if field.name not in ("token", "read_token")]
_DEVICE_COLUMNS = [field.name for field in fields(Device)]


def _shard_text(shard: Shard | None) -> str | None:
    return None if shard is None else json.dumps([shard.epoch, shard.group.members, shard.target, shard.lost])


def _shard(number: int, text: str) -> Shard:
    epoch, members, target, lost = json.loads(text)
    group = ReplicaGroup(epoch, tuple(Member(*member) for member in members))
    return Shard(number, group, None if target is None else tuple(target), lost)


def _region(row: Iterable[Any]) -> Region:
    values = dict(zip(_REGION_COLUMNS, row, strict=True))
    values |= {name: int(values[name], 16) for name in _KEYS}
    values |= {name: json.loads(values[name]) for name in _LISTS if values[name] is not None}
    values["devices"] = tuple(values["devices"])
    values["shape"] = None if values["shape"] is None else tuple(values["shape"])
    values["state"] = RegionState(values["state"])
    return Region(**values)


class MemoryRows:
    """Memory's part of a store. May be read from any thread; changes need a transaction of the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: tuple[tuple[int, int], MemoryState] | None = None

    def state(self) -> MemoryState:
        """The current state; reread only if the file has changed."""
        version = self._store.version
        if self._store.changing:
            return self._read_all()
        if self._read is None or self._read[0] != version:
            self._read = version, self._read_all()
        return self._read[1]

    def _read_all(self) -> MemoryState:
        columns = ", ".join(_REGION_COLUMNS)
        rows = self._store.rows(f"SELECT {columns} FROM memory_regions ORDER BY name")
        regions = {region.name: region for region in map(_region, rows)}
        shards: dict[str, list[Placed]] = {name: [] for name in regions}
        query = "SELECT region, shard, now, next FROM memory_shards ORDER BY region, shard"
        for region, number, now, after in self._store.rows(query):
            shards[region].append(Placed(_shard(number, now), None if after is None else _shard(number, after)))
        columns = ", ".join(_DEVICE_COLUMNS)
        devices = {}
        for row in self._store.rows(f"SELECT {columns} FROM memory_devices ORDER BY number"):
            host, number, incarnation, durable, alive, free = row
            devices[host] = Device(host, number, incarnation, bool(durable), bool(alive), free)
        groups = {
            tuple(json.loads(text)): number for text, number in self._store.rows("SELECT devices, number FROM memory_groups")
        }
        return MemoryState(regions, shards, devices, groups)

    def knows_id(self, region: int) -> bool:
        """True if a region, deleted or not, has this id."""
        return bool(self._store.rows("SELECT 1 FROM memory_ids WHERE id = ?", (region,)))

    def region(self, name: str) -> Region:
        """The region of that name; :class:`UnknownRegionError` if there is none."""
        found = self.state().regions.get(name)
        if found is None:
            raise UnknownRegionError(name)
        return found

    def add_region(self, region: Region, shards: Iterable[Shard]) -> None:
        values = {name: getattr(region, name) for name in _REGION_COLUMNS}
        values |= {name: f"{values[name]:016x}" for name in _KEYS}
        values |= {name: json.dumps(values[name]) for name in _LISTS if values[name] is not None}
        values["state"] = region.state.value
        marks = ", ".join("?" * len(values))
        self._store.change(f"INSERT INTO memory_regions ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))
        self._store.change("INSERT INTO memory_ids VALUES (?)", (region.id,))
        for shard in shards:
            row = (region.name, shard.number, _shard_text(shard))
            self._store.change("INSERT INTO memory_shards (region, shard, now) VALUES (?, ?, ?)", row)

    def set_region_state(self, name: str, state: RegionState) -> None:
        self._store.change("UPDATE memory_regions SET state = ? WHERE name = ?", (state.value, name))

    def set_trouble(self, name: str, trouble: str) -> None:
        """Record why a region cannot be made."""
        self._store.change("UPDATE memory_regions SET trouble = ? WHERE name = ?", (trouble, name))

    def set_region_devices(self, name: str, hosts: Iterable[str]) -> None:
        """The hosts that may hold it."""
        self._store.change("UPDATE memory_regions SET devices = ? WHERE name = ?", (json.dumps(list(hosts)), name))

    def remove_region(self, name: str) -> None:
        self._store.change("DELETE FROM memory_regions WHERE name = ?", (name,))

    def set_shard(self, region: str, placed: Placed) -> None:
        row = (_shard_text(placed.now), _shard_text(placed.next), region, placed.now.number)
        self._store.change("UPDATE memory_shards SET now = ?, next = ? WHERE region = ? AND shard = ?", row)

    def set_device(self, device: Device) -> Device:
        """Record a device, which gets a number if it has none; :class:`RejectedError` if there are too many."""
        if not device.number:
            taken = {each.number for each in self.state().devices.values()}
            number = next((number for number in range(1, MAX_DEVICES + 1) if number not in taken), None)
            if number is None:
                raise RejectedError(f"{MAX_DEVICES} hosts are memory devices already: the switches know no more")
            device = replace(device, number=number)
        values = [getattr(device, name) for name in _DEVICE_COLUMNS]
        marks = ", ".join("?" * len(values))
        self._store.change(f"REPLACE INTO memory_devices ({', '.join(_DEVICE_COLUMNS)}) VALUES ({marks})", values)
        return device

    def vouched(self) -> dict[str, dict[ShardKey, Report]]:
        """By host, how far its device has said that it has shards' logs."""
        return {
            host: {(region, shard): Report(incarnation, epoch, vouched=far) for region, shard, epoch, far in json.loads(text)}
            for host, incarnation, text in self._store.rows("SELECT host, incarnation, shards FROM memory_vouched")
        }

    def set_vouched(self, host: str, known: Mapping[ShardKey, Report]) -> None:
        """Record that. It is no part of :meth:`state`, which need not be read again."""
        incarnation = next((report.incarnation for report in known.values()), "")
        text = json.dumps([[*key, report.epoch, report.vouched] for key, report in sorted(known.items())])
        self._store.note("REPLACE INTO memory_vouched VALUES (?, ?, ?)", (host, incarnation, text))

    def settle_groups(self) -> None:
        """Give every set of devices that shards have a multicast group's number, and free all other numbers."""
        state = self.state()
        needed = state.groups_in_use(before=True)
        for devices in state.groups.keys() - needed:
            self._store.change("DELETE FROM memory_groups WHERE devices = ?", (json.dumps(devices),))
        taken = {number for devices, number in state.groups.items() if devices in needed}
        free = (number for number in range(FIRST_GROUP, FIRST_GROUP + MAX_GROUPS) if number not in taken)
        for devices in sorted(needed - state.groups.keys()):
            number = next(free, None)
            if number is None:
                raise RejectedError(f"the shards have more than {MAX_GROUPS} different groups of devices")
            self._store.change("INSERT INTO memory_groups VALUES (?, ?)", (json.dumps(devices), number))

    def device_token(self) -> str | None:
        """The token that devices show to the controller, if there is one yet."""
        found = self._store.rows("SELECT value FROM memory_secrets WHERE name = ?", (_DEVICE_TOKEN,))
        return str(found[0][0]) if found else None

    def set_device_token(self, token: str) -> str:
        self._store.change("INSERT INTO memory_secrets VALUES (?, ?)", (_DEVICE_TOKEN, token))
        return token
