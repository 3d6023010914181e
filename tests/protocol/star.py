"""The star on which the scenarios run: four ports, two jobs, and every entry that a controller would install for them.

Ranks are not source ids, two members share a port, a slot range does not begin at 0: what could be confused, differs.
"""

from __future__ import annotations

from dataclasses import dataclass

from netsum.wire.codec import Header
from netsum.wire.schema import CPU_PORT, FLOOD_GROUP, SWEEP_GROUPS, SWEEP_REPLICA, UDP_PORT
from netsum_controller.stages import (
    AggregatorEntry,
    ForwardEntry,
    Item,
    JobEntry,
    MemberEntry,
    MulticastGroup,
    RewriteEntry,
)

from tests.model.rules import Job, Member, Payload
from tests.protocol.frames import Datagram, netsum_body

PORTS = (1, 2, 3, 4)
SWITCH_MAC, SWITCH_IP = 0x026E730000FE, 0x0A0000FE
TRIO, PAIR, LATE = 3, 200, 255
"""The jobs: TRIO's three members are on ports 1 to 3, both members of PAIR on port 4. The blocks of LATE age out as soon as
two workers are in; one of its members stands for three."""

JOBS = {
    TRIO: Job(
        epoch=7,
        first_block_id=0xFFFFFFFC,
        slots=4,
        slot_base=0,
        members=(Member(0, 1, 20001, 2), Member(5, 2, 20002, 0), Member(254, 3, 20003, 1)),
    ),
    PAIR: Job(
        epoch=8, first_block_id=64, slots=8, slot_base=8184, members=(Member(1, 4, 20011, 0), Member(2, 4, 20012, 1))
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
}


@dataclass(frozen=True)
class Station:
    """A host on a port."""

    mac: int
    ip: int


def station(port: int) -> Station:
    """Host h1 on port 1 and so on."""
    return Station(0x026E73000000 + port, 0x0A000000 + port)


def items(jobs: dict[int, Job] | None = None) -> list[Item]:
    """Everything to install."""
    flood = MulticastGroup(FLOOD_GROUP, frozenset((port, 0) for port in PORTS))
    result: list[Item] = [AggregatorEntry(SWITCH_IP, SWITCH_MAC), flood]
    result += [ForwardEntry(station(port).mac, port) for port in PORTS]
    for job_id, job in (JOBS if jobs is None else jobs).items():
        result += job_items(job_id, job)
    return result


def job_items(job_id: int, job: Job) -> list[Item]:
    """One job's entries and group."""
    replicas = frozenset((member.port, member.src_id) for member in job.members)
    onwards = frozenset({*replicas, (CPU_PORT, SWEEP_REPLICA)})
    result: list[Item] = [MulticastGroup(job_id, replicas), MulticastGroup(SWEEP_GROUPS + job_id, onwards)]
    for m in job.members:
        at = station(m.port)
        result.append(MemberEntry(job_id, m.src_id, m.port, m.source, m.workers, m.udp_port))
        result.append(RewriteEntry(job_id, m.src_id, at.mac, at.ip, m.udp_port, m.rank))
    slots = job.slot_base, job.slots - 1
    ageing = job.block_exp, job.quorum, job.window
    result.append(JobEntry(job_id, job.epoch, job.all_sources, *slots, job.first_block_id, *ageing))
    return result


def sweep_frame(job_id: int) -> bytes:
    """The payload of a sweep's PacketOut: its results get the IPv4 fields from here."""
    body = netsum_body(Header(job_id, 0))
    own = Datagram(SWITCH_MAC, SWITCH_MAC, SWITCH_IP, SWITCH_IP, UDP_PORT, UDP_PORT, body)
    return own.but(tos=8, identification=0x1234).to_bytes()


def contribution(job_id: int, member: Member, header: Header, payload: Payload = ()) -> Datagram:
    """A member's packet; ``header`` gets the job and the source id."""
    at = station(member.port)
    header = header._replace(job_id=job_id, src_id=member.src_id)
    return Datagram(SWITCH_MAC, at.mac, at.ip, SWITCH_IP, member.udp_port, body=netsum_body(header, payload))
