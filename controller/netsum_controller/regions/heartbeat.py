"""Hears memory devices: ``POST /v1/memory/devices/HOST``."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from netsum.logs import Seldom

from netsum_controller.context import ControllerContext
from netsum_controller.errors import UnknownHostError
from netsum_controller.memory.devices import DeviceReport, orders
from netsum_controller.memory.model import Device, Shard
from netsum_controller.memory.reconfiguration import ShardKey

log = logging.getLogger(__name__)

_seldom = Seldom()


def take_heartbeat(context: ControllerContext, host: str, report: DeviceReport) -> dict[str, Any]:
    """Note a device's report; returns its orders. Raises :class:`UnknownHostError`."""
    if host not in context.topology.hosts:
        raise UnknownHostError(host, context.topology.name)
    context.beats.hear(host, report)
    state = context.memory.state()
    known = state.devices.get(host, Device(host, 0))
    now = replace(known, incarnation=report.incarnation, durable=report.durable, alive=True)
    if now != known or (known.free is None) != (report.free is None):
        with context.store.transaction():
            context.memory.set_device(replace(now, free=report.free))
        context.beats.wake.set()
    shards = {
        (region.id, placed.now.number): placed.now
        for region in state.regions.values()
        for placed in state.shards[region.name]
    }
    newer = frozenset(_newer(context, shards, report))
    if newer and _seldom.due() is not None:
        region, shard = min(newer)
        log.error(
            "memory device %s has shard %d of region %#x as the state file does not know it yet: %s is an older copy. Put the "
            "newest one back, or delete the region; until then devices keep what they have",
            *(host, shard, region, context.store.path),
        )
    # As long as it counts, for all that the state file knows, it would show what it has.
    undecided = {key for key in context.beats.doubted(host) if key in shards and _counts(shards[key], host)}
    keep = newer | undecided.intersection((each.region, each.shard) for each in report.shards)
    return orders(context.topology, state, host, report, context.beats.lease, keep)


def _counts(shard: Shard, host: str) -> bool:
    return not shard.lost and any(member.host == host and not member.joining for member in shard.group.members)


def _newer(context: ControllerContext, shards: Mapping[ShardKey, Shard], report: DeviceReport) -> Iterator[ShardKey]:
    """The shards of which devices know more than the state file."""
    for each in report.shards:
        key = each.region, each.shard
        if key in shards:
            if context.beats.newest(key) > shards[key].epoch:
                yield key
        elif not context.memory.knows_id(each.region):
            yield key
