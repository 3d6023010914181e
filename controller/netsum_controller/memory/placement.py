# SPDX-License-Identifier: MIT
"""A new region's address, and which devices get its shards. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from netsum.wire.memory import MemoryStatus
from netsum.wire.schema import FLOOD_GROUP

from netsum_controller.config.topology import Host, Switch, Topology
from netsum_controller.entries import (
    DeviceEntry,
    FromDeviceEntry,
    FromSwitchEntry,
    Item,
    LostShardEntry,
    MemoryStationEntry,
    MulticastGroup,
    MyStationEntry,
    RegionEntry,
    ShardEntry,
    SourceGuardEntry,
    TransitEntry,
)
from netsum_controller.errors import RejectedError
from netsum_controller.memory.model import (
    END_OF_ADDRESSES,
    FIRST_GROUP,
    Member,
    MemoryState,
    Region,
    RegionState,
    ReplicaGroup,
    Shard,
    least_power,
)
from netsum_controller.planning.allocation import ip_to_int, mac_to_int
from netsum_controller.planning.items import ways
from netsum_controller.planning.trees import switch_graph

FIRST_ADDRESS = 1 << 32
"""Below, no address is ever a region's: a pointer that was forgotten finds none."""

_MAC = 0x026E73FFFFFD


class VirtualAddress(NamedTuple):
    ip: str
    mac: str


def virtual_address(topology: Topology) -> VirtualAddress:
    """The address at which hosts reach memory: the topology's, or the highest free one of its hosts' subnet."""
    given = topology.memory
    if given is not None:
        return VirtualAddress(given.ip, given.mac)
    places: list[Host | Switch] = [*topology.hosts.values(), *topology.switches.values()]
    ips, macs = {ip_to_int(place.ip) for place in places}, {mac_to_int(place.mac) for place in places}
    bits = max(8, (min(ips) ^ max(ips)).bit_length())
    last = min(ips) | (1 << bits) - 1  # the subnet's broadcast address
    ip = next((ip for ip in range(last - 1, last - 1 - (1 << bits), -1) if ip not in ips), last)
    mac = next(mac for mac in range(_MAC, 0, -1) if mac not in macs)
    text = f"{mac:012x}"
    return VirtualAddress(str(ipaddress.IPv4Address(ip)), ":".join(text[at : at + 2] for at in range(0, 12, 2)))


def default_shards(devices: int, size: int, granule: int) -> int:
    """A number of shards such that any number of devices has nearly equal shares."""
    return min(1 if devices == 1 else least_power(4 * devices), size // granule)


def free_base(size: int, regions: Iterable[Region]) -> int:
    """The lowest multiple of ``size`` at which ``size`` bytes are free."""
    base = max(size, FIRST_ADDRESS)
    for region in sorted(regions, key=lambda region: region.base):
        if base + size <= region.base:
            break
        end = region.base + region.size
        base = max(base, (end + size - 1) // size * size)
    if base + size > END_OF_ADDRESSES:
        raise RejectedError(f"no {size} bytes of virtual addresses are free: delete regions, or make a smaller one")
    return base


def deal(shards: int, devices: Mapping[str, str], replicas: int) -> list[Shard]:
    """New shards for devices, whose incarnations are given by host: their primaries in turn, and the backups of one device's
    shards on all the others."""
    hosts = list(devices)
    count = len(devices)
    dealt = []
    for number in range(shards):
        places = [number % count]
        start = number // count
        places += [(number + 1 + (start + other) % (count - 1)) % count for other in range(replicas - 1)]
        members = tuple(Member(hosts[place], devices[hosts[place]]) for place in places)
        dealt.append(Shard(number, ReplicaGroup(1, members)))
    return dealt


# What a switch has for memory: pure functions from the topology, the regions and their shards to table entries.


_OWN_TABLES = (RegionEntry, ShardEntry, LostShardEntry, DeviceEntry, FromDeviceEntry, FromSwitchEntry)
MEMORY_TABLES = (*_OWN_TABLES, MyStationEntry, TransitEntry, MemoryStationEntry, SourceGuardEntry)
"""Kinds of entries of the tables in which memory has some."""
ADDRESS_BITS = 64


def memory_items(topology: Topology, state: MemoryState, switch: str, down: Collection[str] = frozenset()) -> list[Item]:
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
    ip, links = ip_to_int(virtual.ip), topology.neighbors(switch)
    yield MemoryStationEntry(ip, mac_to_int(virtual.mac))
    yield SourceGuardEntry(ip, sum(1 << port for port in links))
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
        if primary in ports:  # otherwise no client can reach it, and the switch says BUSY
            yield ShardEntry(region.id, shard.number, shard.epoch, primary, ports[primary], group)


def of_memory(items: Iterable[Item], topology: Topology) -> list[Item]:
    """Those of the items that are memory's."""
    virtual = ip_to_int(virtual_address(topology).ip)
    return [item for item in items if _is_memorys(item, virtual)]


def _is_memorys(item: Item, virtual: int) -> bool:
    if isinstance(item, MulticastGroup):
        return FIRST_GROUP <= item.group_id < FLOOD_GROUP
    table, key = item.identity
    return table in {kind.TABLE for kind in _OWN_TABLES} or (table in ("my_station", "source_guard") and key == (virtual,))
