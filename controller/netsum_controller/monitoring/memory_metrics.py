"""Metrics of memory in the network: what comes for each region, how its shards are, which devices are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from netsum_controller.memory.model import MemoryState, Placed, Region
from netsum_controller.monitoring.collector import SwitchView


def memory_metrics(state: MemoryState, views: Sequence[SwitchView]) -> Iterator[Metric]:
    """All families; switches are not asked again."""
    labels = ("region", "switch")
    packets = CounterMetricFamily(
        "netsum_region_packets", "Instructions for the region that the switch has translated.", labels=labels
    )
    octets = CounterMetricFamily("netsum_region_bytes", "Bytes of those packets, as whole frames.", labels=labels)
    names = {region.id: name for name, region in state.regions.items()}
    for view in views:
        for number, counts in view.regions.items():
            if number in names:
                packets.add_metric((names[number], view.name), counts.packets)
                octets.add_metric((names[number], view.name), counts.bytes)
    shards = GaugeMetricFamily(
        "netsum_region_shards", "Shards of the region, by how they are.", labels=("region", "state")
    )
    for name, region in state.regions.items():
        found = [how_is(region, placed) for placed in state.shards[name]]
        for word in ("ok", "moving", "degraded", "lost"):
            shards.add_metric((name, word), found.count(word))
    up = GaugeMetricFamily("netsum_memory_device_up", "The memory device reports.", labels=("host",))
    for host, device in state.devices.items():
        up.add_metric((host,), device.alive)
    yield from (packets, octets, shards, up)


def how_is(region: Region, placed: Placed) -> str:
    """One word for a shard: ``degraded`` means that fewer devices than the region wants have everything of it."""
    shard = placed.installed
    if shard.lost:
        return "lost"
    if shard.target is not None:
        return "moving"
    whole = sum(not member.joining for member in shard.group.members)
    return "degraded" if whole < region.replicas else "ok"
