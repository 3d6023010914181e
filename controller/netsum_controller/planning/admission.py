# SPDX-License-Identifier: MIT
"""Decides whether a job fits, given the topology and what the other jobs have. A refusal says what is missing. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from netsum.descriptor import IP_UDP_BYTES, PLAN, check_torus, without_switch
from netsum.peers.schedule_files import load_plan
from netsum.text import counted
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES, MAX_CHUNKS, SLOTS

from netsum_controller.config.job_spec import JobSpec
from netsum_controller.config.topology import Topology
from netsum_controller.errors import InputError, NoSwitchError, RejectedError
from netsum_controller.planning.allocation import JOB_IDS, allocate_job_id, allocate_slots
from netsum_controller.planning.items import job_trees
from netsum_controller.planning.trees import ROUND_TRIP_US, Trees, block_exp_us, plan_trees
from netsum_controller.state.model import DEFAULT_TENANT, Job, Part

BLOCK_EXP_BITS = 32
"""Width of a job's block_exp in the P4 program, which counts microseconds."""


def block_mtu(chunks: int) -> int:
    """The MTU, in bytes, that a block of ``chunks`` chunks needs."""
    return IP_UDP_BYTES + HEADER_BYTES + chunks * CHUNK_BYTES


@dataclass(frozen=True)
class Placement:
    """The place of a job: its trees, and its part of each of their switches."""

    trees: Trees
    parts: tuple[Part, ...]
    job_id: int
    slots: int
    chunks: int


def homes_of(members: Sequence[str], topology: Topology) -> tuple[str, ...]:
    """The switch of each member, by rank; :class:`RejectedError` when the topology has no such host."""
    unknown = [name for name in dict.fromkeys(members) if name not in topology.hosts]
    if unknown:
        raise RejectedError(f"the topology has no host {', '.join(unknown)} (it has: {', '.join(topology.hosts)})")
    return tuple(topology.hosts[name].switch for name in members)


def choose_trees(spec: JobSpec, topology: Topology, down: Collection[str] = ()) -> Trees:
    """The job's trees; :class:`RejectedError` when its members cannot be joined."""
    try:
        return plan_trees(topology, spec.members, down=frozenset(down), weights=spec.roots, leaders=spec.leaders)
    except RejectedError as error:
        raise type(error)(f"job {spec.name!r}: {error}") from None


def check_ends(spec: JobSpec, topology: Topology) -> None:
    """Raise :class:`RejectedError` for several ranks on a host that sends its frames through a UDP endpoint, for users who
    start a process for each rank: one process can open it. Ranks of one process share it."""
    for name, count in Counter(spec.members).items():
        host = topology.hosts.get(name)
        if host is None or host.frames is None or without_switch(spec.algorithm):
            continue
        if count > 1:
            raise RejectedError(
                f"job {spec.name!r}: {count} ranks on {name}, whose `frames` endpoint {host.frames} one process can open; "
                "give each rank a host, or let the members combine: `--algorithm ring` or another"
            )


def choose_chunks(spec: JobSpec, topology: Topology, trees: Trees) -> int:
    """Payload of a block, in chunks: what was asked for, or the most that the smallest MTU on the way carries."""
    mtus = {name: topology.hosts[name].mtu for name in spec.members}
    mtus |= {f"link {name}": topology.links[name].mtu for name in trees.links(topology)}
    narrowest = min(mtus, key=lambda name: mtus[name])
    mtu = mtus[narrowest]
    fitting = min(MAX_CHUNKS, (mtu - block_mtu(0)) // CHUNK_BYTES)
    chunks = fitting if spec.chunks is None else spec.chunks
    if chunks > fitting:
        raise RejectedError(
            f"job {spec.name!r}: blocks of {chunks} chunks need an MTU of {block_mtu(chunks)} bytes, "
            f"{narrowest} has {mtu}; ask for {fitting} chunks or fewer"
        )
    return chunks


def sources_on(topology: Topology, job: Job, switch: str) -> int:
    """The number of sources that a job has on a switch: members, and switches below."""
    return _entries(topology, job, switch)[0]


def _entries(topology: Topology, job: Job, switch: str) -> tuple[int, int, int]:
    """A job's sources, parents and upward stripes on a switch. If the topology no longer has everything the job needs, each
    member counts as a source."""
    try:
        return _needs(job_trees(topology, job), switch)
    except RejectedError:
        return job.workers, 0, 0


def _needs(trees: Trees, switch: str) -> tuple[int, int, int]:
    node = trees.nodes.get(switch)
    if node is None:
        return 0, 0, 0
    return len(node.children), len(node.uplinks), sum(way is not None for way in node.parents)


def check_plan(job: str, algorithm: str, members: Sequence[str]) -> None:
    """If the algorithm is a plan, which the members read themselves: raise :class:`InputError` if its file is wrong,
    :class:`RejectedError` if it is not for these members. The latter also if it is a chain on a torus with other places."""
    try:
        check_torus(algorithm, len(members))
    except ValueError as error:
        raise RejectedError(f"job {job!r}: {error}") from None
    if not algorithm.startswith(PLAN):
        return
    try:
        hosts = load_plan(algorithm.removeprefix(PLAN)).hosts
    except ValueError as error:
        raise InputError(str(error)) from None
    if hosts != tuple(members):
        raise RejectedError(
            f"job {job!r} has the members {', '.join(members)}, and {algorithm} is for {', '.join(hosts)}, in this order"
        )


def check_tenant(spec: JobSpec, topology: Topology) -> None:
    """Raise :class:`RejectedError` when the topology has tenants and the job's is not among them."""
    if topology.tenants is not None and spec.tenant not in topology.tenants:
        known = ", ".join(topology.tenants)
        say = "; name one in `tenant`" if spec.tenant == DEFAULT_TENANT else ""
        raise RejectedError(f"job {spec.name!r}: the topology has no tenant {spec.tenant!r} (it has: {known}){say}")


def check_quota(spec: JobSpec, topology: Topology, switch: str, there: Sequence[Job], slots: int, sources: int) -> None:
    """Raise :class:`RejectedError` when a job with ``slots`` and ``sources`` would exceed its tenant's quota on a switch.
    ``there`` are the jobs on that switch, including groups."""
    if topology.tenants is None:
        return
    quota = topology.tenants[spec.tenant]
    own = [job for job in there if job.tenant == spec.tenant]
    missing = [
        f"{needed} {what}{'s' * (needed != 1)} (it uses {used} of {most})"
        for what, needed, used, most in (
            ("slot", slots, sum(job.slots for job in own), quota.slots),
            ("job id", 1, len(own), quota.job_ids),
            ("member", sources, sum(sources_on(topology, job, switch) for job in own), quota.members),
        )
        if most is not None and used + needed > most
    ]
    if missing:
        largest = ", ".join(job.name for job in sorted(own, key=lambda job: -job.slots)[:3])
        jobs = f"its largest jobs there: {largest}" if own else "it has no job there"
        raise RejectedError(
            f"job {spec.name!r}: the quota of tenant {spec.tenant!r} on switch {switch} has no room for "
            f"{' and '.join(missing)}; {jobs}"
        )


def place(
    spec: JobSpec,
    topology: Topology,
    others: Sequence[Job],
    last_job_id: int,
    table_size: int,
    down: Collection[str] = (),
) -> Placement:
    """Find room for a job on every switch of its trees, which must avoid switches that are ``down``. ``others`` are all jobs;
    ``table_size`` is the size of the tables that have an entry for each member. Raises :class:`RejectedError`, which says what is
    missing and where (hosts, MTU or quota), or its subclass :class:`NoSwitchError` (paths, job ids, entries or slots)."""
    trees = choose_trees(spec, topology, down)
    chunks = choose_chunks(spec, topology, trees)
    _check_aging(spec.name, spec.block_exp_us, trees)
    check_tenant(spec, topology)
    slots = max(spec.slots, trees.stripes)
    there = {switch: [job for job in others if job.part(switch)] for switch in trees.nodes}
    for switch, jobs in there.items():
        check_quota(spec, topology, switch, jobs, slots, len(trees.nodes[switch].children))
    job_id = allocate_job_id({job.job_id for jobs in there.values() for job in jobs}, last_job_id)
    if job_id is None:
        raise NoSwitchError(f"job {spec.name!r}: {_without_id(there)}")
    parts = []
    for switch, jobs in there.items():
        _check_entries(spec.name, topology, switch, jobs, trees, table_size)
        parts.append(Part(switch, _slots_on(spec.name, switch, jobs, slots, spec.window)))
    return Placement(trees, in_order(trees, parts), job_id, slots, chunks)


def _check_aging(name: str, lowest_us: int, trees: Trees) -> None:
    """Raise :class:`RejectedError` when the roots would have to wait longer than the switch can count."""
    height = max(node.height for node in trees.nodes.values())
    longest = block_exp_us(lowest_us, height)
    if longest >= 1 << BLOCK_EXP_BITS:
        most = ((1 << BLOCK_EXP_BITS) >> height) - ROUND_TRIP_US
        raise RejectedError(
            f"job {name!r}: block_exp is {lowest_us // 1000} ms, for which the root of its trees would have to wait "
            f"{longest // 1000} ms; a switch counts to {(1 << BLOCK_EXP_BITS) // 1000}. Give {most // 1000} ms or less"
        )


def _without_id(there: Mapping[str, Sequence[Job]]) -> str:
    for switch, jobs in there.items():
        if len({job.job_id for job in jobs}) == len(JOB_IDS):
            return f"switch {switch} has no job id left (all {len(JOB_IDS)} are in use)"
    free = {switch: len(JOB_IDS) - len(jobs) for switch, jobs in there.items()}
    counts = ", ".join(f"{switch} has {count}" for switch, count in free.items())
    return f"no job id is free on all of its switches ({counts} of {len(JOB_IDS)} left, not the same)"


def _check_entries(name: str, topology: Topology, switch: str, there: Sequence[Job], trees: Trees, table_size: int) -> None:
    sources, parents, ways = _needs(trees, switch)
    used = [_entries(topology, job, switch) for job in there]
    members = sum(one[0] + one[1] for one in used)
    if members + sources + parents > table_size:
        raise NoSwitchError(
            f"job {name!r}: no room for {counted(sources + parents, 'member')} on switch {switch}: "
            f"{table_size - members} of its {table_size} member entries are free"
        )
    uplinks = sum(one[2] for one in used)
    if uplinks + ways > table_size:
        raise NoSwitchError(
            f"job {name!r}: no room for {counted(ways, 'stripe')} on switch {switch}: "
            f"{table_size - uplinks} of its {table_size} uplink entries are free"
        )


def _slots_on(name: str, switch: str, there: Sequence[Job], slots: int, window: int) -> int:
    used = [(part.slot_base, job.slots) for job in there if (part := job.part(switch))]
    slot_base = allocate_slots(used, slots)
    if slot_base is None:
        free = SLOTS - sum(taken for _, taken in used)
        holders = ", ".join(f"{job.name} {job.slots}" for job in sorted(there, key=lambda job: -job.slots)[:3])
        raise NoSwitchError(
            f"job {name!r}: a window of {window} needs {slots} slots in a row on switch {switch}; "
            f"{free} of {SLOTS} are free (largest users: {holders}); ask for a smaller window"
        )
    return slot_base


def place_again(topology: Topology, job: Job, trees: Trees, others: Sequence[Job], table_size: int) -> tuple[Part, ...]:
    """The parts of an existing job for new trees. It keeps its parts, even on switches that it does not need now, and gets new
    ones elsewhere. Quotas do not apply. :class:`RejectedError` if there is no room."""
    parts = {part.switch: part for part in job.parts}
    _check_aging(job.name, job.block_exp_us, trees)
    if trees.stripes > job.slots:
        raise RejectedError(f"job {job.name!r}: {trees.stripes} stripes do not fit into its {job.slots} slots")
    for switch in trees.nodes:
        if switch in parts:
            continue
        there = [other for other in others if other.part(switch) and other.name != job.name]
        if any(other.job_id == job.job_id for other in there):
            raise RejectedError(f"job {job.name!r}: its id {job.job_id} is another job's on switch {switch}")
        _check_entries(job.name, topology, switch, there, trees, table_size)
        parts[switch] = Part(switch, _slots_on(job.name, switch, there, job.slots, job.window))
    return in_order(trees, parts.values())


def in_order(trees: Trees, parts: Collection[Part]) -> tuple[Part, ...]:
    """Parts with the first stripe's root first, then parents before children, then those that the trees do not need."""

    def places() -> Iterator[str]:
        yield trees.roots[0]
        yield from trees.nodes
        yield from (part.switch for part in parts)

    by_switch = {part.switch: part for part in parts}
    return tuple(by_switch[switch] for switch in dict.fromkeys(places()))
