"""What should be on a switch: pure functions from the topology and the jobs to entries."""

from __future__ import annotations

from collections.abc import Collection

from netsum.wire.schema import CPU_PORT, SWEEP_GROUPS, SWEEP_REPLICA

from netsum_controller.addresses import ip_to_int, mac_to_int
from netsum_controller.errors import Refused
from netsum_controller.forwarding import forwarding_items
from netsum_controller.model import Job, Rejoin
from netsum_controller.stages import (
    AggregatorEntry,
    ElsewhereEntry,
    Item,
    JobEntry,
    MemberEntry,
    MulticastGroup,
    RewriteEntry,
)
from netsum_controller.topology import Topology


def switch_items(topology: Topology, switch: str, down: Collection[str] = frozenset()) -> list[Item]:
    """What a switch has without any job: its own address, those of the other switches, and forwarding that avoids switches
    that are ``down``."""
    own = topology.switches[switch]
    items: list[Item] = [AggregatorEntry(address=ip_to_int(own.ip), mac=mac_to_int(own.mac))]
    items += [ElsewhereEntry(ip_to_int(other.ip)) for name, other in topology.switches.items() if name != switch]
    return items + forwarding_items(topology, switch, down)


def job_items(topology: Topology, job: Job) -> list[Item]:
    """What a job has on its switch, in its current epoch. Evicted members have nothing there; blocks age only when all
    others have joined. An epoch that resumes another has no job entry before its first block is known."""
    items: list[Item] = []
    replicas = set()
    all_sources = 0
    for seat in job.epoch.members:
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
    items.append(MulticastGroup(SWEEP_GROUPS + job.job_id, frozenset({*replicas, (CPU_PORT, SWEEP_REPLICA)})))
    if job.epoch.rejoin is not Rejoin.WAITING:
        items.append(_job_entry(job, all_sources))
    return items


def _job_entry(job: Job, all_sources: int) -> JobEntry:
    return JobEntry(
        job_id=job.job_id,
        epoch=job.epoch.number,
        all_sources=all_sources,
        slot_base=job.slot_base,
        slot_mask=job.slots - 1,
        first_block_id=job.epoch.first_block_id,
        block_exp=job.block_exp_us if job.ageing else 0,
        quorum=job.quorum_now,
        window=job.window,
    )


def belongs_to(item: Item, job_id: int) -> bool:
    """Whether an item is part of that job."""
    table, (first, *_) = item.identity
    if table == "multicast group":
        return first in (job_id, SWEEP_GROUPS + job_id)
    return table in _JOB_TABLES and first == job_id


_JOB_TABLES = {kind.TABLE for kind in (JobEntry, MemberEntry, RewriteEntry)}
