# SPDX-License-Identifier: MIT
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

# Boxes of GPUs: DGX-1 with P100 and V100, A100 and MI250 boxes. Rates in GB/s each way; no switch in them sums.
#
# The matrices of NVLinks and the A100 and MI250 clusters are those that Blink (MLSys 2020) and ForestColl (arXiv
# 2402.06787) plan for, so that figures can be compared with theirs.


NVLINK1, NVLINK2 = 20, 25
"""GB/s of one NVLink, each way, of P100 and of V100."""

# Each pair of GPUs that is joined, with the number of NVLinks between them: two quads, all joined within, and i to i + 4.
_DGX1P = {
    **{(4 * quad + a, 4 * quad + b): 1 for quad in (0, 1) for a in range(4) for b in range(a + 1, 4)},
    **{(gpu, gpu + 4): 1 for gpu in range(4)},
}
_DOUBLE = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
_DGX1V = {pair: 2 if pair in _DOUBLE else 1 for pair in _DGX1P}

# Links of 50 GB/s (Infinity Fabric) from each GPU of an MI250 box to those with higher numbers.
_MI250 = {
    0: {1: 4, 4: 2, 8: 1},
    1: {5: 1, 9: 1, 10: 1},
    2: {3: 4, 6: 1, 9: 1, 10: 1},
    3: {7: 2, 11: 1},
    4: {5: 4, 6: 1},
    5: {6: 1, 7: 1},
    6: {7: 4},
    8: {9: 4, 12: 2},
    9: {13: 1},
    10: {11: 4, 14: 1},
    11: {15: 2},
    12: {13: 4, 14: 1},
    13: {14: 1, 15: 1},
    14: {15: 4},
}  # fmt: skip
XGMI, MI250_NIC = 50, 16
NVSWITCH, A100_NIC = 300, 25


def dgx1p() -> Topology:
    """DGX-1 with 8 P100: 4 NVLinks a GPU."""
    return _dgx1("dgx1p", _DGX1P, NVLINK1)


def dgx1v() -> Topology:
    """DGX-1 with 8 V100: 6 NVLinks a GPU, two of them to some neighbors."""
    return _dgx1("dgx1v", _DGX1V, NVLINK2)


def _dgx1(name: str, joined: dict[tuple[int, int], int], rate: int) -> Topology:
    links = [link for (a, b), count in joined.items() for link in wire(f"gpu{a}", f"gpu{b}", Fraction(rate * count))]
    return Topology(name, tuple(f"gpu{n}" for n in range(8)), {}, tuple(links))


def a100(boxes: int = 1) -> Topology:
    """Boxes of 8 A100 around an NVSwitch. Each GPU of several boxes has a NIC; those of even and odd GPUs are on two InfiniBand
    switches."""
    _check(boxes)
    links: list[Link] = []
    switches: list[str] = []
    for box in range(boxes):
        nvswitch = f"{_box(box, boxes)}nvswitch"
        switches.append(nvswitch)
        for gpu in range(8):
            name, nic = f"{_box(box, boxes)}gpu{gpu}", f"{_box(box, boxes)}nic{gpu}"
            links += wire(name, nvswitch, NVSWITCH)
            if boxes > 1:
                switches.append(nic)
                links += wire(name, nic, A100_NIC)
                links += wire(nic, f"ib{gpu % 2}", A100_NIC)
    switches += ["ib0", "ib1"] if boxes > 1 else []
    return Topology(f"a100-{boxes}x8", _gpus(boxes, 8), dict.fromkeys(switches, False), tuple(links))


def mi250(boxes: int = 1) -> Topology:
    """Boxes of 16 GPUs (8 MI250 of two dies) joined by Infinity Fabric; each of several boxes is on one InfiniBand switch, with
    16 GB/s a GPU."""
    _check(boxes)
    links: list[Link] = []
    for box in range(boxes):
        names = [f"{_box(box, boxes)}gpu{gpu}" for gpu in range(16)]
        for one, others in _MI250.items():
            for other, count in others.items():
                links += wire(names[one], names[other], count * XGMI)
        if boxes > 1:
            links += (link for name in names for link in wire(name, "ib", MI250_NIC))
    return Topology(f"mi250-{boxes}x16", _gpus(boxes, 16), {"ib": False} if boxes > 1 else {}, tuple(links))


def _check(boxes: int) -> None:
    if boxes < 1:
        raise PlanError(f"a cluster has 1 box or more, not {boxes}")


def _box(box: int, boxes: int) -> str:
    return f"box{box}-" if boxes > 1 else ""


def _gpus(boxes: int, each: int) -> tuple[str, ...]:
    return tuple(f"{_box(box, boxes)}gpu{gpu}" for box in range(boxes) for gpu in range(each))


def joined_gpus(rates: Sequence[Sequence[Fraction]], prefix: str = "") -> list[Link]:
    """Links of a matrix: row i, column j is the rate from GPU i to GPU j, 0 for none."""
    return [
        Link(f"{prefix}gpu{one}", f"{prefix}gpu{other}", rate)
        for one, row in enumerate(rates)
        for other, rate in enumerate(row)
        if rate
    ]


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
    """Hosts in a grid of two or three ``sides`` that closes around, joined to their neighbors directly. Along a side of 2
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
