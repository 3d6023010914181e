"""A neighbor that misbehaves: ``python -m netsum_testbed.bench.flood KIND SINK_IP SINK_MAC`` joins the environment's job as
rank 0, prints ``begun``, and sends as fast as it can, without waiting for anything.

:class:`Kind` says what it sends. SINK is the host that plain packets go to.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from typing import Final

import netsum
from netsum.descriptor import Descriptor, SwitchAddress
from netsum.endpoint_factory import open_transport
from netsum.transports.base import Packet, Transport
from netsum.wire.codec import Header, pack_header, parse_header
from netsum.wire.schema import UDP_PORT, Lane, Op, Status
from netsum_controller.config.job_spec import JobSpec

from netsum_testbed.errors import TestbedError
from netsum_testbed.fabric import Fabric

JOB: Final = "flood"
PLAIN_PORT: Final = UDP_PORT - 1
"""UDP destination port of packets that are not netsum's, which the switch does not parse."""


class Kind(StrEnum):
    """Kinds of misbehavior. Packets have 4 KiB of payload where the switch allows it."""

    DUPLICATE = "duplicate"  # one window of contributions, again and again; the job's other member is silent
    VALID = "valid"  # contributions to ever new blocks of a job with no other member: each brings a result
    WRONG = "wrong-id"  # contributions of jobs and members that do not exist: each is refused
    PLAIN = "plain"  # UDP packets to another host
    STALL = "stall"  # one window, then nothing
    SPIN = "spin"  # nothing, but computes: what a flood costs this machine apart from the network


@contextmanager
def flooding(fabric: Fabric, kind: Kind = Kind.DUPLICATE) -> Iterator[Callable[[], int]]:
    """Flood the switch from a process on the fabric's last host. The function that this yields counts the packets that have
    come into the switch from there."""
    *_, sink, host = fabric.topology.hosts
    place = fabric.topology.hosts[host]
    members = (host,) if kind is Kind.VALID else (host, host)
    job = fabric.create_job(JobSpec(name=JOB, members=members))

    def packets() -> int:
        with fabric.controller.context.client(place.switch) as client:
            return client.read_ports([place.port])[place.port][0]

    address = fabric.topology.hosts[sink]
    command = [sys.executable, "-m", "netsum_testbed.bench.flood", kind.value, address.ip, address.mac]
    flooder = fabric.spawn(host, command, name=JOB, environment=fabric.environment(job, 0), piped=True)
    try:
        if flooder.stdout.readline() != "begun\n":
            raise TestbedError(f"the flood does not begin: {flooder.last_words(1)}")
        yield packets
    finally:
        flooder.stop()
        fabric.delete_job(JOB)


def contribution(descriptor: Descriptor, offset: int, payload: bytes, **changes: int) -> Packet:
    """A contribution to the block ``offset`` behind the first; ``changes`` replace fields of the header."""
    fields = {
        "job_id": descriptor.job_id,
        "block_id": (descriptor.first_block_id + offset) % (1 << 32),
        "src_id": descriptor.src_id,
        "op": Op.SUM,
        "grad_cnt": len(payload) >> Lane.L32,
        "data_cnt": 1,
    }
    return pack_header(Header(**{**fields, **changes})), payload


def send_for_ever(transport: Transport, packets: Sequence[Packet]) -> None:
    """Send the same packets as fast as possible."""
    begun = False
    while True:
        transport.send(packets)
        if not begun:
            print("begun", flush=True)
            begun = True


def send_valid(descriptor: Descriptor, transport: Transport, payload: bytes) -> None:
    """Send each slot's block until its result comes, then the slot's next one, so that the switch accepts all that it takes."""
    slots = 2 * descriptor.window
    offsets = list(range(slots))
    packets = [contribution(descriptor, offset, payload) for offset in offsets]
    for turn in itertools.count():
        transport.send(packets)
        for result in transport.recv(0.0):
            header = parse_header(result)
            offset = (header.block_id - descriptor.first_block_id) % (1 << 32)
            slot = offset % slots
            if header.status == Status.OK and offset == offsets[slot]:
                offsets[slot] = offset + slots
                packets[slot] = contribution(descriptor, offset + slots, payload)
        if turn == 0:
            print("begun", flush=True)


def misbehave(kind: Kind, descriptor: Descriptor, transport: Transport) -> None:
    """Send until the process is ended."""
    payload = bytes(descriptor.block_bytes)
    window = range(descriptor.window)
    match kind:
        case Kind.VALID:
            send_valid(descriptor, transport, payload)
        case Kind.WRONG:
            strangers: tuple[dict[str, int], ...] = ({"job_id": 255 - descriptor.job_id}, {"src_id": 200})
            send_for_ever(transport, [contribution(descriptor, 0, payload, **each) for each in strangers * 32])
        case Kind.STALL:
            transport.send([contribution(descriptor, offset, payload) for offset in window])
            print("begun", flush=True)
            while True:
                time.sleep(60.0)
        case Kind.SPIN:
            print("begun", flush=True)
            while True:
                pass
        case Kind.DUPLICATE | Kind.PLAIN:
            send_for_ever(transport, [contribution(descriptor, offset, payload) for offset in window])


def main(kind: str, sink_ip: str, sink_mac: str) -> None:
    opened: list[Transport] = []

    def keep(descriptor: Descriptor) -> Transport:
        there = descriptor
        if kind == Kind.PLAIN:
            there = replace(descriptor, switch=SwitchAddress(sink_ip, sink_mac, PLAIN_PORT))
        opened.append(open_transport(there))
        return opened[0]

    descriptor = netsum.join(transport=keep).descriptor
    misbehave(Kind(kind), descriptor, opened[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
