"""Known good orders: by neighbours, for a BiGraph, around a ring of direct links, and for a cube in a torus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from netsum_planner.topologies.model import Topology, reached

_ROTATIONS = 200
"""Attempts per host to extend a path, before the search for a ring through all hosts starts over."""
_STARTS = 20
_BACKTRACKS = 200_000

Order = tuple[str, ...]


def rank_orderings(topology: Topology, algorithm: str, random: Random) -> Iterator[Order]:
    """Those that suit the algorithm, and any network."""
    yield topology.hosts
    yield by_neighbours(topology)
    if algorithm == "halving_doubling":
        yield from bigraph(topology)
        yield from cube(topology)
    if algorithm == "ring":
        yield from around(topology, random)


def by_neighbours(topology: Topology) -> Order:
    """Hosts of the same switch together, then those of the nearest remaining switch, and so on."""
    homes: dict[str, list[str]] = {}
    for host in topology.hosts:
        homes.setdefault(topology.neighbours[host][0], []).append(host)
    place = {name: n for n, name in enumerate(homes)}
    found: list[str] = []
    here = next(iter(homes))
    while True:
        found += homes.pop(here)
        if not homes:
            return tuple(found)
        away = reached(topology.neighbours, here)
        here = min(homes, key=lambda home: (away.get(home, len(away)), place[home]))


def bigraph(topology: Topology) -> Iterator[Order]:
    """Halving-doubling without contention on a BiGraph (EFLOPS, section 4). The bits of a rank are (u, v, one more); ranks with
    an even number of ones are on upper switch u, the others on lower switch v. Partners differ in one bit, so one is above and
    one below, joined by one link; and u and v leave one rank for each end of it."""
    sides = _two_sides(topology)
    if sides is None:
        return
    hosts = {
        switch: iter([host for host in topology.hosts if topology.neighbours[host] == [switch]])
        for switch in topology.switches
    }
    bits = len(sides[0]).bit_length() - 1
    found = []
    for rank in range(2 << 2 * bits):
        u, v = rank >> bits + 1, rank >> 1 & (1 << bits) - 1
        found.append(next(hosts[sides[1][v] if rank.bit_count() % 2 else sides[0][u]], None))
    if None not in found and len(found) == len(topology.hosts):
        yield tuple(host for host in found if host is not None)


def _two_sides(topology: Topology) -> tuple[list[str], list[str]] | None:
    """The two layers of a BiGraph, if there are as many switches in each, a power of two, and each is joined to all of the other
    layer."""
    switches = set(topology.switches)
    if not switches or any(len(topology.neighbours[host]) != 1 for host in topology.hosts):
        return None
    first = next(iter(topology.switches))
    lower = [name for name in topology.switches if name in topology.neighbours[first]]
    upper = [name for name in topology.switches if name not in lower]
    whole = all(switches & set(topology.neighbours[name]) == set(lower) for name in upper)
    whole &= all(switches & set(topology.neighbours[name]) == set(upper) for name in lower)
    size = len(upper)
    return (upper, lower) if whole and len(lower) == size and size & (size - 1) == 0 else None


def cube(topology: Topology) -> Iterator[Order]:
    """Where hosts are joined directly and their number is a power of two: partners are neighbours, if they can be. (They can in
    a torus whose sides are 2 or 4.) Found by trying: a rank with several ones must be a neighbour of as many."""
    count = len(topology.hosts)
    if topology.switches or count & (count - 1):
        return
    beside = {host: set(topology.neighbours[host]) for host in topology.hosts}
    if any(len(others) < count.bit_length() - 1 for others in beside.values()):
        return
    placed: list[str] = [topology.hosts[0]]
    tries: list[Iterator[str]] = [iter(())]
    left = _BACKTRACKS
    while placed and left:
        left -= 1
        if len(placed) == count:
            yield tuple(placed)
            return
        if len(tries) == len(placed):
            rank = len(placed)
            near = [beside[placed[rank ^ 1 << bit]] for bit in range(rank.bit_length()) if rank >> bit & 1]
            tries.append(iter(sorted(set.intersection(*near) - set(placed), key=topology.hosts.index)))
        chosen = next(tries[-1], None)
        if chosen is not None:
            placed.append(chosen)
        else:
            tries.pop()
            placed.pop()


def around(topology: Topology, random: Random) -> Iterator[Order]:
    """Where hosts are joined directly: a ring through all of them over direct links, if one is found (Posa's rotations)."""
    if topology.switches:
        return
    beside = topology.neighbours
    for _ in range(_STARTS):
        path = [random.choice(topology.hosts)]
        for _ in range(_ROTATIONS * len(topology.hosts)):
            if len(path) == len(topology.hosts) and path[0] in beside[path[-1]]:
                yield tuple(path)
                return
            others = beside[path[-1]]
            outside = [other for other in others if other not in path]
            if outside:
                # First the host from which the fewest ways lead on, or it would be left over.
                path.append(min(outside, key=lambda other: _ways(beside, other, path)))
            else:
                turn = path.index(random.choice(others)) + 1
                path[turn:] = path[: turn - 1 : -1]


def _ways(beside: dict[str, list[str]], host: str, path: Sequence[str]) -> int:
    return sum(other not in path for other in beside[host])
