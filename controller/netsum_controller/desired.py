"""What should be on a switch: pure functions from the topology and the jobs to entries."""

from __future__ import annotations

from netsum.wire.schema import FLOOD_GROUP

from netsum_controller.addresses import ip_to_int, mac_to_int
from netsum_controller.errors import Refused
from netsum_controller.model import Job
from netsum_controller.stages import (
    AggregatorEntry,
    ForwardEntry,
    Item,
    JobEntry,
    MemberEntry,
    MulticastGroup,
    RewriteEntry,
)
from netsum_controller.topology import Topology


def switch_items(topology: Topology, switch: str) -> list[Item]:
    """What a switch has without any job: forwarding to its hosts, flooding, its own address."""
    own = topology.switches[switch]
    hosts = topology.hosts_of(switch).values()
    items: list[Item] = [AggregatorEntry(address=ip_to_int(own.ip), mac=mac_to_int(own.mac))]
    items += [ForwardEntry(eth_dst=mac_to_int(host.mac), port=host.port) for host in hosts]
    if hosts:
        items.append(MulticastGroup(FLOOD_GROUP, frozenset((host.port, 0) for host in hosts)))
    return items


def job_items(topology: Topology, job: Job) -> list[Item]:
    """What a job has on its switch, in its current epoch."""
    items: list[Item] = []
    replicas = set()
    all_sources = 0
    for seat in job.epoch.seats:
        host = topology.hosts.get(seat.host)
        if host is None or host.switch != job.switch:
            raise Refused(
                f"job {job.name!r}: its member {seat.host} is no longer on switch {job.switch} in the topology"
            )
        source = 1 << seat.src_id
        all_sources |= source
        replicas.add((host.port, seat.src_id))
        items.append(MemberEntry(job.job_id, seat.src_id, host.port, source, workers=1, udp_port=seat.udp_port))
        address = (mac_to_int(host.mac), ip_to_int(host.ip), seat.udp_port)
        items.append(RewriteEntry(job.job_id, seat.src_id, *address, rank=seat.rank))
    items.append(MulticastGroup(job.job_id, frozenset(replicas)))
    items.append(
        JobEntry(job.job_id, job.epoch.number, all_sources, job.slot_base, job.slots - 1, job.epoch.first_block_id)
    )
    return items


def belongs_to(item: Item, job_id: int) -> bool:
    """Whether an item is part of that job."""
    table, key = item.identity
    return table in _JOB_PARTS and key[0] == job_id


_JOB_PARTS = {"multicast group", *(kind.TABLE for kind in (JobEntry, MemberEntry, RewriteEntry))}
