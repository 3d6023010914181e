# SPDX-License-Identifier: MIT
"""The model of the switch, restarted, and a controller in memory that brings its job back: what members see of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from netsum import Communicator, Descriptor, DesynchronizedError, EvictedError, NotReadyError
from netsum.core.recovery import RejoinReport, Stopped
from netsum.transports import InMemoryTransport, Transport
from netsum.wire.codec import Header

from tests.hosts.network import JOB_ID, contribution, descriptor, job, reply_bytes
from tests.model.rules import Reply, SwitchModel


class RestartingNetwork:
    """One job, by the rules of ``netsum_controller.jobs`` (rejoin, membership): an epoch that resumes begins when all have told
    what they lack; a rank that joins anew begins another."""

    def __init__(self, workers: int, window: int = 8, quorum: int = 0) -> None:
        """With a ``quorum`` the job degrades: blocks age out at every :meth:`age`."""
        self.workers = workers
        self.lock = threading.RLock()
        self._first = descriptor(0, workers, window=window, block_exp_ms=50.0 if quorum else 0.0, quorum=quorum)
        self.epoch = self._first.epoch
        self.first_block_id = self._first.first_block_id
        self.switch = SwitchModel({})
        self.resumes: int | None = None
        self.needs: dict[int, int] = {}
        self.joined: set[int] = set()
        self.evicted: set[int] = set()
        self.away = False
        self.lost: Callable[[int, Header], bool] = lambda _rank, _header: False
        """Whether what the switch says is lost on the way to a rank."""
        self.asked = 0
        self.inboxes: dict[int, tuple[int, InMemoryTransport]] = {}
        self._install()

    # The switch

    def _port(self, rank: int) -> int:
        return 20000 + 100 * (self.epoch % 200) + rank

    def _install(self) -> None:
        whole = job(replace(self._first, epoch=self.epoch, first_block_id=self.first_block_id))
        members = tuple(each._replace(udp_port=self._port(each.rank)) for each in whole.members)
        if self._first.quorum:
            whole = whole._replace(block_exp=50_000, quorum=self._first.quorum, window=self._first.window)
        self.switch.jobs[JOB_ID] = whole._replace(members=members)

    def age(self) -> None:
        """Scan as if every open block were old; does nothing before all have joined."""
        with self.lock:
            if len(self.joined) == self.workers:
                self._pass_on(self.switch.scan(JOB_ID, old=True).replies)

    def _pass_on(self, replies: Iterable[Reply]) -> None:
        for reply in replies:
            there, inbox = self.inboxes[reply.port - 1]
            if there == reply.udp_port and not self.lost(reply.port - 1, reply.header):
                inbox.put(reply_bytes(reply))

    def restart(self) -> None:
        """The switch forgets everything; nothing of the job is accepted until all have told what they lack."""
        with self.lock:
            self.switch.restart()
            self.resumes, self.needs = self.epoch, {}
            self.epoch += 1

    def open(self, member: Descriptor) -> Transport:
        """A member's transport in its epoch."""
        rank, port = member.rank, member.host.udp_port

        def deliver(data: bytes) -> None:
            with self.lock:
                self._pass_on(self._data_plane(member).step(contribution(data, rank, port)).replies)

        made = InMemoryTransport(deliver)
        with self.lock:
            self.inboxes[rank] = port, made
        return made

    def _data_plane(self, member: Descriptor) -> SwitchModel:  # noqa: ARG002 - there is one
        return self.switch

    # The controller

    def describe(self, rank: int, resumes: int | None = None) -> Descriptor:
        own = descriptor(rank, self.workers)
        return replace(
            self._first,
            rank=rank,
            src_id=rank,
            epoch=self.epoch,
            first_block_id=self.first_block_id,
            host=replace(own.host, udp_port=self._port(rank)),
            resumes=resumes,
        )

    def rejoin(self, rank: int, epoch: int, report: RejoinReport) -> Descriptor:
        with self.lock:
            self.asked += 1
            self._answering(rank)
            if epoch == self.epoch:
                return self.describe(rank)
            if epoch != self.resumes:
                raise DesynchronizedError(f"epoch {self.epoch} has begun")
            if JOB_ID not in self.switch.jobs:
                if isinstance(report, Stopped) and report.next_epoch == self.epoch:
                    self.needs[rank] = report.needs
                if missing := sorted(set(range(self.workers)) - set(self.needs)):
                    error = NotReadyError(f"ranks {missing} must still rejoin")
                    error.retry, error.next_epoch = 0.02, self.epoch
                    raise error
                self.first_block_id = min(self.needs.values())
                self._install()
            return self.describe(rank, self.resumes)

    def join_anew(self, rank: int) -> Descriptor:
        with self.lock:
            self._answering(rank)
            if rank in self.joined:
                self.epoch += 1
                self.first_block_id += 10_000
                self.resumes, self.joined = None, set()
                self._install()
            self.joined.add(rank)
            return self.describe(rank)

    def _answering(self, rank: int) -> None:
        if self.away:
            raise NotReadyError("the controller does not answer")
        if rank in self.evicted:
            raise EvictedError(f"rank {rank} is evicted")

    def communicators(self) -> list[Communicator]:
        return [self.communicator(rank) for rank in range(self.workers)]

    def communicator(self, rank: int) -> Communicator:
        first = self.join_anew(rank)
        return Communicator(first, self.open(first), timeout=60.0, membership=MemoryMembership(self, rank))


class MemoryMembership:
    """A rank at the controller in memory."""

    def __init__(self, network: RestartingNetwork, rank: int) -> None:
        self._network, self._rank = network, rank
        self.open_transport: Callable[[Descriptor], Transport] = network.open

    def rejoin(self, epoch: int, report: RejoinReport) -> Descriptor:
        return self._network.rejoin(self._rank, epoch, report)

    def join_anew(self, deadline: float) -> Descriptor:  # noqa: ARG002 - it answers at once
        return self._network.join_anew(self._rank)

    def group(self, epoch: int, label: str, ranks: Sequence[int], deadline: float, algorithm: str | None = None) -> Communicator:
        raise NotImplementedError("this controller makes no groups")

    def p2p_socket(self, purpose: str) -> None:
        """Not needed: the members are in one process."""
