"""Topologies of the usual shapes. Names are those that ``netsum topology make`` gives: hosts are h1, h2...

All links have the same ``rate``, in GB/s each way, and the same ``delay_us``; all switches can sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import product
from math import prod

from netsum_planner.errors import PlanError
from netsum_planner.topologies.model import Link, Pair, Topology, wire

Rate = Fraction | int


def star(hosts: int, rate: Rate, *, delay_us: float = 0.0) -> Topology:
    """``hosts`` around one switch."""
    return _make(f"star{hosts}", ["s1"], ["s1"] * hosts, [], rate, delay_us)


def tree(leaves: int, hosts: int, rate: Rate, *, delay_us: float = 0.0) -> Topology:
    """``leaves`` under one root, with ``hosts`` each."""
    lower = [f"leaf{n}" for n in range(1, leaves + 1)]
    homes = [leaf for leaf in lower for _ in range(hosts)]
    joined = [(leaf, "root") for leaf in lower]
    return _make(f"tree{leaves}x{hosts}", [*lower, "root"], homes, joined, rate, delay_us)


def leaf_spine(spines: int, leaves: int, hosts: int, rate: Rate, *, delay_us: float = 0.0) -> Topology:
    """Every leaf, with its ``hosts``, joined to every spine."""
    upper = [f"spine{n}" for n in range(1, spines + 1)]
    lower = [f"leaf{n}" for n in range(1, leaves + 1)]
    homes = [leaf for leaf in lower for _ in range(hosts)]
    joined = list(product(lower, upper))
    return _make(f"leafspine{spines}x{leaves}x{hosts}", [*lower, *upper], homes, joined, rate, delay_us)


def fat_tree(k: int, rate: Rate, *, delay_us: float = 0.0) -> Topology:
    """Switches with ``k`` ports: k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 cores, k^3/4 hosts (Al-Fares et al.,
    SIGCOMM 2008)."""
    half = _half("fat-tree", k)
    pods, places = range(1, k + 1), range(1, half + 1)
    edges = [f"edge{pod}-{n}" for pod in pods for n in places]
    upper = [f"agg{pod}-{n}" for pod in pods for n in places]
    cores = [f"core{n}" for n in range(1, half * half + 1)]
    joined = [(f"edge{pod}-{low}", f"agg{pod}-{high}") for pod in pods for low in places for high in places]
    joined += [(f"agg{pod}-{n}", f"core{(n - 1) * half + c}") for pod in pods for n in places for c in places]
    homes = [edge for edge in edges for _ in range(half)]
    return _make(f"fattree{k}", [*edges, *upper, *cores], homes, joined, rate, delay_us)


def bigraph(k: int, rate: Rate, *, delay_us: float = 0.0) -> Topology:
    """Switches with ``k`` ports in two layers, k/2 in each; each has k/2 hosts, and a link to every switch of the other layer
    (EFLOPS, HPCA 2020). The first half of the hosts is on the upper layer."""
    half = _half("BiGraph", k)
    upper = [f"upper{n}" for n in range(1, half + 1)]
    lower = [f"lower{n}" for n in range(1, half + 1)]
    homes = [switch for switch in (*upper, *lower) for _ in range(half)]
    return _make(f"bigraph{k}", [*upper, *lower], homes, list(product(upper, lower)), rate, delay_us)


def torus(sides: Sequence[int], rate: Rate, *, delay_us: float = 0.0) -> Topology:
    """Hosts in a grid of two or three ``sides`` that closes around, joined to their neighbours directly. Along a side of 2
    there is one wire, not two."""
    if len(sides) not in (2, 3) or min(sides) < 1:
        raise PlanError(f"a torus has 2 or 3 sides of 1 or more, not {'x'.join(map(str, sides))}")
    places = list(product(*map(range, sides)))
    names = {place: f"h{n}" for n, place in enumerate(places, 1)}
    links: list[Link] = []
    for place in places:
        for axis, side in enumerate(sides):
            beside = (*place[:axis], (place[axis] + 1) % side, *place[axis + 1 :])
            if beside != place and (side > 2 or place[axis] == 0):
                links += wire(names[place], names[beside], rate, delay_us)
    assert len(names) == prod(sides)
    return Topology(f"torus{'x'.join(map(str, sides))}", tuple(names.values()), {}, tuple(links))


def _half(what: str, k: int) -> int:
    if k < 2 or k % 2:
        raise PlanError(f"the k of a {what} is an even number from 2, not {k}")
    return k // 2


def _make(
    name: str,
    switches: Iterable[str],
    homes: Sequence[str],
    joined: Iterable[Pair],
    rate: Rate,
    delay_us: float,
) -> Topology:
    """``homes``: the switch of each host."""
    hosts = tuple(f"h{n}" for n in range(1, len(homes) + 1))
    if not hosts:
        raise PlanError(f"{name}: a topology has 1 host or more")
    pairs = [*zip(hosts, homes, strict=True), *joined]
    links = tuple(link for one, other in pairs for link in wire(one, other, rate, delay_us))
    return Topology(name, hosts, dict.fromkeys(switches, True), links)
