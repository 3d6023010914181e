# SPDX-License-Identifier: MIT
"""Flows: messages that share links by max-min fair shares, from event to event.

Between two events every rate is constant. An event is the end of some messages' sending, their arrival, or a change of the
network. Of many messages, those that end at nearly the same time share one event.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from netsum_planner.errors import PlanError
from netsum_planner.simulator.network import Floats, Numbers, SimulatedNetwork
from netsum_planner.simulator.schedules import Schedule

# Max-min fair shares of links: no flow can have more without a flow that has less losing some.
#
# Source: D. Bertsekas and R. Gallager, Data Networks, 2nd ed. (1992), 6.5.2: progressive filling. All links that bind
# none but their own flows are settled at once, and not only the narrowest, so that few rounds are enough.


_NEAR = 1 + 1e-9


def max_min(capacity: Floats, starts: Numbers, links: Numbers, caps: Floats) -> Floats:
    """The rate of each flow. Flow f takes ``links[starts[f] : starts[f + 1]]`` (the last to the end), each once for every time
    that it is listed, and never more than ``caps[f]``; every flow has a link. A flow over a link of no capacity gets nothing.

    Cost: O(links + rounds * entries); rounds are few, at most the number of different rates.
    """
    used = np.zeros(len(capacity), np.bool_)
    used[links] = True
    links, capacity = (np.cumsum(used) - 1)[links], capacity[used]
    flows = len(starts)
    lengths = np.diff(np.append(starts, len(links)))
    owner = np.repeat(np.arange(flows), lengths)
    rates = np.zeros(flows)
    left = capacity.astype(np.float64, copy=True)
    waiting = np.ones(flows, np.bool_)
    while waiting.any():
        load = np.bincount(links, weights=waiting[owner], minlength=len(capacity))
        share = np.divide(np.maximum(left, 0), load, out=np.full(len(capacity), np.inf), where=load > 0)
        least = np.minimum(np.minimum.reduceat(share[links], starts), caps)
        least[~waiting] = np.inf
        # The lowest share that any waiting flow of a link gets: if it is the link's own, the link binds all of them.
        lowest = np.full(len(capacity), np.inf)
        np.minimum.at(lowest, links, least[owner])
        binds = (load > 0) & (share <= lowest * _NEAR)
        done = waiting & ((caps <= least) | np.maximum.reduceat(binds[links], starts))
        rates[done] = least[done]
        left -= np.bincount(links, weights=(rates * done)[owner], minlength=len(capacity))
        waiting &= ~done
    return rates


FEW: Final = 64
"""Up to this many messages in flight, each ends at its own time."""
TOLERANCE: Final = 0.01
"""With more, the share of a message that may be missing, or sent in excess, when it counts as sent."""
_SAME: Final = 1e-12
_REPORT: Final = 200
"""Events between two reports of progress."""


@dataclass(frozen=True)
class Change:
    """At ``time``, links (by number) go ``down`` or come up again. With ``reroute``, paths are found anew then; until that, what
    takes a link that is down waits."""

    time: float
    links: tuple[int, ...]
    down: bool
    reroute: bool = False


@dataclass(frozen=True)
class Flows:
    """The outcome of a schedule's messages: when each ``began`` and ``arrived``, in seconds; the ``carried`` bytes of each link;
    how many ``events`` there were."""

    began: Floats
    arrived: Floats
    carried: Floats
    events: int


Progress = Callable[[float, float], None]
"""Told the simulated seconds and the share of the messages that have arrived."""


def simulate(schedule: Schedule, changes: Sequence[Change] = (), progress: Progress = lambda _now, _share: None) -> Flows:
    """Simulate a schedule. :class:`PlanError` if messages can never arrive."""
    return _Simulation(schedule, changes).run(progress)


class _Routes:
    """The links of every way, one after the other."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.find()

    def find(self) -> None:
        found = [way() for way in self._schedule.ways]
        self.lengths = np.array([len(links) for links in found], np.int64)
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)
        self.links = np.concatenate([*found, np.zeros(0, np.int64)]).astype(np.int64)
        delay = self._schedule.network.delay
        # A message's last byte is behind by the delay of its path; a flow over many says itself how long it is.
        self.delays = np.array([delay[links].sum() for links in found])

    def of(self, routes: Numbers) -> tuple[Numbers, Numbers]:
        """The first link of each route, and the links of all of them."""
        lengths = self.lengths[routes]
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
        return starts, self.links[np.repeat(self.starts[routes] - starts, lengths) + np.arange(lengths.sum())]


class _Simulation:
    def __init__(self, schedule: Schedule, changes: Sequence[Change]) -> None:
        messages = schedule.messages
        count = len(messages)
        self.network: SimulatedNetwork = schedule.network
        self.routes = _Routes(schedule)
        self.capacity = self.network.capacity.copy()
        self.size = np.array(messages.size, np.float64)
        self.route = np.array(messages.route, np.int64)
        self.pause = np.array(messages.pause)
        self.cap = np.array(messages.cap)
        self.lane = messages.lane
        self.remaining = self.size.copy()
        self.began = np.full(count, np.nan)
        self.arrived = np.full(count, np.nan)
        self.missing = np.array([len(waits) for waits in messages.waits], np.int64)
        self.followers: list[list[int]] = [[] for _ in range(count)]
        for message, waits in enumerate(messages.waits):
            for other in waits:
                self.followers[other].append(message)
        self.queues: dict[int, deque[int]] = {}
        self.active: Numbers = np.zeros(0, np.int64)
        self.rates: Floats = np.zeros(0)
        self.timers: list[tuple[float, int, int | Change]] = []
        self.order = 0
        for change in changes:
            self._at(change.time, change)
        self.now = 0.0
        self.done = 0
        self.events = 0

    def _at(self, time: float, what: int | Change) -> None:
        self.order += 1
        heapq.heappush(self.timers, (time, self.order, what))

    def run(self, progress: Progress) -> Flows:
        self._begin(np.flatnonzero(self.missing == 0).tolist())
        while self.done < len(self.size):
            self._step()
            self.events += 1
            if self.events % _REPORT == 0:
                progress(self.now, self.done / len(self.size))
        sent = self.route >= 0
        starts, links = self.routes.of(self.route[sent])
        lengths = np.diff(np.append(starts, len(links)))
        carried = np.bincount(links, weights=np.repeat(self.size[sent], lengths), minlength=len(self.capacity))
        return Flows(self.began, self.arrived, carried.astype(np.float64), self.events)

    def _begin(self, ready: Sequence[int]) -> None:
        """Start these messages: all that they waited for has arrived."""
        begun = []
        for message in ready:
            if self.route[message] < 0 or not self.size[message]:
                self.began[message] = self.now
                self._leave(message)
                continue
            lane = self.lane[message]
            if lane >= 0:
                queue = self.queues.setdefault(lane, deque())
                queue.append(message)
                if len(queue) > 1:
                    continue
            begun.append(message)
        self._start(begun)

    def _start(self, begun: Sequence[int]) -> None:
        if begun:
            self.began[begun] = self.now
            self.active = np.append(self.active, np.array(begun, np.int64))
            self.rates = np.zeros(0)

    def _leave(self, message: int) -> None:
        """All bytes have left: they arrive after the delay of the way."""
        route = self.route[message]
        delay = self.pause[message] + (self.routes.delays[route] if self.lane[message] >= 0 else 0.0)
        self._at(self.now + delay, message)

    def _step(self) -> None:
        if not self._due():
            self._advance()
        arrived: list[int] = []
        while self._due():
            what = heapq.heappop(self.timers)[2]
            if isinstance(what, Change):
                self._change(what)
            else:
                arrived.append(what)
        if arrived:
            self._arrive(arrived)

    def _due(self) -> bool:
        return bool(self.timers) and self.timers[0][0] <= self.now * (1 + _SAME)

    def _advance(self) -> None:
        """Advance to the next event, at constant rates."""
        soonest = np.inf
        few = len(self.active) <= FEW
        if len(self.active):
            if not len(self.rates):
                starts, links = self.routes.of(self.route[self.active])
                self.rates = max_min(self.capacity, starts, links, self.cap[self.active])
            late = 0.0 if few else TOLERANCE * self.size[self.active]
            with np.errstate(divide="ignore"):
                soonest = float(((self.remaining[self.active] + late) / self.rates).min())
        until = min(self.now + soonest, self.timers[0][0] if self.timers else np.inf)
        if until == np.inf:
            raise PlanError(f"{self.network.topology.name}: a message waits for ever: a link that it needs is down")
        self.remaining[self.active] -= self.rates * (until - self.now)
        self.now = until
        if len(self.active):
            self._finish(_SAME * 1e3 if few else TOLERANCE)

    def _finish(self, share: float) -> None:
        over = self.remaining[self.active] <= share * self.size[self.active]
        if not over.any():
            return
        finished, self.active = self.active[over].tolist(), self.active[~over]
        self.rates = np.zeros(0)
        following = []
        for message in finished:
            self._leave(message)
            lane = self.lane[message]
            if lane >= 0:
                queue = self.queues[lane]
                queue.popleft()
                following += [queue[0]] if queue else []
        self._start(following)

    def _arrive(self, arrived: Sequence[int]) -> None:
        self.arrived[arrived] = self.now
        self.done += len(arrived)
        ready = []
        for message in arrived:
            for other in self.followers[message]:
                self.missing[other] -= 1
                if not self.missing[other]:
                    ready.append(other)
        self._begin(ready)

    def _change(self, change: Change) -> None:
        links = list(change.links)
        self.capacity[links] = 0.0 if change.down else self.network.capacity[links]
        self.rates = np.zeros(0)
        if change.reroute:
            self.network.set_down(links, down=change.down)
            self.routes.find()
