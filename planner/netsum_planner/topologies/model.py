# SPDX-License-Identifier: MIT
"""The topology: hosts, switches, and directed links with a rate and a delay."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import networkx as nx
from netsum.text import counted

from netsum_planner.errors import PlanError

Pair = tuple[str, str]
"""The two ends of a link, from and to."""

Rates = Mapping[Pair, Fraction]
"""GB/s from one node to the next, all parallel links together."""


@dataclass(frozen=True)
class Link:
    """One direction of a wire. ``rate``: GB/s (10^9 bytes a second); ``delay_us``: microseconds."""

    source: str
    target: str
    rate: Fraction
    delay_us: float = 0.0


@dataclass(frozen=True)
class Topology:
    """``switches``: by name, whether the switch can sum; all of them forward, and those that sum can also multicast. Two nodes
    may have several links. ``routes``: all nodes on the way from a host to a host, where that is not the usual path.

    Raises :class:`PlanError` if a name is used twice, a link has an unknown end or a rate that is not positive, or a route
    takes a link that is not there."""

    name: str
    hosts: tuple[str, ...]
    switches: Mapping[str, bool]
    links: tuple[Link, ...]
    routes: Mapping[Pair, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        twice = [name for name, count in Counter([*self.hosts, *self.switches]).items() if count > 1]
        if twice:
            raise PlanError(f"{self.name}: {', '.join(twice)}: more than one node has this name")
        known = {*self.hosts, *self.switches}
        for link in self.links:
            where = f"{self.name}: link {link.source} -> {link.target}"
            if unknown := {link.source, link.target} - known:
                raise PlanError(f"{where}: there is no node {', '.join(sorted(unknown))}")
            if link.source == link.target:
                raise PlanError(f"{where}: a link joins two different nodes")
            if link.rate <= 0 or link.delay_us < 0:
                raise PlanError(f"{where}: a rate is more than 0 and a delay 0 or more")
        for route in self.routes.values():
            for ends in pairwise(route):
                if ends not in self.rates:
                    where = f"{self.name}: route {' -> '.join(route)}"
                    raise PlanError(f"{where}: there is no link {ends[0]} -> {ends[1]}")

    @property
    def nodes(self) -> tuple[str, ...]:
        return (*self.hosts, *self.switches)

    @cached_property
    def rates(self) -> dict[Pair, Fraction]:
        found: dict[Pair, Fraction] = {}
        for link in self.links:
            ends = (link.source, link.target)
            found[ends] = found.get(ends, Fraction(0)) + link.rate
        return found

    @cached_property
    def neighbors(self) -> dict[str, list[str]]:
        """The links of each node, in the order of the links."""
        found: dict[str, list[str]] = {name: [] for name in self.nodes}
        for source, target in self.rates:
            found[source].append(target)
        return found

    def graph(self) -> Any:
        """A :class:`networkx.DiGraph`: nodes with ``kind`` (host, sums or forwards), edges with ``rate``."""
        graph = nx.DiGraph(name=self.name)
        graph.add_nodes_from(self.hosts, kind="host")
        for name, sums in self.switches.items():
            graph.add_node(name, kind="sums" if sums else "forwards")
        graph.add_edges_from((*ends, {"rate": rate}) for ends, rate in self.rates.items())
        return graph

    def subset(self, hosts: Collection[str]) -> Topology:
        """The topology that is left if only these hosts take part, as when a scheduler gives them to a job: no other host
        forwards."""
        if unknown := sorted(set(hosts) - set(self.hosts)):
            raise PlanError(f"{self.name} has no host {', '.join(unknown)} (it has: {', '.join(self.hosts)})")
        left = tuple(host for host in self.hosts if host in hosts)
        return self._restricted({*left, *self.switches}, hosts=left)

    def without(self, down: Collection[str | Pair]) -> Topology:
        """The topology that is left if these nodes, and all links between these pairs of nodes in both directions, are down."""
        known: set[str | Pair] = {*self.nodes, *self.rates, *((two, one) for one, two in self.rates)}
        if unknown := [each for each in down if each not in known]:
            where = unknown[0] if isinstance(unknown[0], str) else " - ".join(unknown[0])
            raise PlanError(f"{self.name} has no node or link {where}")
        gone = {each for each in down if isinstance(each, tuple)}
        gone |= {(two, one) for one, two in gone}
        links = tuple(link for link in self.links if (link.source, link.target) not in gone)
        routes = {ends: route for ends, route in self.routes.items() if gone.isdisjoint(pairwise(route))}
        up = {name for name in self.nodes if name not in down}
        left = replace(self, links=links, routes=routes)
        return left._restricted(up, tuple(host for host in self.hosts if host in up))

    def only_forwarding(self) -> Topology:
        """The same network if no switch sums."""
        return replace(self, switches=dict.fromkeys(self.switches, False))

    def reversed(self) -> Topology:
        """All links and routes turned round: what a sum goes through as a copy comes."""
        return replace(
            self,
            links=tuple(replace(each, source=each.target, target=each.source) for each in self.links),
            routes={(two, one): route[::-1] for (one, two), route in self.routes.items()},
        )

    def _restricted(self, to: Collection[str], hosts: tuple[str, ...]) -> Topology:
        return replace(
            self,
            hosts=hosts,
            switches={name: sums for name, sums in self.switches.items() if name in to},
            links=tuple(link for link in self.links if link.source in to and link.target in to),
            routes={ends: route for ends, route in self.routes.items() if set(route) <= set(to)},
        )

    def require_connected(self) -> None:
        """Raise :class:`PlanError`, naming two hosts, unless every host reaches every other."""
        if len(self.hosts) < 2:
            raise PlanError(f"{self.name}: a collective needs 2 hosts or more, and there is {counted(len(self.hosts), 'host')}")
        backwards: dict[str, list[str]] = {name: [] for name in self.nodes}
        for source, target in self.rates:
            backwards[target].append(source)
        first = self.hosts[0]
        for host in self.hosts[1:]:
            if host not in reached(self.neighbors, first):
                raise PlanError(f"{self.name}: there is no path from {first} to {host}")
            if host not in reached(backwards, first):
                raise PlanError(f"{self.name}: there is no path from {host} to {first}")


def reached(neighbors: Mapping[str, Sequence[str]], start: str) -> dict[str, int]:
    """All that can be reached from ``start``, breadth first, and how many links away it is."""
    found, queue = {start: 0}, deque([start])
    while queue:
        node = queue.popleft()
        for other in neighbors[node]:
            if other not in found:
                found[other] = found[node] + 1
                queue.append(other)
    return found


def wire(one: str, other: str, rate: Fraction | int, delay_us: float = 0.0) -> Iterator[Link]:
    """Both directions of a wire; ``rate`` is that of each."""
    yield Link(one, other, Fraction(rate), delay_us)
    yield Link(other, one, Fraction(rate), delay_us)


# The path that traffic takes between two hosts: the file's, if it names one, else the one that the controller installs.
#
# That is a shortest path. Where there are several, neighboring targets take different ones, and each level of switches
# looks at another digit of the target's number (:mod:`netsum_controller.planning.items`). So a path is the same in
# every run.


Path = tuple[str, ...]


class Routing:
    """``down`` links are on no path. A host that is on a switch forwards nothing."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        switches = topology.switches
        on_switch = {host for host in topology.hosts if not switches.keys().isdisjoint(topology.neighbors[host])}
        self._forwards = set(topology.nodes) - on_switch
        self._number = {host: n for n, host in enumerate(topology.hosts)}
        self.set_down(())
        homes = [name for name in switches if not self._number.keys().isdisjoint(topology.neighbors[name])]
        self._level = dict.fromkeys(topology.hosts, 0) | self._search(homes, set(switches))
        """The distance in links to the nearest switch with hosts."""

    def set_down(self, down: Collection[Pair]) -> None:
        """From now on, paths avoid these links, and no others."""
        self.down = frozenset(down)
        self._before: dict[str, list[str]] = {name: [] for name in self.topology.nodes}
        for one, other in self.topology.rates:
            if (one, other) not in self.down:
                self._before[other].append(one)
        routes = self.topology.routes.items()
        self._paths = {ends: route for ends, route in routes if self.down.isdisjoint(pairwise(route))}
        self._away: dict[tuple[str, ...], dict[str, int]] = {}

    def path(self, source: str, target: str) -> Path:
        """From host to host. :class:`PlanError` if there is none. Cost: the first to a home looks at every link."""
        found = self._paths.get((source, target))
        if found is None:
            found = self._paths[source, target] = self._found(source, target)
        return found

    def _found(self, source: str, target: str) -> Path:
        number = self._number[target]
        # Hosts on the same switches share the distances to them.
        away = self.distances(*(name for name in self._before[target] if name in self._forwards))
        path = [source]
        while path[-1] != target:
            here = path[-1]
            others = self.topology.neighbors[here]
            if self.down:
                others = [other for other in others if (here, other) not in self.down]
            if target in others:
                path.append(target)
                continue
            known = [(away[other], other) for other in others if other in away]
            least = min((distance for distance, _ in known), default=0)
            if not known or (here in away and least >= away[here]):
                raise PlanError(f"{self.topology.name}: there is no path from {source} to {target}")
            hops = [other for distance, other in known if distance == least]
            path.append(hops[number // len(hops) ** self._level[here] % len(hops)])
        return tuple(path)

    def distances(self, *targets: str) -> dict[str, int]:
        """The distance in links of each node that forwards to the nearest of ``targets``."""
        if targets not in self._away:
            self._away[targets] = self._search(targets, self._forwards)
        return self._away[targets]

    def _search(self, starts: Iterable[str], among: Collection[str]) -> dict[str, int]:
        """Breadth first."""
        found = dict.fromkeys(starts, 0)
        queue = deque(found)
        while queue:
            node = queue.popleft()
            for other in self._before[node]:
                if other in among and other not in found:
                    found[other] = found[node] + 1
                    queue.append(other)
        return found
