# SPDX-License-Identifier: MIT
"""The model of the switch as a network in memory: members' packets in, results out, in one process and without a frame."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from netsum.communicator import Communicator
from netsum.descriptor import Descriptor, HostAddress, SwitchAddress
from netsum.transports import InMemoryTransport, Transport, base
from netsum.wire.codec import pack_header, parse_header
from netsum.wire.schema import CHUNK_BYTES, HEADER_BYTES

from tests.model.rules import Job, Member, Packet, Payload, Reply, SwitchModel

JOB_ID = 3
FIRST_UDP_PORT = 20000


def descriptor(rank: int, workers: int, **changes: Any) -> Descriptor:
    """A member's descriptor; ``changes`` replace fields."""
    fields: dict[str, Any] = {
        "job": "test",
        "job_id": JOB_ID,
        "epoch": 7,
        "rank": rank,
        "src_id": rank,
        "workers": workers,
        "window": 8,
        "first_block_id": 4096,
        "block_bytes": 1024,
        "mtu": 9000,
        "switch": SwitchAddress("10.0.0.254", "02:6e:73:00:00:fe"),
        "host": HostAddress(f"10.0.0.{rank + 1}", f"02:6e:73:00:00:{rank + 1:02x}", FIRST_UDP_PORT + rank),
    }
    return Descriptor(**{**fields, **changes})


def key_of(rank: int, epoch: int) -> str:
    """The key of a member that has one."""
    return f"{epoch:08x}{rank + 1:08x}"


def job(first: Descriptor) -> Job:
    """The items that the controller would install for the job of this descriptor."""
    slots = 1 << (2 * first.window - 1).bit_length()
    keys = [int(key_of(rank, first.epoch), 16) if first.key else 0 for rank in range(first.workers)]
    members = tuple(Member(rank, rank + 1, FIRST_UDP_PORT + rank, rank, key=key) for rank, key in enumerate(keys))
    return Job(first.epoch, first.first_block_id, slots, 0, members)


def chunks(payload: bytes) -> Payload:
    """A payload's chunks as the model has them."""
    return tuple(int.from_bytes(payload[start : start + CHUNK_BYTES], "big") for start in range(0, len(payload), CHUNK_BYTES))


def contribution(data: bytes, rank: int, port: int | None = None) -> Packet:
    """A member's packet as the model takes it, by default from the member's first UDP port."""
    port = FIRST_UDP_PORT + rank if port is None else port
    return Packet(rank + 1, port, parse_header(data), chunks(data[HEADER_BYTES:]))


def reply_bytes(reply: Reply) -> bytes:
    return pack_header(reply.header) + b"".join(chunk.to_bytes(CHUNK_BYTES, "big") for chunk in reply.payload)


class Around:
    """A transport around another one; subclasses change what it does."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner

    def send(self, packets: Sequence[base.Packet]) -> None:
        self.inner.send(packets)

    def recv(self, timeout: float | None) -> Sequence[memoryview]:
        return self.inner.recv(timeout)

    def fileno(self) -> int | None:
        return self.inner.fileno()

    def close(self) -> None:
        self.inner.close()


class Network:
    """A job in memory: the descriptor and the transport of each of its ranks."""

    descriptors: list[Descriptor]
    transports: list[InMemoryTransport]

    def communicators(self, wrap: Callable[[Transport, int], Transport] | None = None, **options: Any) -> list[Communicator]:
        """One for each rank; ``wrap(transport, rank)`` is put around their transports."""
        return [
            Communicator(each, wrap(transport, rank) if wrap else transport, **options)
            for rank, (each, transport) in enumerate(zip(self.descriptors, self.transports, strict=True))
        ]


class MemoryNetwork(Network):
    """A switch with one job and a memory transport for each of its members. Thread-safe."""

    def __init__(self, workers: int, **changes: Any) -> None:
        self.descriptors = [descriptor(rank, workers, **changes) for rank in range(workers)]
        self.switch = SwitchModel({JOB_ID: job(self.descriptors[0])})
        self.transports = [InMemoryTransport(self._deliver(rank)) for rank in range(workers)]
        self.lock = threading.Lock()

    def _deliver(self, rank: int) -> Callable[[bytes], None]:
        def deliver(data: bytes) -> None:
            with self.lock:
                for reply in self.switch.step(contribution(data, rank)).replies:
                    self.transports[reply.port - 1].put(reply_bytes(reply))

        return deliver

    def evict(self, rank: int) -> None:
        """As the controller does it: in place, and with a scan. The caller holds :attr:`lock`."""
        job = self.switch.jobs[JOB_ID]
        members = tuple(member for member in job.members if member.src_id != rank)
        self.switch.jobs[JOB_ID] = job._replace(members=members)
        for reply in self.switch.scan(JOB_ID, old=False).replies:
            self.transports[reply.port - 1].put(reply_bytes(reply))
