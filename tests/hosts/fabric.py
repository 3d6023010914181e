"""Ranks without a network: real windows, engines and communicators over the memory transport, around the model's switch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from netsum.communicator import Communicator
from netsum.descriptor import Descriptor, HostAddress, SwitchAddress
from netsum.transports.base import Transport
from netsum.transports.memory import MemoryTransport
from netsum.wire.codec import pack_header, parse_header
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES

from tests.model.rules import Job, Member, Packet, Reply, SwitchModel

JOB_ID = 7
FIRST_UDP_PORT = 20000


def descriptor(rank: int = 0, workers: int = 2, **changes: Any) -> Descriptor:
    """A member's descriptor; small blocks, a small window, unless ``changes`` says otherwise."""
    facts: dict[str, Any] = {
        "job": "memory",
        "job_id": JOB_ID,
        "epoch": 1,
        "rank": rank,
        "src_id": rank,
        "workers": workers,
        "window": 4,
        "first_block_id": 4096,
        "block_bytes": 2 * CHUNK_BYTES,
        "mtu": 1500,
        "switch": SwitchAddress("10.0.0.254", "02:00:00:00:00:fe"),
        "host": HostAddress(f"10.0.0.{rank % 250 + 1}", "02:00:00:00:00:01", FIRST_UDP_PORT + rank),
    }
    return Descriptor(**(facts | changes))


def to_model(port: int, udp_port: int, data: bytes) -> Packet:
    """A packet as the model takes it."""
    chunks = [data[at : at + CHUNK_BYTES] for at in range(HEADER_BYTES, len(data), CHUNK_BYTES)]
    return Packet(port, udp_port, parse_header(data), tuple(int.from_bytes(chunk, "big") for chunk in chunks))


def to_bytes(reply: Reply) -> bytes:
    """A packet of the model as it travels."""
    return pack_header(reply.header) + b"".join(chunk.to_bytes(CHUNK_BYTES, "big") for chunk in reply.payload)


@dataclass
class Switch:
    """The model's switch with one job, members at the ports 1, 2, …, each at the end of a memory transport."""

    descriptors: list[Descriptor]
    seen: list[Packet] = field(default_factory=list)

    def __post_init__(self) -> None:
        one = self.descriptors[0]
        slots = 1 << (2 * one.window - 1).bit_length()
        members = tuple(Member(each.src_id, each.rank + 1, each.host.udp_port, each.rank) for each in self.descriptors)
        self.model = SwitchModel({JOB_ID: Job(one.epoch, one.first_block_id, slots, 0, members)})
        self.lock = threading.Lock()
        self.ends = [self._end(each) for each in self.descriptors]

    def _end(self, member: Descriptor) -> MemoryTransport:
        return MemoryTransport(lambda data: self.take(to_model(member.rank + 1, member.host.udp_port, data)))

    def take(self, packet: Packet) -> None:
        """One packet, whole, at a time; what leaves lies in the inboxes before the next comes."""
        with self.lock:
            self.seen.append(packet)
            for reply in self.model.step(packet).replies:
                self.ends[reply.port - 1].put(to_bytes(reply))

    def new_epoch(self) -> None:
        """A rank has joined again: other ports, other ids; who does not know is refused."""
        with self.lock:
            job = self.model.jobs[JOB_ID]
            members = tuple(member._replace(udp_port=member.udp_port + 1000) for member in job.members)
            self.model.jobs[JOB_ID] = job._replace(
                epoch=job.epoch + 1, first_block_id=job.first_block_id + 8192, members=members
            )


@contextmanager
def ranks(
    workers: int,
    wrap: Callable[[Transport, int], Transport] = lambda transport, _: transport,
    options: dict[str, Any] | None = None,
    **changes: Any,
) -> Iterator[tuple[list[Communicator], Switch]]:
    """Communicators of one job, and their switch. ``options`` go to the communicators, ``changes`` to the descriptors."""
    switch = Switch([descriptor(rank, workers, **changes) for rank in range(workers)])
    communicators = [
        Communicator(each, wrap(end, each.rank), **({"timeout": 60.0} | (options or {})))
        for each, end in zip(switch.descriptors, switch.ends, strict=True)
    ]
    try:
        yield communicators, switch
    finally:
        for comm in communicators:
            comm.close()


def on_all(communicators: Sequence[Communicator], call: Callable[[Communicator], Any]) -> list[Any]:
    """``call(comm)`` on a thread a rank; what each returned or raised, by rank."""
    got: list[Any] = [None] * len(communicators)

    def run(at: int) -> None:
        try:
            got[at] = call(communicators[at])
        except Exception as error:
            got[at] = error

    threads = [threading.Thread(target=run, args=(at,), daemon=True) for at in range(len(communicators))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120.0)
        assert not thread.is_alive(), "a rank hangs"
    return got


def kinds(got: Sequence[Any]) -> list[type]:
    """The types of results and errors."""
    return [type(each) for each in got]
