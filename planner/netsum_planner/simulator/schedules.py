"""Who sends what to whom, after what: messages with what they wait for.

A message is transmitted once everything that it waits for has arrived and the messages that were ready before it in its lane have
left: a lane is a connection, which carries one after the other. What takes time but no network (a rank computes, or comes late)
is a message of no bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from netsum_planner.simulator.network import Network, Numbers

Way = Callable[[], Numbers]
"""Finds the links of a message anew, around what is down."""


@dataclass
class Messages:
    """One list per column, one entry per message. ``route`` is the number of its way (-1: it takes none), ``pause`` the seconds
    from its last byte's leaving to its arrival, ``cap`` the most bytes a second, ``waits`` what must have arrived before."""

    size: list[float] = field(default_factory=list)
    route: list[int] = field(default_factory=list)
    pause: list[float] = field(default_factory=list)
    cap: list[float] = field(default_factory=list)
    lane: list[int] = field(default_factory=list)
    waits: list[Sequence[int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.size)


class Schedule:
    """The messages of all jobs, and the ``ways`` that they take."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.messages = Messages()
        self.ways: list[Way] = []
        self._routes: dict[tuple[object, ...], int] = {}
        self._lanes: dict[tuple[object, ...], int] = {}
        self.ends: dict[int, tuple[str, str]] = {}
        """The hosts that a message is from and to, of those between two hosts."""
        self.owners: dict[int, str] = {}
        """The host on which time passes, of messages of no bytes."""

    def route(self, key: tuple[object, ...], way: Way) -> int:
        """The number of a way, which is found once for all messages with the same key."""
        if key not in self._routes:
            self._routes[key] = len(self.ways)
            self.ways.append(way)
        return self._routes[key]

    def wait(self, waits: Sequence[int], seconds: float = 0.0, *, host: str | None = None) -> int:
        """So many seconds pass, on one ``host`` or somewhere, after these have arrived."""
        found = self._add(0.0, -1, waits, seconds)
        if host is not None:
            self.owners[found] = host
        return found

    def send(
        self,
        source: str,
        target: str,
        size: float,
        waits: Sequence[int],
        *,
        lane: object = None,
        pause: float = 0.0,
        nodes: Sequence[str] = (),
    ) -> int:
        """A message of ``size`` bytes between two hosts, over ``nodes`` if they are given. Those with the same ``lane`` share a
        connection."""
        network = self.network
        if nodes:
            route = self.route(tuple(nodes), lambda: network.links(nodes))
        else:
            route = self.route((source, target), lambda: network.path(source, target))
        number = self._lanes.setdefault((lane, source, target), len(self._lanes))
        found = self._add(size, route, waits, pause, lane=number)
        self.ends[found] = (source, target)
        return found

    def flow(
        self, key: tuple[object, ...], way: Way, size: float, waits: Sequence[int], *, pause: float, cap: float = np.inf
    ) -> int:
        """``size`` bytes that take all links of a way at the same time, at one rate, as what a switch sums and copies does."""
        return self._add(size, self.route(key, way), waits, pause, cap=cap)

    def _add(
        self, size: float, route: int, waits: Sequence[int], pause: float, *, lane: int = -1, cap: float = np.inf
    ) -> int:
        messages = self.messages
        messages.size.append(size)
        messages.route.append(route)
        messages.pause.append(pause)
        messages.cap.append(cap)
        messages.lane.append(lane)
        messages.waits.append(waits)
        return len(messages) - 1

    def wait_also(self, message: int, waits: Sequence[int]) -> None:
        """Add what a message waits for, if that was unknown when it was made."""
        self.messages.waits[message] = waits
