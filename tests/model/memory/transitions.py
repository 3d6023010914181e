# SPDX-License-Identifier: MIT
"""Effects of one event on one device: looked up, since states and packets are numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from netsum_controller.memory.failover import Report, has_lost
from netsum_controller.memory.model import ReplicaGroup
from netsum_memory.replication.backup import Backup
from netsum_memory.replication.messages import Ack, Counted, Given, Order, PeerMessage
from netsum_memory.replication.primary import Primary

from tests.model.memory.device import Asked, History, ModelReplica, Name, Reply, restarted
from tests.model.memory.frozen import freeze, thaw
from tests.model.memory.scenario import Scenario
from tests.model.transitions import Pool, bits

LOST = -1
"""In place of the position that a reply shows: the memory is lost."""


class Device(NamedTuple):
    """``hosts`` are those of the group that it was told last; ``incarnation`` counts how often its memory was lost."""

    incarnation: int
    hosts: tuple[int, ...]
    own: int  # its own number in the group
    replica: object  # frozen
    known: Report  # how far it has ever vouched for its log
    behind: bool = False  # a client has shown that it has lost something


class Request(NamedTuple):
    """An instruction that a switch has sent to a device."""

    host: int
    epoch: int
    asked: Asked
    shown: int  # the position that the client was told


class Post(NamedTuple):
    """A message to a device; ``number`` is the sender's in its group."""

    host: int
    number: int
    peer_message: PeerMessage
    kind: type[PeerMessage]  # tuples of the same fields are equal whatever they are called


class After(NamedTuple):
    """The device after an event, the packets that left as a bit mask, replies, and what it has executed."""

    device: int
    sent: int
    replies: tuple[Reply, ...]
    done: tuple[Name, ...] | None  # None: a copy is coming


class Transitions:
    """Of one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.devices: Pool[Device] = Pool()
        self.packets: Pool[Request | Post] = Pool()
        self.deliver = cache(self._deliver_once)
        self.tend = cache(self._tend_once)
        self.regroup = cache(self._regroup_once)
        self.restart = cache(self._restart_once)
        self.put_back = cache(self._put_back_once)
        self.has_lost = cache(self._has_lost_once)
        self.report = cache(self._report_once)
        self.executed = cache(self._executed_once)
        self.log = cache(self._log_once)
        self.is_dead = cache(self._is_dead_once)
        self.has_done = cache(self._has_done_once)

    def new(self) -> int:
        replica = self.scenario.replica(History(), keep=self.scenario.keep)
        return self.devices.number(Device(0, (), 0, freeze(replica), Report("0")))

    def replica(self, number: int) -> ModelReplica:
        """A replica of the caller's own."""
        thing: ModelReplica = thaw(self.devices.items[number].replica)
        return thing

    def _after(self, number: int, event: Callable[[ModelReplica], object]) -> After:
        device = self.devices.items[number]
        replica = self.replica(number)
        event(replica)
        return self._left(device, replica)

    def _left(self, device: Device, replica: ModelReplica, lost: Sequence[Reply] = ()) -> After:
        sent, (replies, peer_messages) = 0, replica.take_output()
        replies += lost
        for to, peer_message in peer_messages:
            post = Post(device.hosts[to], device.own, peer_message, type(peer_message))
            sent |= 1 << self.packets.number(post)
        history = replica.machine
        assert isinstance(history, History)
        report = _report(device, replica)
        if not has_lost(device.known, report):
            same = device.known[:2] == report[:2]
            vouched = max(report.vouched, device.known.vouched) if same else report.vouched
            device = device._replace(known=Report(*report[:2], vouched=vouched))
        number = self.devices.number(device._replace(replica=freeze(replica)))
        return After(number, sent, tuple(replies), history.done if replica.whole else None)

    def _deliver_once(self, number: int, *packets: int) -> After:
        """A batch of packets comes, of which the device draws its conclusions together."""
        device, replica = self.devices.items[number], self.replica(number)
        lost: list[Reply] = []
        for packet in packets:
            item = self.packets.items[packet]
            if isinstance(item, Post):
                replica.receive(item.number, item.peer_message)
            elif device.behind:
                lost += [(item.asked.name, LOST)] if replica.primary and item.epoch <= replica.epoch else []
            elif replica.lacks(item.shown, item.epoch):
                device = device._replace(behind=True)
                lost += [(item.asked.name, LOST)] if replica.primary else []
            elif item.asked.reads:
                replica.read(item.asked, item.epoch)
            else:
                replica.change(item.asked, item.epoch)
        return self._left(device, replica, lost)

    def _tend_once(self, number: int) -> After:
        return self._after(number, lambda replica: replica.tend())

    def _regroup_once(self, number: int, host: int, group: ReplicaGroup) -> After:
        """The device is told of a group."""
        hosts = tuple(int(member.host) for member in group.members)
        device = self.devices.items[number]._replace(hosts=hosts, own=hosts.index(host))
        replica = self.replica(number)
        if device.behind and group.epoch > replica.epoch:  # it gives up what it has, and joins anew
            device, replica = device._replace(behind=False), restarted(replica, durable=False)
        replica.regroup(group.epoch, [member.joining for member in group.members], hosts.index(host))
        return self._left(device, replica)

    def _restart_once(self, number: int) -> After:
        device = self.devices.items[number]
        lost = not self.scenario.durable
        replica = restarted(self.replica(number), durable=not lost)
        return self._left(device._replace(incarnation=device.incarnation + lost), replica)

    def _put_back_once(self, number: int, older: int) -> After:
        """The device begins anew with its folder as it was at an earlier moment."""
        device = self.devices.items[older]
        known = self.devices.items[number].known if self.scenario.heard else device.known
        return self._left(device._replace(known=known), restarted(self.replica(older), durable=True))

    def _report_once(self, number: int) -> tuple[Report, bool]:
        """The device's report to the controller, and whether its process has been told of its group."""
        replica = self.replica(number)
        return _report(self.devices.items[number], replica), replica.role is not None

    def _has_lost_once(self, number: int) -> bool:
        """True if the device has less than it has vouched for, as far as that is known; or a client has shown that."""
        device = self.devices.items[number]
        return device.behind or (self.scenario.control.vouched and has_lost(device.known, _report(device, self.replica(number))))

    def _is_dead_once(self, number: int, packet: int) -> bool:
        """True if a packet means nothing to its receiver any more, whatever comes. After a restart it might: then only what is
        of an old epoch is let go."""
        item, replica = self.packets.items[packet], self.replica(number)
        if isinstance(item, Request):
            return False
        if item.peer_message.epoch != replica.epoch:
            return item.peer_message.epoch < replica.epoch and not replica.concerns(item.peer_message)
        if self.scenario.restarts:
            return False
        if isinstance(replica.role, Primary):
            return _tells_primary_nothing(replica.role, item)
        return replica.role is not None and _tells_backup_nothing(replica.role, item.peer_message)

    def _has_done_once(self, number: int, packet: int) -> bool:
        """True if a device has executed what a request asks."""
        item, machine = self.packets.items[packet], self.replica(number).machine
        return isinstance(item, Request) and not item.asked.reads and machine.known(item.asked) is not None

    def _executed_once(self, number: int) -> int:
        """The number of instructions that the device has executed."""
        return self.replica(number).committed

    def _log_once(self, number: int) -> tuple[Name, ...]:
        """All that the device holds, executed or not; nothing while a copy is coming."""
        replica = self.replica(number)
        history = replica.machine
        assert isinstance(history, History)
        records = (replica.log.at(position) for position in range(replica.committed + 1, replica.log.end + 1))
        return history.done + tuple(record.message.name for record in records if record) if replica.whole else ()

    def to_host(self, network: int) -> Iterator[tuple[int, int]]:
        """Packets and where they go."""
        return ((packet, self.packets.items[packet].host) for packet in bits(network))


def _report(device: Device, replica: ModelReplica) -> Report:
    return Report(str(device.incarnation), replica.epoch, replica.position, replica.ready, replica.vouched)


def _tells_primary_nothing(role: Primary[Asked], post: Post) -> bool:
    """An acknowledgment that it has had."""
    peer_message, number = post.peer_message, post.number
    return isinstance(peer_message, Ack) and number in role.needed and peer_message.position <= role.held[number]


def _tells_backup_nothing(role: Backup[Asked], peer_message: PeerMessage) -> bool:
    """Its effect would be an acknowledgment that was sent before."""
    if isinstance(peer_message, Order):
        last = peer_message.first + len(peer_message.entries) - 1
        return last <= role.agreed and peer_message.end <= role.end and peer_message.committed <= role.executed
    if isinstance(peer_message, Given):
        return peer_message.position <= role.agreed
    return isinstance(peer_message, Counted) and peer_message.position >= role.counted
