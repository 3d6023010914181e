"""The path that traffic takes between two hosts: the file's, if it names one, else the one that the controller installs.

That is a shortest path. Where there are several, neighbouring targets take different ones, and each level of switches looks at
another digit of the target's number (:mod:`netsum_controller.planning.switch_items`). So a path is the same in every run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from netsum_planner.errors import PlanError
from netsum_planner.topologies.model import Topology

Path = tuple[str, ...]


class Routing:
    """Hosts forward only where there are no switches."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._forwards = set(topology.switches or topology.hosts)
        self._before: dict[str, list[str]] = {name: [] for name in topology.nodes}
        for one, other in topology.rates:
            self._before[other].append(one)
        self._number = {host: n for n, host in enumerate(topology.hosts)}
        self._level = self._levels()
        self._away: dict[tuple[str, ...], dict[str, int]] = {}
        self._paths: dict[tuple[str, str], Path] = dict(topology.routes)

    def path(self, source: str, target: str) -> Path:
        """From host to host. :class:`PlanError` if there is none. Cost: the first to a home looks at every link."""
        found = self._paths.get((source, target))
        if found is None:
            found = self._paths[source, target] = self._found(source, target)
        return found

    def _found(self, source: str, target: str) -> Path:
        away, number = self._distances(target), self._number[target]
        path = [source]
        while path[-1] != target:
            here = path[-1]
            others = self.topology.neighbours[here]
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

    def _distances(self, target: str) -> dict[str, int]:
        """How far the nodes that forward are from the last one before the target. Hosts on the same switch share it."""
        homes = tuple(name for name in self._before[target] if name in self._forwards)
        if homes not in self._away:
            self._away[homes] = self._search(homes, self._forwards)
        return self._away[homes]

    def _levels(self) -> dict[str, int]:
        """How many links away the nearest switch with hosts is."""
        hosts = set(self.topology.hosts)
        homes = [name for name in self.topology.switches if hosts & set(self.topology.neighbours[name])]
        return dict.fromkeys(hosts, 0) | self._search(homes, set(self.topology.switches))

    def _search(self, starts: Iterable[str], among: set[str]) -> dict[str, int]:
        found = dict.fromkeys(starts, 0)
        queue = deque(found)
        while queue:
            node = queue.popleft()
            for other in self._before[node]:
                if other in among and other not in found:
                    found[other] = found[node] + 1
                    queue.append(other)
        return found
