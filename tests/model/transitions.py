"""One thing at a time, computed once: what a packet or a sweep does to a switch, what a packet does to a host, what a host sends.

Switches, hosts and packets are interned; sets of packets are bit masks over their numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cache
from typing import Generic, NamedTuple, TypeVar

from netsum.wire.schema import BlockState

from tests.model import host as host_rules
from tests.model import truth
from tests.model.host import JOB_ID, Host
from tests.model.rules import Frontier, Job, Packet, Record, Reply, SwitchModel
from tests.model.scenario import Scenario

Item = TypeVar("Item", bound=Hashable)
Slots = tuple[tuple[int, Record], ...]


class Switch(NamedTuple):
    """A switch as a value."""

    job: Job | None
    slots: Slots = ()
    frontier: Frontier = Frontier()


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
        self.fetches = cache(self._fetches)
        self.dead = cache(self._dead)

    def _model(self, switch: int) -> SwitchModel:
        job, slots, frontier = self.switches.items[switch]
        return SwitchModel(
            {JOB_ID: job} if job else {}, dict(slots), rules=self.scenario.rules, frontiers={JOB_ID: frontier}
        )

    def _after(self, before: int, model: SwitchModel, replies: tuple[Reply, ...]) -> tuple[int, int]:
        """The switch's number, and the replies' as a mask."""
        job, slots, _ = self.switches.items[before]
        after = self.switches.number(Switch(job, tuple(sorted(model.records.items())), model.frontiers[JOB_ID]))
        for slot, record in slots:
            what = truth.changed(record, model.records[slot]) if record.state == BlockState.DONE else ""
            if what:
                self.changed[after] = what
        mask = 0
        for reply in replies:
            mask |= 1 << self.packets.number(reply)
        return after, mask

    def _at_switch(self, switch: int, packet: int, old: bool = False) -> tuple[int, int]:
        model = self._model(switch)
        item = self.packets.items[packet]
        assert isinstance(item, Packet)
        return self._after(switch, model, model.step(item, old=old).replies)

    def _looks(self, switch: int) -> list[tuple[int, bool, int, int]]:
        """What sweeps may close: slot, whether the block has to be old for it, the switch after it, and the notices."""
        job = self.switches.items[switch].job
        if job is None or not (self.scenario.partial and self.scenario.sweeper):
            return []
        found = []
        for slot in self._model(switch).swept_slots(JOB_ID):
            for old in (False, True):
                model = self._model(switch)
                notices = model.look(JOB_ID, slot, old=old)
                if notices:
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

    def _fetches(self, host: int) -> int:
        mask = 0
        for packet in host_rules.fetches(self.hosts.items[host]):
            mask |= 1 << self.packets.number(packet)
        return mask

    def _dead(self, host: int, packet: int) -> bool:
        item = self.packets.items[packet]
        assert isinstance(item, Reply)
        again = not self.scenario.epoch_rules.fresh_ports
        return host_rules.is_dead(self.hosts.items[host], item, ports_come_again=again)
