"""Does a job fit? Pure: what is asked for, against the topology and what the other jobs have.

A refusal says what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, MAX_CHUNKS, SLOTS

from netsum_controller.allocation import JOB_IDS, allocate_job_id, allocate_slots
from netsum_controller.errors import Refused
from netsum_controller.job_spec import JobSpec
from netsum_controller.model import DEFAULT_TENANT, Job
from netsum_controller.topology import Topology

IP_UDP_BYTES = 28


def block_mtu(chunks: int) -> int:
    """MTU that a block of so many chunks needs, bytes."""
    return IP_UDP_BYTES + HEADER_BYTES + chunks * CHUNK_BYTES


@dataclass(frozen=True)
class Placement:
    """Where a job goes."""

    switch: str
    job_id: int
    slot_base: int
    slots: int
    chunks: int


def choose_switch(spec: JobSpec, topology: Topology) -> str:
    """The switch that all members are on; :class:`Refused` when there is no such one."""
    unknown = [name for name in dict.fromkeys(spec.members) if name not in topology.hosts]
    if unknown:
        raise Refused(
            f"job {spec.name!r}: the topology has no host {', '.join(unknown)} (it has: {', '.join(topology.hosts)})"
        )
    homes = {name: topology.hosts[name].switch for name in spec.members}
    switches = list(dict.fromkeys(homes.values()))
    if len(switches) > 1:
        examples = ", ".join(f"{next(h for h, s in homes.items() if s == switch)} on {switch}" for switch in switches)
        raise Refused(f"job {spec.name!r}: its members are on different switches ({examples}); a job runs on one")
    return switches[0]


def choose_chunks(spec: JobSpec, topology: Topology) -> int:
    """Payload of a block, in chunks: what was asked for, or the most that the smallest MTU on the way carries."""
    narrowest = min(dict.fromkeys(spec.members), key=lambda name: topology.hosts[name].mtu)
    mtu = topology.hosts[narrowest].mtu
    fitting = min(MAX_CHUNKS, (mtu - block_mtu(0)) // CHUNK_BYTES)
    chunks = fitting if spec.chunks is None else spec.chunks
    if chunks > fitting:
        raise Refused(
            f"job {spec.name!r}: blocks of {chunks} chunks need an MTU of {block_mtu(chunks)} bytes, "
            f"{narrowest} has {mtu}; ask for {fitting} chunks or fewer"
        )
    return chunks


def check_quota(spec: JobSpec, topology: Topology, switch: str, there: Sequence[Job]) -> None:
    """Raise :class:`Refused` when a job would take more of a switch than its tenant may have. ``there`` are the jobs on it,
    groups too."""
    if topology.tenants is None:
        return
    quota = topology.tenants.get(spec.tenant)
    if quota is None:
        known = ", ".join(topology.tenants)
        say = "; name one in `tenant`" if spec.tenant == DEFAULT_TENANT else ""
        raise Refused(f"job {spec.name!r}: the topology has no tenant {spec.tenant!r} (it has: {known}){say}")
    own = [job for job in there if job.tenant == spec.tenant]
    missing = [
        f"{needed} {what}{'s' * (needed != 1)} (it uses {used} of {most})"
        for what, needed, used, most in (
            ("slot", spec.slots, sum(job.slots for job in own), quota.slots),
            ("job id", 1, len(own), quota.job_ids),
            ("member", len(spec.members), sum(job.workers for job in own), quota.members),
        )
        if most is not None and used + needed > most
    ]
    if missing:
        largest = ", ".join(job.name for job in sorted(own, key=lambda job: -job.slots)[:3])
        jobs = f"its largest jobs there: {largest}" if own else "it has no job there"
        raise Refused(
            f"job {spec.name!r}: the quota of tenant {spec.tenant!r} on switch {switch} has no room for "
            f"{' and '.join(missing)}; {jobs}"
        )


def place(spec: JobSpec, topology: Topology, others: Sequence[Job], last_job_id: int, table_size: int) -> Placement:
    """Find room for a job. ``others`` are all jobs; ``table_size`` is that of the tables with one entry a member.

    Raises :class:`Refused` that says what is missing: hosts, one common switch, MTU, quota, job ids, entries or slots.
    """
    switch = choose_switch(spec, topology)
    chunks = choose_chunks(spec, topology)
    there = [job for job in others if job.switch == switch]
    check_quota(spec, topology, switch, there)
    job_id = allocate_job_id({job.job_id for job in there}, last_job_id)
    if job_id is None:
        raise Refused(f"job {spec.name!r}: switch {switch} has no job id left (all {len(JOB_IDS)} are in use)")
    members = sum(job.workers for job in there)
    if members + len(spec.members) > table_size:
        raise Refused(
            f"job {spec.name!r}: {len(spec.members)} members do not fit on switch {switch}: "
            f"{table_size - members} of its {table_size} member entries are free"
        )
    used = [(job.slot_base, job.slots) for job in there]
    slot_base = allocate_slots(used, spec.slots)
    if slot_base is None:
        free = SLOTS - sum(slots for _, slots in used)
        holders = ", ".join(f"{job.name} {job.slots}" for job in sorted(there, key=lambda job: -job.slots)[:3])
        raise Refused(
            f"job {spec.name!r}: a window of {spec.window} needs {spec.slots} slots in a row on switch {switch}; "
            f"{free} of {SLOTS} are free (largest users: {holders}); ask for a smaller window"
        )
    return Placement(switch, job_id, slot_base, spec.slots, chunks)
