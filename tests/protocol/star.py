# SPDX-License-Identifier: MIT
"""The switch on which the scenarios run: four ports, its jobs, and every entry that a controller would install for them. It is
a star for three jobs, the root of a tree for one, and a leaf with two parents for another.

Ranks are not source ids, members share ports with each other and with parents, a slot range does not begin at 0: what could be
confused, differs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from netsum.wire.codec import Header
from netsum.wire.schema import (
    CPU_PORT,
    EVERYONE,
    FLOOD_GROUP,
    IP_MULTICAST_GROUPS,
    SCAN_GROUPS,
    SCAN_REPLICA,
    SWITCH_SOURCE,
    UDP_PORT,
    Hop,
    Role,
)
from netsum_controller.entries import (
    ForwardEntry,
    GroupRewriteEntry,
    Item,
    JobEntry,
    KeyedMemberEntry,
    KeyedRewriteEntry,
    MemberEntry,
    MulticastGroup,
    MulticastJobEntry,
    MyStationEntry,
    ParentEntry,
    RewriteEntry,
    SourceGuardEntry,
    SwitchRewriteEntry,
    TransitEntry,
    UplinkEntry,
)

from tests.model.rules import Group, Job, Member, Payload, Uplink
from tests.protocol.frames import Datagram, netsum_body

PORTS = (1, 2, 3, 4)
SWITCH_MAC, SWITCH_IP = 0x026E730000FE, 0x0A0000FE
TRIO, PAIR, LATE = 3, 200, 255
"""The jobs: TRIO's three members are on ports 1 to 3, both members of PAIR on port 4. The blocks of LATE age out as soon as
two workers are in; one of its members stands for three."""

KEYED = 50
"""A job of which two members share port 4, and are known by their keys; one of them stands for two workers."""

MULTICAST = 51
"""A job of which three members have joined an IP multicast group: two of the three at port 4, and one at port 2."""

TOP, LEAF = 40, 41
"""Jobs in trees. In TOP's this is the root, over two leaves and a host. In LEAF's it is below two roots, by stripes, and above
two hosts and a leaf; its second parent is on the port of its child."""

JOBS = {
    TRIO: Job(
        epoch=7,
        first_block_id=0xFFFFFFFC,
        slots=4,
        slot_base=0,
        members=(Member(0, 1, 20001, 2), Member(5, 2, 20002, 0), Member(254, 3, 20003, 1)),
    ),
    PAIR: Job(epoch=8, first_block_id=64, slots=8, slot_base=8184, members=(Member(1, 4, 20011, 0), Member(2, 4, 20012, 1))),
    TOP: Job(
        epoch=10,
        first_block_id=0x7FFFFFFE,
        slots=4,
        slot_base=64,
        members=(
            Member(0, 1, 20031, EVERYONE, workers=2, switch=True),
            Member(5, 2, 20032, EVERYONE, workers=3, switch=True),
            Member(254, 4, 20033, 1),
        ),
    ),
    LEAF: Job(
        epoch=11,
        first_block_id=0xFFFFFFFD,
        slots=8,
        slot_base=80,
        members=(
            Member(0, 1, 20041, 0),
            Member(7, 2, 20042, 2),
            Member(200, 3, 20043, EVERYONE, workers=2, switch=True),
        ),
        block_exp=1,
        quorum=2,
        window=4,
        uplinks=(Uplink(4, 20044, 9), Uplink(3, 20045, 9)),
    ),
    KEYED: Job(
        epoch=12,
        first_block_id=0xFFFFFFFB,
        slots=8,
        slot_base=96,
        members=(
            Member(0, 4, 20051, 0, key=0xC0FFEE0123456789),
            Member(3, 4, 20052, 1, workers=2, key=0xFFFFFFFFFFFFFFFF),
            Member(200, 1, 20053, 3),
        ),
        block_exp=1,
        quorum=2,
        window=4,
    ),
    LATE: Job(
        epoch=9,
        first_block_id=0xFFFFFFF9,
        slots=16,
        slot_base=16,
        members=(Member(0, 2, 20021, 1), Member(128, 3, 20022, 2, workers=3), Member(254, 1, 20023, 0)),
        block_exp=1,
        quorum=2,
        window=4,
    ),
    MULTICAST: Job(
        epoch=13,
        first_block_id=0xFFFFFFF0,
        slots=8,
        slot_base=104,
        members=(
            Member(0, 4, 20061, 0, key=0xC0FFEE0123456780, joined=True),
            Member(3, 4, 20062, 1, workers=2, key=0xFFFFFFFFFFFFFFF0, joined=True),
            Member(9, 4, 20063, 3, key=1),
            Member(254, 2, 20064, 4, key=2, joined=True),
            Member(200, 1, 20065, 5),
        ),
        block_exp=1,
        quorum=2,
        window=4,
        group=Group(51234, 0xFEDCBA9876543210),
    ),
}


@dataclass(frozen=True)
class Station:
    """A host on a port."""

    mac: int
    ip: int


def station(port: int) -> Station:
    """Host h1 on port 1 and so on."""
    return Station(0x026E73000000 + port, 0x0A000000 + port)


def neighbor(port: int) -> Station:
    """The switch that is on a port, beside the host."""
    return Station(0x026E7300F000 + port, 0x0A00F000 + port)


GROUP = Station(0x01005E010203, 0xEF010203)
"""The address of job MULTICAST's group, 239.1.2.3, and the MAC address that follows from it (RFC 1112)."""

FAR_IP = 0x0A00F100
"""A host behind the neighbors on ports 3 and 4."""


def senders() -> dict[int, set[int]]:
    """The ports through which traffic from each address comes in; other addresses may come from anywhere."""
    ends = ((each(port).ip, {port}) for port in PORTS for each in (station, neighbor))
    return {**dict(ends), FAR_IP: {3, 4}, SWITCH_IP: set()}


def items(jobs: dict[int, Job] | None = None) -> list[Item]:
    result = port_items(PORTS, station, [neighbor(port).ip for port in PORTS], senders())
    for job_id, job in (JOBS if jobs is None else jobs).items():
        result += job_items(job_id, job)
    return result


def port_items(
    ports: Sequence[int],
    station: Callable[[int], Station],
    elsewhere: Iterable[int],
    senders: Mapping[int, Collection[int]],
) -> list[Item]:
    """The entries that no job has. ``elsewhere``: addresses of other switches; ``senders``: see :func:`senders`."""
    flood = MulticastGroup(FLOOD_GROUP, frozenset((port, 0) for port in ports))
    result: list[Item] = [MyStationEntry(SWITCH_IP, SWITCH_MAC), flood, *map(TransitEntry, elsewhere)]
    result += [ForwardEntry(station(port).mac, port) for port in ports]
    return result + [SourceGuardEntry(ip, sum(1 << port for port in allowed)) for ip, allowed in senders.items()]


def job_items(
    job_id: int, job: Job, station: Callable[[int], Station] = station, neighbor: Callable[[int], Station] = neighbor
) -> list[Item]:
    """One job's entries and group."""
    replicas = frozenset((member.port, member.src_id) for member in job.members)
    onwards = frozenset({*replicas, (CPU_PORT, SCAN_REPLICA)})
    result: list[Item] = [MulticastGroup(job_id, replicas), MulticastGroup(SCAN_GROUPS + job_id, onwards)]
    for m in job.members:
        at = (neighbor if m.switch else station)(m.port)
        if m.key:
            result.append(KeyedMemberEntry(job_id, m.src_id, m.port, m.source, m.workers, m.key))
            result.append(KeyedRewriteEntry(job_id, m.src_id, m.key, m.rank, m.workers))
            continue
        result.append(MemberEntry(job_id, m.src_id, m.port, m.source, m.workers, m.udp_port))
        if m.switch:
            result.append(SwitchRewriteEntry(job_id, m.src_id, at.mac, at.ip, m.udp_port))
        else:
            result.append(RewriteEntry(job_id, m.src_id, at.mac, at.ip, m.udp_port, m.rank, m.workers))
    for stripe, up in enumerate(job.uplinks):
        at = neighbor(up.port)
        result.append(ParentEntry(job_id, up.port, up.udp_port))
        result.append(UplinkEntry(job_id, stripe, up.port, at.mac, at.ip, up.udp_port, up.src_id))
    slots = job.slot_base, job.slots - 1
    aging = job.block_exp, job.quorum, job.window
    tree = (Role.LEAF, len(job.uplinks) - 1) if job.uplinks else (Role.ROOT, 0)
    kind = JobEntry
    if job.group is not None:
        kind = MulticastJobEntry
        shared = (((m.port, SWITCH_SOURCE) if m.joined else (m.port, m.src_id)) for m in job.members)
        result.append(MulticastGroup(IP_MULTICAST_GROUPS + job_id, frozenset(shared)))
        result.append(GroupRewriteEntry(job_id, SWITCH_SOURCE, GROUP.mac, GROUP.ip, job.group.udp_port, job.group.key))
    result.append(kind(job_id, job.epoch, job.all_sources, *slots, job.first_block_id, *aging, *tree))
    return result


def scan_frame(job_id: int) -> bytes:
    """The payload of a scan's PacketOut: its results get the IPv4 fields from here."""
    body = netsum_body(Header(job_id, 0))
    own = Datagram(SWITCH_MAC, SWITCH_MAC, SWITCH_IP, SWITCH_IP, UDP_PORT, UDP_PORT, body)
    return own.but(tos=8, identification=0x1234).to_bytes()


def contribution(job_id: int, member: Member, header: Header, payload: Payload = ()) -> Datagram:
    """A member's packet; ``header`` gets the job, the source id and the key, of a switch the hop too."""
    at = (neighbor if member.switch else station)(member.port)
    hop = Hop.UP if member.switch else header.hop
    header = header._replace(job_id=job_id, src_id=member.src_id, hop=hop, key=header.key or member.key)
    return Datagram(SWITCH_MAC, at.mac, at.ip, SWITCH_IP, member.udp_port, body=netsum_body(header, payload))


def from_parent(job_id: int, up: Uplink, header: Header, payload: Payload = ()) -> Datagram:
    """A packet from a parent."""
    at = neighbor(up.port)
    header = header._replace(job_id=job_id, src_id=SWITCH_SOURCE, receiver_id=up.src_id, hop=Hop.DOWN)
    return Datagram(SWITCH_MAC, at.mac, at.ip, SWITCH_IP, up.udp_port, body=netsum_body(header, payload))
