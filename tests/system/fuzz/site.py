"""The site of the fuzzer: five ports, four live jobs and every entry that a controller would install.

Port 0 is an ordinary port here: recirculated packets come in through it, and an untrusted sender's packets there must not pass
for them. Numbers that could be confused differ: ranks are not source ids, a slot range ends at the last slot, ids wrap, and in
one job the switch is a leaf, whose parent is where another job has a member. Members that share a port have keys."""

from __future__ import annotations

from typing import Final

from netsum.wire.codec import Header, pack_header
from netsum.wire.schema import SWITCH_SOURCE, UDP_PORT, Hop
from netsum_controller.entries import Item

from tests.model.state import Job, Member, Uplink
from tests.protocol.frames import Datagram
from tests.protocol.star import SWITCH_IP, SWITCH_MAC, Station, job_items, port_items

PORTS: Final = (0, 1, 2, 3, 4)
PARENT: Final = Station(0x026E730000FD, 0x0A0000FD)
TRIO, PAIR, LATE, LEAF = 3, 200, 77, 90
JOBS: Final = {
    TRIO: Job(7, 0xFFFFFFFC, 8, 0, (Member(0, 1, 20001, 2), Member(5, 2, 20002, 0), Member(254, 3, 20003, 1)), window=4),
    PAIR: Job(
        8, 64, 8, 8184, (Member(1, 4, 20011, 0, key=0xC0FFEE), Member(2, 4, 20012, 1, key=(1 << 64) - 1)), window=4
    ),
    LATE: Job(
        9, 1 << 20, 8, 64, (Member(0, 1, 20021, 0), Member(1, 2, 20022, 1), Member(2, 0, 20023, 2)), 2000, 2, window=4
    ),
    LEAF: Job(
        10, 1 << 24, 8, 128, (Member(0, 1, 20031, 0), Member(1, 2, 20032, 1)), window=4, uplinks=(Uplink(3, 20033, 0),)
    ),
}  # fmt: skip
PARENTS: Final = {(job_id, SWITCH_SOURCE, up.port) for job_id, job in JOBS.items() for up in job.uplinks}
"""Keys of the entries that let a parent in."""
SLOTS: Final = tuple(job.slot_base + offset for job in JOBS.values() for offset in range(job.slots))
"""Every slot of every job."""


def station(port: int) -> Station:
    """The host on a port."""
    return Station(0x026E73000010 + port, 0x0A000010 + port)


def senders() -> dict[int, tuple[int, ...]]:
    """The ports through which traffic from each address comes in; other addresses may come from anywhere."""
    parents = tuple(port for _, _, port in PARENTS)
    return {**{station(port).ip: (port,) for port in PORTS}, PARENT.ip: parents, SWITCH_IP: ()}


def items() -> list[Item]:
    """Everything to install."""
    result = port_items(PORTS, station, [PARENT.ip], senders())
    for job_id, job in JOBS.items():
        result += job_items(job_id, job, station, lambda _: PARENT)
    return result


def frame(member: Member, header: Header, payload: bytes = b"") -> bytes:
    """A contribution as its member sends it: a whole, correct frame."""
    at, body = station(member.port), pack_header(header._replace(src_id=member.src_id, key=member.key)) + payload
    return Datagram(SWITCH_MAC, at.mac, at.ip, SWITCH_IP, member.udp_port, body=body).to_bytes()


def parent_frame(up: Uplink, header: Header, payload: bytes = b"") -> bytes:
    """Make a frame that a parent sends down."""
    body = pack_header(header._replace(src_id=SWITCH_SOURCE, receiver_id=up.src_id, hop=Hop.DOWN)) + payload
    return Datagram(SWITCH_MAC, PARENT.mac, PARENT.ip, SWITCH_IP, up.udp_port, body=body).to_bytes()


def result_frame(member: Member, header: Header, payload: bytes = b"") -> bytes:
    """Make a frame that the switch sends to a member."""
    at, body = station(member.port), pack_header(header) + payload
    return Datagram(at.mac, SWITCH_MAC, SWITCH_IP, at.ip, UDP_PORT, member.udp_port, body).to_bytes()
