"""Regions, shards and devices in words and rows, for ``netsum memory`` and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from netsum_controller.memory.model import MemoryState
from netsum_controller.monitoring.memory_metrics import how_is


def summary(state: MemoryState, name: str) -> dict[str, Any]:
    """What lists say of a region."""
    region = state.regions[name]
    found = [how_is(region, placed) for placed in state.shards[name]]
    fields = ("name", "kind", "dtype", "base", "size", "granule", "shards", "replicas")
    return {
        **{field: getattr(region, field) for field in fields},
        "shape": region.shape,
        "state": region.state.value,
        "trouble": region.trouble,
        "devices": list(region.devices),
        **{word: found.count(word) for word in ("moving", "degraded", "lost")},
    }


def region_rows(regions: Sequence[dict[str, Any]]) -> tuple[Sequence[str], list[Sequence[Any]]]:
    """Columns and rows of a table."""
    names = ("REGION", "KIND", "DTYPE", "BYTES", "BASE", "STATE", "SHARDS", "REPLICAS")
    rows: list[Sequence[Any]] = [
        (
            *(each["name"], each["kind"], each["dtype"] or "-", each["size"], f"{each['base']:#x}"),
            *(each["trouble"] or each["state"], each["shards"], each["replicas"]),
            *(each["moving"], each["degraded"], each["lost"], ", ".join(each["devices"])),
        )
        for each in regions
    ]
    return (*names, "MOVING", "DEGRADED", "LOST", "DEVICES"), rows


def shard_rows(state: MemoryState, name: str) -> tuple[Sequence[str], list[Sequence[Any]]]:
    """Columns and rows of a table."""
    rows: list[Sequence[Any]] = []
    for placed in state.shards[name]:
        shard = placed.installed
        members = shard.group.members
        backups = ", ".join(f"{each.host}{' (joining)' if each.joining else ''}" for each in members[1:])
        dead = [each.host for each in members if each.host in state.devices and not state.devices[each.host].alive]
        words = "lost" if shard.lost else f"silent: {', '.join(dead)}" if dead else "moving" if shard.target else "ok"
        rows.append((shard.number, shard.epoch, members[0].host, backups or "-", words))
    return ("SHARD", "EPOCH", "PRIMARY", "BACKUPS", "STATE"), rows


def device_rows(state: MemoryState) -> list[dict[str, Any]]:
    """What there is to say of each device."""
    primaries: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for shards in state.shards.values():
        for placed in shards:
            primaries.update(placed.now.hosts[:1])
            held.update(placed.now.hosts)
    return [
        {
            "device": host,
            "state": "alive" if device.alive else "silent",
            "memory": "files" if device.durable else "RAM",
            "primary": primaries[host],
            "shards": held[host],
            "free": device.free,
        }
        for host, device in state.devices.items()
    ]
