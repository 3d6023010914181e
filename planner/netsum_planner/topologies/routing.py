"""The path that traffic takes between two hosts: the file's, if it names one, else the one that the controller installs.

That is a shortest path. Where there are several, neighbouring targets take different ones, and each level of switches looks at
another digit of the target's number (:mod:`netsum_controller.planning.switch_items`). So a path is the same in every run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from itertools import pairwise

from netsum_planner.errors import PlanError
from netsum_planner.topologies.model import Pair, Topology

Path = tuple[str, ...]


class Routing:
    """``down`` links are on no path. A host that is on a switch forwards nothing."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        switches = topology.switches
        on_switch = {host for host in topology.hosts if not switches.keys().isdisjoint(topology.neighbours[host])}
        self._forwards = set(topology.nodes) - on_switch
        self._number = {host: n for n, host in enumerate(topology.hosts)}
        self.set_down(())
        homes = [name for name in switches if not self._number.keys().isdisjoint(topology.neighbours[name])]
        self._level = dict.fromkeys(topology.hosts, 0) | self._search(homes, set(switches))
        """How many links away the nearest switch with hosts is."""

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
            others = self.topology.neighbours[here]
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
        """How many links each node that forwards is away from the nearest of ``targets``."""
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
