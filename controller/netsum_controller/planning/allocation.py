# SPDX-License-Identifier: MIT
"""Allocates job ids, slots, UDP ports and block ids: pure functions of what is already taken."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from netsum.wire.schema import SLOTS, UDP_PORT

from netsum_controller.state.model import ROOM, SERIAL, IdRange

# Addresses as the ints that tables hold.


def mac_to_int(mac: str) -> int:
    """``02:6e:73:00:00:01`` as a 48-bit int."""
    return int(mac.replace(":", ""), 16)


def ip_to_int(ip: str) -> int:
    """``10.0.0.1`` as a 32-bit int."""
    return int(ipaddress.IPv4Address(ip))


JOB_IDS = range(1, 256)
"""Eight bits; 0 is never used."""

UDP_PORTS = range(13000, 32768)
"""Ports for members: never 12000, and below Linux's ephemeral ports, which go to other programs."""


def allocate_job_id(used: AbstractSet[int], last: int) -> int | None:
    """A free id, round robin after ``last``, so that an id is unused as long as possible before it is used again."""
    free = [job_id for job_id in JOB_IDS if job_id not in used]
    return next((job_id for job_id in free if job_id > last), free[0] if free else None)


def allocate_slots(used: Iterable[tuple[int, int]], slots: int) -> int | None:
    """Base of ``slots`` free slots (a power of two), aligned to their number. First fit keeps whole buddies free while jobs
    come and go. ``used`` has (base, slots) of the others."""
    taken = sorted(used)
    # The lowest fit is at 0, or follows the end of another job's slots.
    for base in sorted([0, *(-(-(base + size) // slots) * slots for base, size in taken)]):
        if base + slots <= SLOTS and all(base + slots <= other or other + size <= base for other, size in taken):
            return base
    return None


def allocate_ports(cursor: int, hosts: Sequence[str], used: AbstractSet[tuple[str, int]]) -> tuple[list[int], int] | None:
    """A UDP port for each of ``hosts`` (one for each rank; a host may occur several times), round robin from ``cursor``, and the
    next cursor. The ports differ from each other and from those in ``used``, pairs of (host, port)."""
    ports: list[int] = []
    position = cursor % len(UDP_PORTS)
    for _ in range(len(UDP_PORTS)):
        if len(ports) == len(hosts):
            return ports, position
        port = UDP_PORTS[position]
        position = (position + 1) % len(UDP_PORTS)
        if port != UDP_PORT and (hosts[len(ports)], port) not in used:
            ports.append(port)
    return (ports, position) if len(ports) == len(hosts) else None


def scattered(number: int) -> int:
    """A first block id derived from an epoch's number, far from those of neighboring numbers."""
    return number * 0x9E3779B1 % SERIAL // SLOTS * SLOTS


def allocate_first_block_id(earlier: Sequence[IdRange], start: int = 0) -> int:
    """First block id of a new epoch: a multiple of the switch's slots, followed by ``ROOM`` ids outside every earlier range
    (``earlier``, oldest first); ``start`` if it is free. If no ids are left, the oldest ranges are forgotten, because their
    packets are long gone."""
    for forgotten in range(len(earlier)):
        ranges = earlier[forgotten:]
        # Otherwise continue after the latest range, or else after any other.
        candidates = [*([IdRange(start, 0)] if start else []), ranges[-1], *ranges]
        for after in candidates:
            first = -(-(after.first + after.size) // SLOTS) * SLOTS % SERIAL
            if not any(IdRange(first, ROOM).overlaps(other) for other in ranges):
                return first
    return start
