"""What a switch has for memory: pure functions from the topology, the regions and their shards to table entries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from netsum.wire.memory import MemoryStatus
from netsum.wire.schema import FLOOD_GROUP

from netsum_controller.config.topology import Topology
from netsum_controller.entries import (
    AggregatorEntry,
    DeviceEntry,
    ElsewhereEntry,
    FromDeviceEntry,
    FromSwitchEntry,
    Item,
    LostShardEntry,
    MulticastGroup,
    RegionEntry,
    SenderEntry,
    ShardEntry,
    VirtualEntry,
)
from netsum_controller.memory.model import FIRST_GROUP, MemoryState, Region, RegionState
from netsum_controller.memory.placement import VirtualAddress, virtual_address
from netsum_controller.planning.addresses import ip_to_int, mac_to_int
from netsum_controller.planning.graph import switch_graph
from netsum_controller.planning.switch_items import ways

_OWN_TABLES = (RegionEntry, ShardEntry, LostShardEntry, DeviceEntry, FromDeviceEntry, FromSwitchEntry)
MEMORY_TABLES = (*_OWN_TABLES, AggregatorEntry, ElsewhereEntry, VirtualEntry, SenderEntry)
"""Kinds of entries of the tables in which memory has some."""
ADDRESS_BITS = 64


def memory_items(
    topology: Topology, state: MemoryState, switch: str, down: Collection[str] = frozenset()
) -> list[Item]:
    """All of these items; none as long as there is no device. Paths avoid switches that are ``down``."""
    if not state.devices:
        return []
    virtual = virtual_address(topology)
    graph = switch_graph(topology, set(down) - {switch})
    port_of = dict(ways(topology, graph, switch))
    ports = {
        device.number: port_of[topology.hosts[host].mac]
        for host, device in state.devices.items()
        if host in topology.hosts and topology.hosts[host].mac in port_of
    }
    items = [*_who_speaks(topology, state, switch, virtual), *_devices(topology, state, ports)]
    for devices in state.groups_in_use():
        copies = frozenset((ports[number], number) for number in devices if number in ports)
        items.append(MulticastGroup(state.groups[devices], copies))
    for region in state.regions.values():
        if region.state is not RegionState.CREATING:
            items += _region(state, region, ports)
    return items


def _who_speaks(topology: Topology, state: MemoryState, switch: str, virtual: VirtualAddress) -> Iterator[Item]:
    """The virtual address, which only other switches use, and the ports of devices and switches."""
    ip, links = ip_to_int(virtual.ip), topology.neighbours(switch)
    yield VirtualEntry(ip, mac_to_int(virtual.mac))
    yield SenderEntry(ip, sum(1 << port for port in links))
    yield from map(FromSwitchEntry, links)
    here = topology.hosts_of(switch)
    yield from (FromDeviceEntry(here[host].port, ip, mac_to_int(virtual.mac)) for host in state.devices if host in here)


def _devices(topology: Topology, state: MemoryState, ports: Mapping[int, int]) -> Iterator[Item]:
    for host, device in state.devices.items():
        if device.number in ports:
            place = topology.hosts[host]
            yield DeviceEntry(device.number, mac_to_int(place.mac), ip_to_int(place.ip))


def _region(state: MemoryState, region: Region, ports: Mapping[int, int]) -> Iterator[Item]:
    prefix = ADDRESS_BITS - (region.size.bit_length() - 1)
    granule_bits = region.granule.bit_length() - 1
    yield RegionEntry(region.base, prefix, region.id, granule_bits, region.shards - 1)
    for placed in state.shards[region.name]:
        shard = placed.installed
        if shard.lost:
            yield LostShardEntry(region.id, shard.number, int(MemoryStatus.LOST))
            continue
        primary = state.devices[shard.hosts[0]].number
        group = state.groups[state.numbers(shard)] if len(shard.hosts) > 1 else 0
        if primary in ports:  # otherwise nobody can reach it, and the switch says BUSY
            yield ShardEntry(region.id, shard.number, shard.epoch, primary, ports[primary], group)


def of_memory(items: Iterable[Item], topology: Topology) -> list[Item]:
    """Those of the items that are memory's."""
    virtual = ip_to_int(virtual_address(topology).ip)
    return [item for item in items if _is_memorys(item, virtual)]


def _is_memorys(item: Item, virtual: int) -> bool:
    if isinstance(item, MulticastGroup):
        return FIRST_GROUP <= item.group_id < FLOOD_GROUP
    table, key = item.identity
    return table in {kind.TABLE for kind in _OWN_TABLES} or (table in ("aggregator", "sender") and key == (virtual,))
