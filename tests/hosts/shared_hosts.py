# SPDX-License-Identifier: MIT
"""The model of the switch in memory, as in ``network.py`` and ``restarts.py``, and hosts with several ranks, which share
memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from netsum import Descriptor
from netsum.transports import InMemoryTransport, Transport

from tests.hosts.network import (
    FIRST_UDP_PORT,
    JOB_ID,
    MemoryNetwork,
    contribution,
    descriptor,
    job,
    reply_bytes,
)
from tests.hosts.restarts import RestartingNetwork
from tests.model.rules import Job, Member, Reply, SwitchModel


class Hosts:
    """The hosts of a job's ranks; a host is a source of the job, by its number."""

    def __init__(self, sizes: Sequence[int]) -> None:
        """``sizes`` are the hosts' numbers of ranks."""
        self.of = [host for host, size in enumerate(sizes) for _ in range(size)]
        self.ranks = [tuple(rank for rank, its in enumerate(self.of) if its == host) for host in range(len(sizes))]
        self.key = os.urandom(16).hex()

    @classmethod
    def pairs(cls, workers: int) -> Hosts:
        """Two ranks on each host, and one on the last if the number is odd."""
        return cls([2] * (workers // 2) + [1] * (workers % 2))

    def leader(self, host: int) -> int:
        return self.ranks[host][0]

    def shared(self, own: Descriptor) -> Descriptor:
        """The descriptor of a rank that has a source of its own, with its host's."""
        host = self.of[own.rank]
        port = own.host.udp_port - own.rank + host
        address = replace(own.host, udp_port=port)
        return replace(own, src_id=host, host=address, local_ranks=self.ranks[host], peer_key=self.key)

    def of_job(self, job: Job) -> Job:
        """The items of a job whose members are the hosts."""
        ranks = [member.udp_port for member in job.members]
        first = min(ranks) - min(member.rank for member in job.members)
        members = tuple(Member(host, host + 1, first + host, mine[0], len(mine)) for host, mine in enumerate(self.ranks))
        return job._replace(members=members)


def local_descriptor(rank: int, workers: int, **changes: Any) -> Descriptor:
    """The descriptor of a rank all of whose others are on its host."""
    return Hosts([workers]).shared(descriptor(rank, workers, **changes))


class HostNetwork(MemoryNetwork):
    """A switch with one job, some of whose hosts have several ranks. Only their leaders have a link."""

    def __init__(self, workers: int, sizes: Sequence[int] = (), **changes: Any) -> None:
        """By default, hosts have two ranks."""
        self.hosts = Hosts(sizes) if sizes else Hosts.pairs(workers)
        self.descriptors = [self.hosts.shared(descriptor(rank, workers, **changes)) for rank in range(workers)]
        self.switch = SwitchModel({JOB_ID: self.hosts.of_job(job(descriptor(0, workers, **changes)))})
        self.transports = [InMemoryTransport(self._deliver_from(self.hosts.of[rank])) for rank in range(workers)]
        self.lock = threading.Lock()

    def _deliver_from(self, host: int) -> Any:
        def deliver(data: bytes) -> None:
            with self.lock:
                for reply in self.switch.step(contribution(data, host, FIRST_UDP_PORT + host)).replies:
                    self.transports[self.hosts.leader(reply.port - 1)].put(reply_bytes(reply))

        return deliver


class RestartingHosts(RestartingNetwork):
    """A switch that restarts, and hosts with two ranks."""

    def __init__(self, workers: int, window: int = 8) -> None:
        self.hosts = Hosts.pairs(workers)
        super().__init__(workers, window)

    def _install(self) -> None:
        super()._install()
        self.switch.jobs[JOB_ID] = self.hosts.of_job(self.switch.jobs[JOB_ID])

    def _pass_on(self, replies: Iterable[Reply]) -> None:
        super()._pass_on(reply._replace(port=self.hosts.leader(reply.port - 1) + 1) for reply in replies)

    def open(self, member: Descriptor) -> Transport:
        host, port = member.src_id, member.host.udp_port

        def deliver(data: bytes) -> None:
            with self.lock:
                self._pass_on(self._data_plane(member).step(contribution(data, host, port)).replies)

        made = InMemoryTransport(deliver)
        with self.lock:
            self.inboxes[member.rank] = port, made
        return made

    def describe(self, rank: int, resumes: int | None = None) -> Descriptor:
        return self.hosts.shared(super().describe(rank, resumes))
