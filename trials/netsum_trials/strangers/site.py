"""Where the fuzzer sends its packets: five ports, four live jobs and every entry that a controller would install.

Port 0 is a port like the others here: a recirculated packet comes in through it, and what a stranger sends there must not
pass for one. What could be confused differs: ranks are not source ids, a slot range ends at the last slot, ids wrap, and of
one job the switch is a leaf, whose parent is where another job has a member.
"""

from __future__ import annotations

import ipaddress
from functools import cache
from typing import Final, NamedTuple

from netsum.frames import FrameFormat
from netsum.wire.codec import Header, pack_header
from netsum.wire.schema import CPU_PORT, FLOOD_GROUP, SWEEP_GROUPS, SWEEP_REPLICA, UDP_PORT, Hop, Role
from netsum_controller.stages import (
    AggregatorEntry,
    ElsewhereEntry,
    ForwardEntry,
    Item,
    JobEntry,
    MemberEntry,
    MulticastGroup,
    ParentEntry,
    RewriteEntry,
    SenderEntry,
    UplinkEntry,
)

PORTS: Final = (0, 1, 2, 3, 4)
SWITCH_MAC: Final = 0x026E730000FE
SWITCH_IP: Final = 0x0A0000FE
PARENT_MAC: Final = 0x026E730000FD
PARENT_IP: Final = 0x0A0000FD


class Member(NamedTuple):
    """A member: where it is, its UDP source port in this epoch, the rank behind it."""

    src_id: int
    port: int
    udp_port: int
    rank: int

    @property
    def source(self) -> int:
        """Its bit."""
        return 1 << self.src_id


class Job(NamedTuple):
    """A job as installed; ``block_exp`` in microseconds, 0 for wait mode. A member stands for one worker; half of the slots
    are the window. ``parent``: of which the switch is a leaf in this job; its ``src_id`` and UDP port there."""

    job_id: int
    epoch: int
    first_block_id: int
    slots: int
    slot_base: int
    members: tuple[Member, ...]
    block_exp: int = 0
    quorum: int = 0
    parent: Member | None = None

    @property
    def all_sources(self) -> int:
        """Every member's bit."""
        return sum(member.source for member in self.members)

    def slot_of(self, block_id: int) -> int:
        """Index of the block's slot."""
        return self.slot_base + (block_id & (self.slots - 1))

    def block(self, offset: int) -> int:
        """Id of the epoch's block number ``offset``."""
        return (self.first_block_id + offset) & 0xFFFFFFFF


TRIO: Final = Job(
    3, 7, 0xFFFFFFFC, 8, 0, (Member(0, 1, 20001, 2), Member(5, 2, 20002, 0), Member(254, 3, 20003, 1))
)  # fmt: skip
PAIR: Final = Job(200, 8, 64, 8, 8184, (Member(1, 4, 20011, 0), Member(2, 4, 20012, 1)))
LATE: Final = Job(
    77, 9, 1 << 20, 8, 64, (Member(0, 1, 20021, 0), Member(1, 2, 20022, 1), Member(2, 0, 20023, 2)), 2000, 2
)  # fmt: skip
LEAF: Final = Job(
    90, 10, 1 << 24, 8, 128, (Member(0, 1, 20031, 0), Member(1, 2, 20032, 1)), parent=Member(0, 3, 20033, 0)
)
JOBS: Final = {job.job_id: job for job in (TRIO, PAIR, LATE, LEAF)}
PARENTS: Final = {(job.job_id, job.parent.src_id, job.parent.port) for job in JOBS.values() if job.parent}
"""Keys of the entries that let a parent in."""
SLOTS: Final = tuple(job.slot_base + offset for job in JOBS.values() for offset in range(job.slots))
"""Every slot of every job."""


def station_mac(port: int) -> int:
    """MAC address of the host on a port."""
    return 0x026E73000010 + port


def station_ip(port: int) -> int:
    """IPv4 address of the host on a port."""
    return 0x0A000010 + port


def senders() -> dict[int, tuple[int, ...]]:
    """The ports that traffic with each address comes in through; what is from another address may come from anywhere."""
    parents = tuple(job.parent.port for job in JOBS.values() if job.parent)
    return {**{station_ip(port): (port,) for port in PORTS}, PARENT_IP: parents, SWITCH_IP: ()}


def items() -> list[Item]:
    """Everything to install."""
    flood = MulticastGroup(FLOOD_GROUP, frozenset((port, 0) for port in PORTS))
    result: list[Item] = [AggregatorEntry(SWITCH_IP, SWITCH_MAC), ElsewhereEntry(PARENT_IP), flood]
    result += [ForwardEntry(station_mac(port), port) for port in PORTS]
    result += [SenderEntry(address, sum(1 << port for port in ports)) for address, ports in senders().items()]
    for job in JOBS.values():
        replicas = frozenset((member.port, member.src_id) for member in job.members)
        result.append(MulticastGroup(job.job_id, replicas))
        result.append(MulticastGroup(SWEEP_GROUPS + job.job_id, replicas | {(CPU_PORT, SWEEP_REPLICA)}))
        for m in job.members:
            result.append(MemberEntry(job.job_id, m.src_id, m.port, m.source, 1, m.udp_port))
            result.append(
                RewriteEntry(job.job_id, m.src_id, station_mac(m.port), station_ip(m.port), m.udp_port, m.rank)
            )
        result.append(
            JobEntry(
                job.job_id, job.epoch, job.all_sources, job.slot_base, job.slots - 1, job.first_block_id, job.block_exp,
                job.quorum, job.slots // 2, Role.LEAF if job.parent else Role.ROOT,
            )
        )  # fmt: skip
        if up := job.parent:
            result.append(ParentEntry(job.job_id, up.src_id, up.port, up.udp_port))
            result.append(UplinkEntry(job.job_id, 0, up.port, PARENT_MAC, PARENT_IP, up.udp_port, up.src_id))
    return result


def _mac_text(mac: int) -> str:
    return mac.to_bytes(6, "big").hex(":")


@cache
def _formats(member: Member) -> tuple[FrameFormat, FrameFormat]:
    """Frames from the member to the switch, and back."""
    here = _mac_text(station_mac(member.port)), str(ipaddress.IPv4Address(station_ip(member.port))), member.udp_port
    there = _mac_text(SWITCH_MAC), str(ipaddress.IPv4Address(SWITCH_IP)), UDP_PORT
    return FrameFormat(here, there), FrameFormat(there, here)


def frame(member: Member, header: Header, payload: bytes = b"") -> bytes:
    """A contribution as its member sends it: whole frame, everything right."""
    body = pack_header(header._replace(src_id=member.src_id)) + payload
    return _formats(member)[0].prefix(len(body)) + body


def parent_frame(job: Job, header: Header, payload: bytes = b"") -> bytes:
    """What the parent of a job's switch sends down to it."""
    assert job.parent is not None
    parent = _mac_text(PARENT_MAC), str(ipaddress.IPv4Address(PARENT_IP)), job.parent.udp_port
    here = _mac_text(SWITCH_MAC), str(ipaddress.IPv4Address(SWITCH_IP)), UDP_PORT
    body = pack_header(header._replace(src_id=job.parent.src_id, hop=Hop.DOWN)) + payload
    return FrameFormat(parent, here).prefix(len(body)) + body


def result_frame(member: Member, header: Header, payload: bytes = b"") -> bytes:
    """What the switch sends to a member."""
    body = pack_header(header) + payload
    return _formats(member)[1].prefix(len(body)) + body
