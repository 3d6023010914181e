"""A new region's address, and which devices get its shards. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from netsum_controller.config.topology import Host, Switch, Topology
from netsum_controller.errors import RejectedError
from netsum_controller.memory.failover import Member, ReplicaGroup
from netsum_controller.memory.model import Region, Shard
from netsum_controller.planning.addresses import ip_to_int, mac_to_int

LEAST_SIZE = 64 * 1024
LEAST_GRANULE = 8192
FIRST_ADDRESS = 1 << 32
"""Below, no address is ever a region's: a pointer that was forgotten finds none."""
END_OF_ADDRESSES = 1 << 63

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


def least_power(number: int) -> int:
    """The least power of two that is not below ``number``."""
    return 1 << max(0, number - 1).bit_length()


def default_shards(devices: int, size: int, granule: int) -> int:
    """So many shards that any number of devices has nearly equal shares."""
    return min(1 if devices == 1 else least_power(4 * devices), size // granule)


def free_base(size: int, regions: Iterable[Region]) -> int:
    """The lowest multiple of ``size`` at which so many bytes are free."""
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
