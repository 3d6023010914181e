# SPDX-License-Identifier: MIT
"""Table entries of aggregation and forwarding, by stage of the P4 program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from netsum.wire.schema import OUTCOMES_PER_JOB, SWITCH_SOURCE, Outcome, Role

from netsum_controller.entries.entry import TableEntry

# Stage ``aggregator``: the switch's own address and those of the other switches.


@dataclass(frozen=True)
class MyStationEntry(TableEntry, table="my_station", action="set_my_mac", key=("address",)):
    """The switch answers ARP for ``address`` with ``mac``, and accepts contributions sent there."""

    address: int
    mac: int


@dataclass(frozen=True)
class TransitEntry(TableEntry, table="my_station", action="reject_transit", key=("address",)):
    """``address`` is another switch's. netsum's packets for it, which only a host would send through us, are dropped."""

    address: int


# Stage ``forward``: plain L2 forwarding of other traffic, if its sender address belongs to its port.


@dataclass(frozen=True)
class ForwardEntry(TableEntry, table="forward", action="forward_to", key=("eth_dst",)):
    """Frames to ``eth_dst`` leave through ``port``; what has no entry is flooded."""

    eth_dst: int
    port: int


@dataclass(frozen=True)
class SourceGuardEntry(TableEntry, table="source_guard", action="check_ingress_port", key=("address",)):
    """Packets with this IPv4 or ARP sender ``address`` are accepted at the ports whose bits are set in ``ports``, and dropped
    at all others."""

    address: int
    ports: int


# Stage ``job``: the job record.


@dataclass(frozen=True)
class JobEntry(TableEntry, table="job", action="set_job", key=("job_id",)):
    """Job ``job_id`` in epoch ``epoch``. A block is complete when ``all_sources`` (a bit each) have contributed; block b lives
    in slot ``slot_base + (b & slot_mask)``; ``first_block_id`` is the epoch's first. A block older than ``block_exp``
    microseconds (0: never) may be closed if ``quorum`` workers are in it; at most ``window`` blocks are open at a time.
    ``role`` says what the switch does with a complete block. On a leaf, ``block_id & stripe_mask`` is the stripe, which
    determines a block's parent. ``priority`` is the class among competing jobs, or 0."""

    job_id: int
    epoch: int
    all_sources: int
    slot_base: int
    slot_mask: int
    first_block_id: int
    block_exp: int = 0
    quorum: int = 0
    window: int = 0
    role: int = int(Role.ROOT)
    stripe_mask: int = 0
    priority: int = 0


@dataclass(frozen=True)
class MulticastJobEntry(JobEntry, table="job", action="set_multicast_job", key=("job_id",)):
    """The same for a job of which some members have joined an IP multicast group: what says the same to all leaves by multicast
    group ``IP_MULTICAST_GROUPS + job_id``."""


# Stage ``member``: who may contribute, from which port, in this epoch.


@dataclass(frozen=True)
class MemberEntry(TableEntry, table="member", action="set_member", key=("job_id", "src_id", "ingress_port")):
    """Source ``src_id`` of job ``job_id`` is on ``ingress_port`` and sends from UDP port ``udp_port`` in this epoch; ``source``
    is its bit, ``workers`` how many workers it stands for (one, unless it is a switch). The entry's direct counter counts the
    packets that it lets in."""

    job_id: int
    src_id: int
    ingress_port: int
    source: int
    workers: int
    udp_port: int


@dataclass(frozen=True)
class KeyedMemberEntry(TableEntry, table="member", action="set_keyed_member", key=("job_id", "src_id", "ingress_port")):
    """The same for a source whose ``key`` (64 bits, new in every epoch) proves what its address cannot: others share its port."""

    job_id: int
    src_id: int
    ingress_port: int
    source: int
    workers: int
    key: int


@dataclass(frozen=True)
class ParentEntry(TableEntry, table="member", action="set_parent", key=("job_id", "src_id", "ingress_port")):
    """A parent of this switch is on ``ingress_port``. Its packets are for UDP port ``udp_port`` in this epoch, which is also the
    source port of the switch's partials."""

    job_id: int
    ingress_port: int
    udp_port: int
    src_id: int = SWITCH_SOURCE


# Multicast groups: the ports to which the ``forward`` stage floods, and the members to which ``deliver`` sends a job's
# results (and, if a scan closed the block, the scan's next pass).


@dataclass(frozen=True)
class MulticastGroup:
    """Group ``group_id``: a copy for each replica, a pair (port, instance). ``instance`` becomes the copy's
    egress_rid: the source id in a job's group, 0 in the flood group."""

    group_id: int
    replicas: frozenset[tuple[int, int]]

    @property
    def identity(self) -> tuple[str, tuple[int, ...]]:
        """Table entries and groups that a switch can have only once."""
        return "multicast group", (self.group_id,)

    def __str__(self) -> str:
        return f"multicast group {self.group_id}"


# Stage ``uplink``: where a leaf's partials go.


@dataclass(frozen=True)
class UplinkEntry(TableEntry, table="uplink", action="uplink.up", key=("job_id", "stripe")):
    """The switch's partials of job ``job_id``'s blocks of ``stripe`` leave through ``port`` for the parent's address, from UDP
    port ``udp_port``, as its source ``src_id``."""

    job_id: int
    stripe: int
    port: int
    mac: int
    ip: int
    udp_port: int
    src_id: int


# Stage ``rewrite`` (egress): the addresses that each copy of a result gets.


@dataclass(frozen=True)
class RewriteEntry(TableEntry, table="rewrite", action="to_member", key=("job_id", "replica")):
    """Replica ``replica`` (a source id) of job ``job_id``'s results goes to the ``ranks`` ranks from ``rank`` on, at this MAC, IP
    and UDP port."""

    job_id: int
    replica: int
    mac: int
    ip: int
    udp_port: int
    rank: int
    ranks: int


@dataclass(frozen=True)
class KeyedRewriteEntry(TableEntry, table="rewrite", action="to_keyed_member", key=("job_id", "replica")):
    """The same for a source with a ``key``: it goes to the latest address from which that came, and brings it along."""

    job_id: int
    replica: int
    key: int
    rank: int
    ranks: int


@dataclass(frozen=True)
class GroupRewriteEntry(TableEntry, table="rewrite", action="to_ip_multicast", key=("job_id", "replica")):
    """Replica ``replica`` (no source's id) of job ``job_id``'s results goes to an IP multicast group, whose members have the
    ``key`` in common."""

    job_id: int
    replica: int
    mac: int
    ip: int
    udp_port: int
    key: int


@dataclass(frozen=True)
class SwitchRewriteEntry(TableEntry, table="rewrite", action="to_switch", key=("job_id", "replica")):
    """Replica ``replica`` (a source id) of job ``job_id``'s results goes down to a child switch, from ``udp_port``, that of the
    edge between the two."""

    job_id: int
    replica: int
    mac: int
    ip: int
    udp_port: int


# Stages ``ports`` and ``forward``: counters of what comes in at each port, and of how much of it is dropped.


PORTS_COUNTER = "ports"
DROPPED_COUNTER = "dropped"


class PortCounts(NamedTuple):
    """Packets and bytes (of whole frames) that came in at a port since the program was loaded, and packets ``dropped`` because
    their sender address belongs to another port."""

    packets: int
    bytes: int
    dropped: int


# Stage ``deliver``: the counter in which every outcome of a contribution is counted, per job.


COUNTER = "outcomes"


def indices(job_id: int) -> range:
    """The counter indices of a job's outcomes, in order of :class:`netsum.wire.schema.Outcome`."""
    return range(job_id * OUTCOMES_PER_JOB, (job_id + 1) * OUTCOMES_PER_JOB)


def by_name(job_id: int, packets: Mapping[int, int]) -> dict[str, int]:
    """Packets by the outcome's name in lower case, from packets by counter index; every outcome is there."""
    first = indices(job_id).start
    return {outcome.name.lower(): packets.get(first + outcome, 0) for outcome in Outcome}
