# SPDX-License-Identifier: MIT
"""A job that moves from its switch to its members and back, in memory."""

from __future__ import annotations

from dataclasses import replace

from netsum.descriptor import Descriptor
from netsum.transports import InMemoryTransport, Transport

from tests.hosts.network import JOB_ID, descriptor, job
from tests.hosts.peers import memory_peers, peer_descriptor
from tests.hosts.restarts import RestartingNetwork
from tests.hosts.shared_hosts import RestartingHosts
from tests.model.rules import SwitchModel


class MovingNetwork(RestartingNetwork):
    """Like the network that restarts, but a dead switch says nothing, and the controller moves the job when told to."""

    def __init__(self, workers: int, window: int = 8, algorithm: str = "auto") -> None:
        self.by_switch = True
        self.dead = False
        self._algorithm = algorithm
        self._running: dict[int, SwitchModel] = {}
        self._peers: dict[int, dict[int, InMemoryTransport]] = {}
        super().__init__(workers, window)

    def die(self) -> None:
        """Kill the switch without telling any rank."""
        with self.lock:
            self.dead = True

    def move(self, *, by_switch: bool) -> None:
        """The job goes on in a new epoch, when all have told what they lack: by a new switch or without."""
        with self.lock:
            self.restart()
            self.by_switch, self.dead = by_switch, False

    def cut_off(self) -> None:
        """The controller takes the switch for dead and moves the job; but it runs, and members do not notice."""
        with self.lock:
            self._running[self.epoch] = self.switch
            self.switch = SwitchModel({})
            self.resumes, self.needs = self.epoch, {}
            self.epoch += 1
            self.by_switch = False

    def _data_plane(self, member: Descriptor) -> SwitchModel:
        return self._running.get(member.epoch, self.switch)

    def _install(self) -> None:
        if getattr(self, "by_switch", True):
            super()._install()
        else:
            self._peers[self.epoch] = memory_peers(range(self.workers))
            self.switch.jobs[JOB_ID] = job(descriptor(0, self.workers))  # that the epoch has begun

    def open(self, member: Descriptor) -> Transport:
        if not member.by_switch:
            return self._peers[member.epoch][member.rank]
        made = super().open(member)
        assert isinstance(made, InMemoryTransport)
        deliver = made.deliver
        assert deliver is not None
        made.deliver = lambda data: None if self.dead else deliver(data)
        return made

    def describe(self, rank: int, resumes: int | None = None) -> Descriptor:
        described = super().describe(rank, resumes)
        if self.by_switch:
            return described
        peers = peer_descriptor(rank, self.workers, algorithm=self._algorithm)
        return replace(described, algorithm=peers.algorithm, peers=peers.peers, peer_key=peers.peer_key)


class MovingHosts(MovingNetwork, RestartingHosts):
    """The same with two ranks on each host, and UDP between a host and the switch may be blocked."""

    def __init__(self, workers: int, window: int = 8, algorithm: str = "auto") -> None:
        self._blocked: set[int] = set()
        super().__init__(workers, window, algorithm)

    def block(self, host: int, *, to_switch: bool) -> None:
        """From now on, nothing gets from this host to the switch, or from there to it."""
        leader = self.hosts.leader(host)
        if to_switch:
            self._blocked.add(leader)
        else:
            self.lost = lambda rank, _header: rank == leader

    def open(self, member: Descriptor) -> Transport:
        made = super().open(member)
        assert isinstance(made, InMemoryTransport)
        deliver = made.deliver
        assert deliver is not None
        if member.by_switch:
            made.deliver = lambda data: None if member.rank in self._blocked else deliver(data)
        return made

    def describe(self, rank: int, resumes: int | None = None) -> Descriptor:
        described = super().describe(rank, resumes)
        return described if self.by_switch else replace(described, local_ranks=())
