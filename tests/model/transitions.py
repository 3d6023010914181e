# SPDX-License-Identifier: MIT
"""One thing at a time, computed once: what a packet or a scan does to a switch, what a packet does to a host, what a host sends.

Switches, hosts and packets are interned; sets of packets are bit masks over their numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cache
from typing import Generic, NamedTuple, TypeVar

from netsum.wire.schema import BlockState, Hop

from tests.model import host as host_rules
from tests.model import truth
from tests.model.host import JOB_ID, Host
from tests.model.rules import ID_MASK, Job, Packet, Progress, Record, Reply, SwitchModel
from tests.model.scenario import Scenario

Item = TypeVar("Item", bound=Hashable)
Slots = tuple[tuple[int, Record], ...]


class Switch(NamedTuple):
    """A switch as a value."""

    job: Job | None
    slots: Slots = ()
    progress: Progress = Progress()
    addresses: tuple[tuple[int, tuple[int, int]], ...] = ()  # by source id, see SwitchModel.addresses


class Pool(Generic[Item]):
    """Numbers for values."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._numbers: dict[Item, int] = {}

    def number(self, item: Item) -> int:
        """The same number for equal items."""
        number = self._numbers.setdefault(item, len(self.items))
        if number == len(self.items):
            self.items.append(item)
        return number


def bits(mask: int) -> Iterator[int]:
    """The numbers in a mask."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Transitions:
    """The transitions of a scenario, by numbers."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.switches: Pool[Switch] = Pool()
        self.hosts: Pool[Host] = Pool()
        self.packets: Pool[Packet | Reply] = Pool()
        self.changed: dict[int, str] = {}  # switches at which a closed record was changed
        self.at_switch = cache(self._at_switch)
        self.at_host = cache(self._at_host)
        self.looks = cache(self._looks)
        self.sends = cache(self._sends)
        self.forged = cache(self._forged)
        self.told = cache(self._told)
        self.dead = cache(self._dead)
        self.where = cache(self._where)
        self.ignored = cache(self._ignored)
        self._above: dict[int, int] = {}  # switch that a port is on: of an edge, its upper end
        self._below: dict[int, int] = {}  # of an edge, its lower end
        for number, node in enumerate(scenario.nodes):
            self._above |= {child.port: number for child in node.children}
            self._below |= {child.port: child.switch for child in node.children if child.switch is not None}

        self.to_host = [0] * scenario.workers  # what flies to each rank
        self.down_to = [0] * len(scenario.nodes)  # and to each switch from its parents

    def _where(self, packet: int) -> int:
        """The switch that a packet comes to."""
        item = self.packets.items[packet]
        return (self._below if item.header.hop == Hop.DOWN else self._above)[item.port]

    def _model(self, switch: int) -> SwitchModel:
        job, slots, progress, addresses = self.switches.items[switch]
        return SwitchModel(
            {JOB_ID: job} if job else {},
            dict(slots),
            rules=self.scenario.rules,
            job_progress={JOB_ID: progress},
            addresses={(JOB_ID, src_id): address for src_id, address in addresses},
        )

    def _after(self, before: int, model: SwitchModel, replies: tuple[Reply, ...]) -> tuple[int, int]:
        """The switch's number, and the replies' as a mask."""
        job, slots, *_ = self.switches.items[before]
        addresses = tuple(sorted((src_id, address) for (_, src_id), address in model.addresses.items()))
        after = self.switches.number(Switch(job, tuple(sorted(model.records.items())), model.job_progress[JOB_ID], addresses))
        for slot, record in slots:
            what = truth.changed(record, model.records[slot])
            if what:
                self.changed[after] = what
        mask = 0
        for reply in replies:
            between = reply.header.hop != Hop.HOST
            as_packet = Packet(reply.port, reply.udp_port, reply.header, reply.payload, reply.congested)
            item = as_packet if between else reply
            number = self.packets.number(item)
            mask |= 1 << number
            if reply.header.hop == Hop.DOWN:
                self.down_to[self._below[reply.port]] |= 1 << number
            elif not between:
                self.to_host[reply.port - 1] |= 1 << number
        return after, mask

    def _at_switch(self, switch: int, packet: int, old: bool = False) -> tuple[int, int]:
        model = self._model(switch)
        item = self.packets.items[packet]
        assert isinstance(item, Packet)
        return self._after(switch, model, model.step(item, old=old).replies)

    def _ignored(self, switch: int, packets: int) -> int:
        """Which of what comes from the parent means nothing to this switch, now or ever."""
        job, slots, *_ = self.switches.items[switch]
        sure = self.scenario.epoch_rules.fresh_ports and self.scenario.rules.only_what_is_in_the_slot
        if job is None or not sure:
            return 0
        records, mask = dict(slots), 0
        for packet in bits(packets):
            item = self.packets.items[packet]
            block_id = item.header.block_id
            record = records.get(job.slot_of(block_id), Record())
            ahead = (record.block_id - block_id) & ID_MASK
            settled = ahead == 0 and record.state in (BlockState.DONE, BlockState.DEAD)
            over = record.epoch == job.epoch and (settled or 0 < ahead < 1 << 31)
            if over or item.udp_port != job.uplink_of(block_id).udp_port:
                mask |= 1 << packet
        return mask

    def _looks(self, switch: int) -> list[tuple[int, bool, int, int]]:
        """Blocks that scans may close: slot, whether the block has to be old for it, the switch after it, and the notices."""
        job = self.switches.items[switch].job
        if job is None or not (self.scenario.partial and self.scenario.scanner):
            return []
        found: list[tuple[int, bool, int, int]] = []
        for slot in self._model(switch).scanned_slots(JOB_ID):
            for old in (False, True):
                model = self._model(switch)
                notices = model.look(JOB_ID, slot, old=old)
                if notices or model.records != dict(self.switches.items[switch].slots):
                    found.append((slot, old, *self._after(switch, model, notices)))
                    break
        return found

    def _at_host(self, host: int, packet: int) -> int:
        item = self.packets.items[packet]
        assert isinstance(item, Reply)
        return self.hosts.number(host_rules.receive(self.hosts.items[host], item, self.scenario.host_rules))

    def _sends(self, host: int) -> int:
        mask = 0
        for packet in host_rules.outstanding(self.hosts.items[host], self.scenario.host_rules):
            mask |= 1 << self.packets.number(packet)
        return mask

    def _forged(self, host: int) -> int:
        """What an evicted member sends to a member of the IP multicast group."""
        mask, item = 0, self.hosts.items[host]
        for reply in self.scenario.forgeries_of_evicted(item):
            mask |= 1 << self.packets.number(reply)
        self.to_host[item.rank] |= mask
        return mask

    def _told(self, host: int, packet: int) -> int:
        """Packets that a host sends at once because of this one, when it has taken it: a block that it is asked for again."""
        item, after = self.packets.items[packet], self.hosts.items[self.at_host(host, packet)]
        assert isinstance(item, Reply)
        index = (item.header.block_id - after.origin) & ID_MASK
        if index not in after.fetching or not host_rules.is_asked(item):
            return 0
        return 1 << self.packets.number(host_rules.contribution(after, index, self.scenario.host_rules))

    def _dead(self, host: int, packets: int) -> int:
        """Which packets mean nothing to this host, now or ever."""
        again = not self.scenario.epoch_rules.fresh_ports
        mask = 0
        for packet in bits(packets):
            item = self.packets.items[packet]
            assert isinstance(item, Reply)
            if host_rules.is_dead(self.hosts.items[host], item, ports_come_again=again):
                mask |= 1 << packet
        return mask
