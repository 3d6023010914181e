# SPDX-License-Identifier: MIT
"""Failure domains: a host is in a rack, a rack in a zone, a zone in a building. From a file, or as the topology has them.

A file (the outermost level may be left out, or the outer two)::

    scopes:
      east:                     # a building
        row1:                   # a zone
          rack1: [h1, h2]       # a rack
    taken: [h2]                 # optional: hosts that are not free
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import networkx as nx
from netsum.text import counted
from netsum_controller.config.yaml_files import Key, Problem, Strict, load_yaml, validate
from netsum_controller.errors import InputError
from pydantic import Field

from netsum_planner.topologies.model import Topology

LEVELS: Final = ("rack", "zone", "building")


class FailureDomain(NamedTuple):
    """The place of one host. Names are unique on their level; "" is everything."""

    rack: str
    zone: str
    building: str


@dataclass(frozen=True)
class FailureDomains:
    """``of``: by host, in the order in which hosts are taken. ``taken``: those that are not free."""

    of: Mapping[str, FailureDomain]
    taken: frozenset[str] = frozenset()

    def at(self, host: str, level: str | None) -> str:
        """The host's scope on a level; None is everything."""
        return "" if level is None else self.of[host][LEVELS.index(level)]

    def together(self, hosts: Iterable[str], level: str | None) -> bool:
        return len({self.at(host, level) for host in hosts}) < 2

    def racks(self, hosts: Collection[str]) -> dict[str, list[str]]:
        """These ``hosts`` by rack; a rack may have none."""
        found: dict[str, list[str]] = {scope.rack: [] for scope in self.of.values()}
        for host, scope in self.of.items():
            if host in hosts:
                found[scope.rack].append(host)
        return found

    def fragmentation(self, free: Collection[str]) -> float:
        """The share of the ``free`` hosts that are left over if every rack is filled with groups of the same size, averaged over
        the sizes 2, 4, 8 and so on, up to the largest rack.

        After Weng et al., Beware of Fragmentation (USENIX ATC 2023), who measure what a task of the workload cannot use, and
        average over its tasks."""
        largest = max(len(hosts) for hosts in self.racks(self.of).values())
        sizes = [1 << bit for bit in range(1, largest.bit_length())]
        if not sizes or not free:
            return 0.0
        rooms = [len(hosts) for hosts in self.racks(free).values()]
        return sum(room % size for size in sizes for room in rooms) / len(free) / len(sizes)


class _File(Strict):
    scopes: dict[str, Any] = Field(min_length=1)
    taken: Annotated[tuple[str, ...], Field(strict=False)] = ()


def read_failure_domains(path: Path, topology: Topology) -> FailureDomains:
    """The scopes of a file, which has all hosts of the topology. :class:`InputError` names the line."""
    document = load_yaml(path)
    file = validate(_File, document)
    racks = list(_racks(file.scopes))
    problems = list(_wrong(racks, topology))
    problems += [
        Problem(("taken", n), f"there is no host {host}") for n, host in enumerate(file.taken) if host not in topology.hosts
    ]
    if problems:
        raise InputError(*(f"{document.where(problem.path)}: {problem}" for problem in problems))
    of = {host: _scope(names) for names, hosts in racks for host in hosts}
    return FailureDomains(of, frozenset(file.taken))


def _racks(tree: object, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The innermost scopes with their contents, which should be lists of hosts."""
    if not isinstance(tree, dict):
        yield names, tree
        return
    for name, inside in tree.items():
        yield from _racks(inside, (*names, name))


def _wrong(racks: Collection[tuple[tuple[str, ...], Any]], topology: Topology) -> Iterator[Problem]:
    depth = len(next(iter(racks))[0])
    seen: set[object] = set()
    for names, hosts in racks:
        at: tuple[Key, ...] = ("scopes", *names)
        if len(names) > len(LEVELS):
            yield Problem(at, "scopes have three levels at most: buildings, zones, racks")
        elif len(names) != depth:
            yield Problem(at, f"is {counted(len(names), 'level')} deep, and the first rack is {depth}")
        if not isinstance(hosts, list) or not hosts:
            yield Problem(at, "a rack is a list of hosts, like [h1, h2]")
            continue
        for n, host in enumerate(hosts):
            if host not in topology.hosts:
                yield Problem((*at, n), f"there is no host {host} in {topology.name}")
            elif host in seen:
                yield Problem((*at, n), f"{host} is in a rack already")
            seen.add(host)
    if missing := [host for host in topology.hosts if host not in seen]:
        yield Problem(("scopes",), f"{', '.join(missing)}: in no rack")


def _scope(names: tuple[str, ...]) -> FailureDomain:
    rack, zone, building = ("/".join(map(str, names[: max(0, len(names) - outer)])) for outer in range(len(LEVELS)))
    return FailureDomain(rack, zone, building)


def derived(topology: Topology) -> FailureDomains:
    """Return the failure domains of a topology. A rack is a switch with hosts, or hosts that are joined directly; a zone is
    what racks are that are joined one tier above them, a building two tiers above. A host with links to several switches
    belongs to the one (or those) with the fastest."""
    racks = _components(topology.hosts, topology.hosts, _homes(topology))
    between = topology.graph().to_undirected().subgraph(topology.switches)
    homes = {name for name in topology.switches if set(topology.neighbors[name]) & set(topology.hosts)}
    tiers = nx.multi_source_dijkstra_path_length(between, homes) if homes else {}
    names: list[list[str]] = [racks]
    for tier, what in ((1, "zone"), (2, "building")):
        inside = {name for name, far in tiers.items() if far <= tier}
        links = [ends for ends in topology.rates if inside.union(topology.hosts) >= set(ends)]
        found = _components(topology.hosts, [*topology.hosts, *inside], links)
        number = {name: f"{what}{n}" for n, name in enumerate(dict.fromkeys(found), 1)}
        names.append([number[name] for name in found])
    return FailureDomains({host: FailureDomain(*scope) for host, *scope in zip(topology.hosts, *names, strict=True)})


def _homes(topology: Topology) -> list[tuple[str, str]]:
    """From each host to its neighbors that are hosts, or to the switches with its fastest links."""
    found = []
    for host in topology.hosts:
        beside = [other for other in topology.neighbors[host] if other not in topology.switches]
        if not beside and topology.neighbors[host]:
            fastest = max(topology.rates[host, other] for other in topology.neighbors[host])
            beside = [other for other in topology.neighbors[host] if topology.rates[host, other] == fastest]
        found += [(host, other) for other in beside]
    return found


def _components(hosts: Collection[str], nodes: Collection[str], links: Collection[tuple[str, str]]) -> list[str]:
    """For each host, a name of what it is joined to: its switch, or the first host."""
    graph = nx.Graph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(links)
    order = {name: n for n, name in enumerate(graph)}
    found: dict[str, str] = {}
    for part in nx.connected_components(graph):
        outside = [name for name in part if name not in hosts]
        name = min(outside or part, key=order.__getitem__)
        found |= dict.fromkeys(part, name)
    return [found[host] for host in hosts]
